// How a kernel is declared, one implementation for each kind of device, and how the one for a device is called.
#pragma once

#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/stream.h"

namespace isobar {

// Throws an Error: this build has no kernels for that device.
[[noreturn]] void fail_not_built(DeviceKind kind);

// Adds a call of a kernel on the device meta to the account of this thread (kernels/common/cost_account.h).
void account_for(const char* kernel, const Cost& cost);

}  // namespace isobar

// Declares `void name(const Arguments&, Stream)` in namespaces cpu, cuda and emulator, and defines the one of meta,
// which adds name_cost(arguments) to the account. The arguments of kernel x_y are the struct XYArgs, so that they share
// no name with an op.
#define ISOBAR_KERNEL(name, Arguments)                              \
  namespace cpu {                                                   \
  void name(const Arguments& arguments, Stream stream = {});        \
  }                                                                 \
  namespace cuda {                                                  \
  void name(const Arguments& arguments, Stream stream = {});        \
  }                                                                 \
  namespace emulator {                                              \
  void name(const Arguments& arguments, Stream stream = {});        \
  }                                                                 \
  namespace meta {                                                  \
  inline void name(const Arguments& arguments, Stream = {}) {       \
    ::isobar::account_for(#name, ::isobar::name##_cost(arguments)); \
  }                                                                 \
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
      case ::isobar::DeviceKind::meta:             \
        ::isobar::meta::name(__VA_ARGS__);         \
        break;                                     \
      default:                                     \
        ::isobar::cpu::name(__VA_ARGS__);          \
    }                                              \
  } while (0)
