// Which GPU a device is, whatever its number in a process.
#pragma once

#include <string>

namespace isobar::gpu {

// "GPU-5c4f...": the UUID of a CUDA device, as nvidia-smi -L shows it.
std::string uuid_of(int index);

}  // namespace isobar::gpu
