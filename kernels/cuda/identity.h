// The identity of a GPU, which does not depend on its number in a process.
#pragma once

#include <string>

namespace isobar::gpu {

// "GPU-5c4f...": the UUID of a CUDA device, as in nvidia-smi -L.
std::string uuid_of(int index);

}  // namespace isobar::gpu
