// The cuBLASLt algorithms of a run's matrix products on a GPU (kernels/gemm/algorithms.h). They are timed before the
// run computes its first number, are the same on all ranks, and do not change afterwards. The run's checkpoints keep
// them for a resumed run, and a file keeps them for later runs.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "comm/communicator.h"
#include "kernels/common/device.h"
#include "kernels/gemm/algorithms.h"

namespace isobar {

// The algorithms chosen on one kind of GPU with one version of the library.
struct ChosenAlgorithms {
  std::string platform = {};  // cuda::gemm_platform
  cuda::GemmAlgorithms of_products = {};
  friend bool operator==(const ChosenAlgorithms&, const ChosenAlgorithms&) = default;
};

// The form in state.json, in the file for later runs, and in messages between ranks.
nlohmann::ordered_json to_json(const ChosenAlgorithms& chosen);
// Error if the JSON is anything else.
ChosenAlgorithms algorithms_from(const nlohmann::ordered_json& json);

// The file for later runs, one per platform: in $XDG_CACHE_HOME/isobar, else in ~/.cache/isobar. Empty if neither
// folder is known.
std::filesystem::path algorithms_file(const std::string& platform);
// The content of the file; empty if it does not exist. Error if it is damaged or of another platform.
ChosenAlgorithms read_algorithms(const std::filesystem::path& file, const std::string& platform);
// Adds `chosen` to the current content of the file; replaces a damaged file. Error if it cannot be written.
void add_algorithms(const std::filesystem::path& file, const ChosenAlgorithms& chosen);

// For every product that any rank knows, the algorithm of the lowest rank that knows it. Collective; all ranks get the
// same result.
cuda::GemmAlgorithms agree_on(const cuda::GemmAlgorithms& mine, const Communicator& ranks);

// Sets the algorithms of later products on the GPU: those of the first rank's checkpoint, if they are of its platform;
// else those of its file; products missing there get the fastest algorithm, timed while `rehearse` runs the products of
// the run. Returns them, for the next checkpoint. Collective. Files that cannot be read or written are reported through
// `log` and skipped.
ChosenAlgorithms choose_algorithms(const ChosenAlgorithms& of_checkpoint, Device device, const Communicator& ranks,
                                   const std::function<void()>& rehearse,
                                   const std::function<void(const std::string& line)>& log);
// Products on the device use the library's first guess.
void choose_no_algorithms(Device device);

}  // namespace isobar
