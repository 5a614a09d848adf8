// Where tensors lie and kernels run.
#pragma once

#include <cstdint>

namespace isobar {

// cpu: host threads. cuda: an NVIDIA GPU. emulator: the CUDA kernels, run on the CPU by kernels/emulator/emulator.h.
// meta: nowhere. Tensors have shapes and no values, memory is counted and not taken, and kernels add their costs
// (kernels/common/cost_account.h): what a program would need is known from one run of it.
enum class DeviceKind : std::uint8_t { cpu, cuda, emulator, meta };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  DeviceKind like = DeviceKind::cpu;  // of meta alone: the device whose choices and sizes of blocks it takes
  friend bool operator==(Device, Device) = default;
};

constexpr Device meta_like(DeviceKind kind) {
  return {.kind = DeviceKind::meta, .index = 0, .like = kind};
}

constexpr bool holds_values(Device device) {
  return device.kind != DeviceKind::meta;
}

// The kind of device that decides what is kept, and how: meta decides as what it stands for does.
constexpr DeviceKind behaviour_of(Device device) {
  return holds_values(device) ? device.kind : device.like;
}

constexpr const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::emulator:
      return "emulator";
    case DeviceKind::meta:
      return "meta";
    default:
      return "cpu";
  }
}

}  // namespace isobar
