// What a training run tells about itself, in four places at once: metrics.jsonl, out.log in the tutorial's words,
// TensorBoard under the tutorial's tags, and summary.json with the table at the end.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/run_folder.h"
#include "apps/train/tensorboard.h"
#include "apps/train/trainer.h"
#include "models/task.h"

namespace isobar {

// Iterations, what they took and what they lost: of an epoch, between two lines, or of a whole run.
struct Tally {
  std::int64_t iterations = 0;
  double seconds = 0;        // of training: validation and checkpoints left out
  double data_seconds = 0;   // of these, waiting for batches
  double loss = 0;           // the sum
  std::int64_t missing = 0;  // samples that incomplete batches lacked of whole ones

  void add(const StepResult& result, double iteration_seconds);
  double mean_loss() const { return iterations > 0 ? loss / static_cast<double>(iterations) : 0; }
  double iterations_per_second() const { return seconds > 0 ? static_cast<double>(iterations) / seconds : 0; }
  // Of iterations of whole batches of `batch` samples, but for what is missing.
  double samples_per_second(double batch) const;
};

// What the journal tells of a run without being told each time.
struct RunFacts {
  double samples_per_iteration = 0;
  bool has_loss_scale = false;  // fp16 training
  std::string precision;        // "fp32", "tf32", "bf16", ...
};

// {"rmse", "t2m", 0.5} becomes "rmse": {"t2m": 0.5}.
void add_figures(nlohmann::ordered_json& object, const std::vector<Figure>& figures);

class Journal {
 public:
  // purge_step: where a run goes on or starts over, the first step that TensorBoard is to forget; else null.
  Journal(const RunFolder& folder, RunFacts facts, std::optional<std::int64_t> purge_step);

  // For readers of TensorBoard. step: where this process begins.
  void config(const nlohmann::ordered_json& config, std::int64_t step);
  // Iteration `iteration`, counted from 1. since_last: the tally since the last such line.
  void train(std::int64_t iteration, std::int64_t epoch, const StepResult& result, const Tally& since_last);
  // The loss that the initial weights have: of iteration 1, before its update. A point at step 0.
  void initial_loss(double loss);
  void epoch_end(std::int64_t iteration, std::int64_t epoch, const Tally& tally, double next_lr);
  void valid(std::int64_t iteration, std::int64_t epoch, const Metrics& metrics, double seconds);
  // TensorBoard's pictures and images/FILE_ITERATION.png. A file that cannot be written is told on stderr, and the run
  // goes on.
  void pictures(std::int64_t iteration, const std::vector<Picture>& pictures);

  // What is known when a run ends; goes to summary.json, and the metrics' table to the log.
  struct Result {
    std::int64_t iterations = 0;
    double train_loss = 0;
    double samples_per_second = 0;
    double data_seconds = 0;  // that this process waited for batches
    double wall_seconds = 0;
    // Of tensors, on the rank that held most; none: of this process.
    std::optional<std::int64_t> largest_rank_bytes = std::nullopt;
    std::vector<std::pair<std::string, std::int64_t>> layout = {};  // {"dp", 2}, ...
    const Metrics* test = nullptr;                                  // of the test set; null: there is none
    std::int64_t test_iteration = -1;  // of the weights that it was scored with; -1: not known
  };
  void summary(const Result& result, const Metrics& metrics, const Task& task);

 private:
  const RunFolder& folder_;
  const RunFacts facts_;
  TensorBoardWriter board_;
  bool charts_are_told_ = false;
};

}  // namespace isobar
