// Where a kernel runs, and the declaration macro that gives every kernel its three implementations.
#pragma once

#include <cstdint>

namespace isobar {

// cpu: host threads. cuda: an NVIDIA GPU. emulator: the CUDA kernels, run on the CPU by kernels/emulator/emulator.h.
enum class DeviceKind : std::uint8_t { cpu, cuda, emulator };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(Device, Device) = default;
};

constexpr const char* name_of(DeviceKind kind) {
  return kind == DeviceKind::cuda ? "cuda" : kind == DeviceKind::emulator ? "emulator" : "cpu";
}

// A cudaStream_t without its header; null is the default stream. The CPU ignores it.
using Stream = void*;

// Whether an output is written or added to. Gradients accumulate when a tensor has several consumers or a batch is
// split into micro-batches.
enum class Grad : std::uint8_t { overwrite, accumulate };

// Throws an Error: this build has no kernels for that device.
[[noreturn]] void fail_not_built(DeviceKind kind);

}  // namespace isobar

// Declares `void name(const Arguments&, Stream)` in namespaces cpu, cuda and emulator.
#define ISOBAR_KERNEL(name, Arguments)                       \
  namespace cpu {                                            \
  void name(const Arguments& arguments, Stream stream = {}); \
  }                                                          \
  namespace cuda {                                           \
  void name(const Arguments& arguments, Stream stream = {}); \
  }                                                          \
  namespace emulator {                                       \
  void name(const Arguments& arguments, Stream stream = {}); \
  }

// Calls the implementation of `name` for a device. Without CUDA (or the emulator) that branch is discarded, so the
// missing symbols are never needed, and such a device is an Error. ISOBAR_HAS_CUDA and ISOBAR_HAS_EMULATOR, 0 or 1,
// come from the command line and stay macros: a source that does not ask is the same text in every build, and compiled
// once by a compiler cache.
#define ISOBAR_RUN(device, name, ...)              \
  do {                                             \
    switch ((device).kind) {                       \
      case ::isobar::DeviceKind::cuda:             \
        if constexpr (ISOBAR_HAS_CUDA)             \
          ::isobar::cuda::name(__VA_ARGS__);       \
        else                                       \
          ::isobar::fail_not_built((device).kind); \
        break;                                     \
      case ::isobar::DeviceKind::emulator:         \
        if constexpr (ISOBAR_HAS_EMULATOR)         \
          ::isobar::emulator::name(__VA_ARGS__);   \
        else                                       \
          ::isobar::fail_not_built((device).kind); \
        break;                                     \
      default:                                     \
        ::isobar::cpu::name(__VA_ARGS__);          \
    }                                              \
  } while (0)
