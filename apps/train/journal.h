// The outputs of a training run, written to four places: metrics.jsonl; out.log with the task's wording
// (apps/train/log_lines.h); TensorBoard with the tutorial's tags; and summary.json with the table at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/log_lines.h"
#include "apps/train/run_folder.h"
#include "apps/train/tensorboard.h"
#include "apps/train/trainer.h"
#include "models/task.h"

namespace isobar {

// Sums over some iterations: of an epoch, between two log lines, or of the whole run.
struct Tally {
  std::int64_t iterations = 0;
  double seconds = 0;          // training time, without validation and checkpoints
  double data_seconds = 0;     // part of `seconds`: waiting for batches
  double loss = 0;             // sum over the iterations
  std::int64_t missing = 0;    // number of samples that incomplete batches lack
  std::int64_t uncounted = 0;  // samples without weight

  void add(const StepResult& result, double iteration_seconds);
  double mean_loss() const { return iterations > 0 ? loss / static_cast<double>(iterations) : 0; }
  double iterations_per_second() const { return seconds > 0 ? static_cast<double>(iterations) / seconds : 0; }
  // For batches of `batch` samples; samples in `missing` are not counted.
  double samples_per_second(double batch) const;
};

// Facts about the run that do not change.
struct RunFacts {
  double samples_per_iteration = 0;
  bool has_loss_scale = false;  // fp16 training
  std::string precision;        // "fp32", "tf32", "bf16", ...
  LogStyle log_style = LogStyle::weather;
};

// {"rmse", "t2m", 0.5} becomes "rmse": {"t2m": 0.5}.
void add_figures(nlohmann::ordered_json& object, const std::vector<Figure>& figures);

// Of a validation: of its set, and of what it judged besides (OpenedRecipe::also_valid), null: nothing.
struct ValidationMetrics {
  const Metrics* valid = nullptr;  // null: the run has no validation set
  const Metrics* also = nullptr;

  Report report() const;  // of both; empty without a validation set
};

class Journal {
 public:
  // purge_step: for a resumed or restarted run, the first step that TensorBoard must discard; else null.
  Journal(const RunFolder& folder, RunFacts facts, std::optional<std::int64_t> purge_step);

  // The config as a text in TensorBoard. step: the iteration at which this process begins.
  void config(const nlohmann::ordered_json& config, std::int64_t step);
  // `iteration` counts from 1. since_last: the tally since the last such line.
  void train(std::int64_t iteration, std::int64_t epoch, const StepResult& result, const Tally& since_last);
  // The loss of the initial weights: of iteration 1, before its update. Plotted at step 0.
  void initial_loss(double loss);
  void epoch_end(std::int64_t iteration, std::int64_t epoch, const Tally& tally, double next_lr);
  void valid(std::int64_t iteration, std::int64_t epoch, const ValidationMetrics& metrics, double seconds);
  // Pictures for TensorBoard, and images/FILE_ITERATION.png. A file that cannot be written is reported on stderr, and
  // the run continues.
  void pictures(std::int64_t iteration, const std::vector<Picture>& pictures);

  // The results at the end of a run: they go to summary.json, and the table of the metrics to the log.
  struct Result {
    std::int64_t iterations = 0;
    double train_loss = 0;
    double samples_per_second = 0;
    double data_seconds = 0;  // time this process waited for batches
    double wall_seconds = 0;
    // Peak of tensor memory, max over ranks; none: use the peak of this process.
    std::optional<std::int64_t> largest_rank_bytes = std::nullopt;
    std::vector<std::pair<std::string, std::int64_t>> layout = {};  // {"dp", 2}, ...
    const Metrics* test = nullptr;                                  // of the test set; null: no test set
    std::int64_t test_iteration = -1;  // iteration of the weights scored on the test set; -1: unknown
    bool test_is_of_best = true;       // whether these are the best ones, or the last
  };
  void summary(const Result& result, const ValidationMetrics& metrics, const Task& task);

 private:
  void log(const Lines& lines) const;

  const RunFolder& folder_;
  const RunFacts facts_;
  const std::unique_ptr<LogLines> lines_;
  TensorBoardWriter board_;
  bool charts_are_written_ = false;
};

}  // namespace isobar
