// A GPU that a run could use and does not: people who have one should not train on the CPU without a word.
#pragma once

#include <filesystem>
#include <string>

namespace isobar {

// What to tell where the CPU was taken because there seems to be no GPU, and `devices` has the device file of one; else
// "". Who hides GPUs (CUDA_VISIBLE_DEVICES is empty or -1) is told nothing.
std::string about_unused_gpu(bool built_with_cuda, const std::filesystem::path& devices = "/dev");

}  // namespace isobar
