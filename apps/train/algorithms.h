// The algorithms that a run's products take on a GPU (kernels/gemm/algorithms.h): timed before the run's first number,
// the same on all ranks, and not changed afterwards. They are kept in the run's checkpoints, with which it goes on, and
// in a file for later runs.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "comm/communicator.h"
#include "kernels/common/device.h"
#include "kernels/gemm/algorithms.h"

namespace isobar {

// Those that were chosen on one kind of GPU, with one version of the library.
struct ChosenAlgorithms {
  std::string platform = {};  // cuda::gemm_platform
  cuda::GemmAlgorithms of_products = {};
  friend bool operator==(const ChosenAlgorithms&, const ChosenAlgorithms&) = default;
};

// As state.json, the file for later runs, and other ranks have them.
nlohmann::ordered_json to_json(const ChosenAlgorithms& chosen);
// Error where it is something else.
ChosenAlgorithms algorithms_from(const nlohmann::ordered_json& json);

// The file for later runs, one a platform: in $XDG_CACHE_HOME/isobar, else in ~/.cache/isobar. Empty where neither is
// known.
std::filesystem::path algorithms_file(const std::string& platform);
// What it holds. Nothing where there is no such file; Error where it is damaged, or of another platform.
ChosenAlgorithms read_algorithms(const std::filesystem::path& file, const std::string& platform);
// Adds these to what the file holds by now. Error where it cannot be written; a damaged one is replaced.
void add_algorithms(const std::filesystem::path& file, const ChosenAlgorithms& chosen);

// Of every product that a rank knows, the algorithm that the lowest one of them has. All ranks call it and get the
// same.
cuda::GemmAlgorithms agree_on(const cuda::GemmAlgorithms& mine, const Communicator& ranks);

// Products on the GPU take, from now on: those that the first rank's checkpoint holds, where they are of its platform;
// else those in its file, and where that has none, the fastest, timed while `rehearse` multiplies what the run will.
// Returns them, for the next checkpoint. All ranks call it. What cannot be read or written is told by `log` and does
// without.
ChosenAlgorithms choose_algorithms(const ChosenAlgorithms& of_checkpoint, Device device, const Communicator& ranks,
                                   const std::function<void()>& rehearse,
                                   const std::function<void(const std::string& line)>& log);
// They take the library's first guesses.
void choose_no_algorithms(Device device);

}  // namespace isobar
