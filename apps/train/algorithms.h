// The algorithms of libraries for a run's matrix products (cuBLASLt: kernels/gemm/algorithms.h) and convolutions
// (cuDNN: kernels/conv/engines.h) on a GPU. They are timed before the run computes its first number. They are the same
// on all ranks, and do not change afterwards. The run's checkpoints keep them for a resumed run, and a file keeps them
// for later runs.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "comm/communicator.h"
#include "kernels/common/device.h"
#include "kernels/conv/engines.h"
#include "kernels/gemm/algorithms.h"

namespace isobar {

// The algorithms chosen on one kind of GPU with one version of the library. Key: what it computes, in words that the
// library's user defines, sizes and types included. Value: the algorithm as text, which means something to that user
// only. JSON that was written before there were convolutions is read as having none, and JSON without any is the same
// as then.
struct ChosenAlgorithms {
  using Texts = cuda::GemmAlgorithms;
  std::string platform = {};  // cuda::gemm_platform
  Texts of_products = {};
  Texts of_convolutions = {};

  bool empty() const { return of_products.empty() && of_convolutions.empty(); }
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
// Adds `chosen`, whose entries win, to the current content of the file; replaces a damaged file. Error if it cannot be
// written.
void add_algorithms(const std::filesystem::path& file, const ChosenAlgorithms& chosen);

// For every key that any rank knows, the algorithm of the lowest rank that knows it; the platform of the first rank.
// Collective; all ranks get the same result.
ChosenAlgorithms agree_on(const ChosenAlgorithms& mine, const Communicator& ranks);

// What choosing asks of a device. That of a GPU is the libraries' (kernels/gemm/algorithms.h, kernels/conv/engines.h).
struct AlgorithmDevice {
  std::string platform = {};
  // Of convolutions: the name of their engines here, and whether algorithms are of these.
  std::function<std::string()> engines = {};
  std::function<bool(const ChosenAlgorithms& chosen)> has_engines_of = {};
  // Sets those of later products and convolutions.
  std::function<void(const ChosenAlgorithms& chosen)> use = {};
  // Runs `rehearse`, and times what is not known; what was used then.
  std::function<ChosenAlgorithms(const ChosenAlgorithms& known, const std::function<void()>& rehearse)> choose_by_time =
      {};
};

// Sets the algorithms of later products and convolutions on the GPU: those of the first rank's checkpoint, if they are
// of its platform; else those of its file; what is missing there gets the fastest algorithm, timed while `rehearse`
// runs what the run computes. Convolutions of a checkpoint from another version of cuDNN, or from a machine without it,
// are chosen again. Returns them, for the next checkpoint. Collective. Files that cannot be read or written are
// reported through `log` and skipped.
ChosenAlgorithms choose_algorithms(const ChosenAlgorithms& of_checkpoint, const AlgorithmDevice& device,
                                   const Communicator& ranks, const std::function<void()>& rehearse,
                                   const std::function<void(const std::string& line)>& log);
ChosenAlgorithms choose_algorithms(const ChosenAlgorithms& of_checkpoint, Device gpu, const Communicator& ranks,
                                   const std::function<void()>& rehearse,
                                   const std::function<void(const std::string& line)>& log);
// Products and convolutions on the device use the library's first guess.
void choose_no_algorithms(Device device);

}  // namespace isobar
