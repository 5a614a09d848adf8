// Which emulator device a thread uses, and which memory is a device's. Libraries that stand in for NVIDIA's ask it, as
// NVIDIA's ask the driver (kernels/emulator/stand_in.h).
#pragma once

#include <cstddef>
#include <string>

namespace isobar::emulator {

struct CurrentDevice {
  int index = 0;
  std::string name;  // of the device among those of all processes and hosts
};

// Of this thread; at first device 0. Without a name a device is told from others by its host and index, as a GPU is.
void set_device(int index, std::string name = {});
CurrentDevice current_device();

// The compute capability of the emulated GPUs, times ten: what host code chooses kernels by, and what kernels may use.
// At first ISOBAR_EMULATOR_CAPABILITY, 80 (an A100) or 90 (an H100), else 80. Throws Error on others.
inline constexpr int kAmpere = 80, kHopper = 90;
int capability();
void set_capability(int capability);

// Memory of device `index`, from an allocation until it is freed.
void note_memory(int index, const void* data, std::size_t bytes);
void forget_memory(const void* data) noexcept;

// Whether these bytes lie within one allocation of the device.
bool is_memory(int index, const void* data, std::size_t bytes);

}  // namespace isobar::emulator
