// Detects a GPU that a run could use but does not, so that a user with a GPU does not train on the CPU unawares.
#pragma once

#include <filesystem>
#include <string>

#include "kernels/common/device.h"

namespace isobar {

// A message if the CPU is used (`used`) where the user left the choice to isobar (`wanted`, of --device, is auto),
// although `devices` has the device file of a GPU; else "". No message if GPUs are hidden on purpose
// (CUDA_VISIBLE_DEVICES is empty or -1).
std::string about_unused_gpu(const std::string& wanted, Device used, bool built_with_cuda,
                             const std::filesystem::path& devices = "/dev");

}  // namespace isobar
