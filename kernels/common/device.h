// Where tensors lie and kernels run.
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

}  // namespace isobar
