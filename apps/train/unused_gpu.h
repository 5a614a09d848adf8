// Detects a GPU that a run could use but does not, so that a user with a GPU does not train on the CPU unawares.
#pragma once

#include <filesystem>
#include <string>

namespace isobar {

// A message if the CPU was chosen because no GPU was found, although `devices` has the device file of one; else "". No
// message if GPUs are hidden on purpose (CUDA_VISIBLE_DEVICES is empty or -1).
std::string about_unused_gpu(bool built_with_cuda, const std::filesystem::path& devices = "/dev");

}  // namespace isobar
