// The emulator device that a thread uses, and the memory of each device. Libraries that replace NVIDIA's ask here, as
// NVIDIA's ask the driver (kernels/emulator/stand_in.h).
#pragma once

#include <cstddef>
#include <string>

namespace isobar::emulator {

struct CurrentDevice {
  int index = 0;
  std::string name;  // of the device, unique among all processes and hosts
};

// For this thread; initially device 0. Without a name a device is identified by its host and index, as a GPU is.
void set_device(int index, std::string name = {});
CurrentDevice current_device();

// The compute capability of the emulated GPUs, times ten: host code chooses kernels by it, and it limits what kernels
// may use. Initially ISOBAR_EMULATOR_CAPABILITY: 80 (an A100, the default) or 90 (an H100). Throws Error on others.
inline constexpr int kAmpere = 80, kHopper = 90;
int capability();
void set_capability(int capability);

// Memory of device `index`, from an allocation until it is freed.
void note_memory(int index, const void* data, std::size_t bytes);
void forget_memory(const void* data) noexcept;

// Whether these bytes are in one allocation of the device.
bool is_memory(int index, const void* data, std::size_t bytes);

}  // namespace isobar::emulator
