// The loop of a training run: updates, epochs, validation, checkpoints, stopping and going on.
//
// A run that was stopped or killed and resumed makes the same updates, bit for bit, as one that was not: a checkpoint
// holds weights, moments, loss scale, the order's cursor and the sums behind the next log line.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "apps/train/journal.h"
#include "apps/train/loaders.h"
#include "apps/train/progress.h"
#include "apps/train/run_folder.h"
#include "apps/train/trainer.h"
#include "engine/files/checkpoint.h"
#include "models/forecast/forecaster.h"

namespace isobar {

class TrainingRun {
 public:
  // folder: prepared. checkpoint: where to go on from; none: from the beginning.
  TrainingRun(RunFolder& folder, TrainingData& data, Forecaster& forecaster, Trainer& trainer,
              const std::optional<Checkpoint>& checkpoint);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  enum class End { finished, stopped };
  // Trains up to num_iters, or until a stop signal has come (apps/train/signals.h), during a validation too; a checkpoint of the last iteration is there in both cases.
  End train();

 private:
  void restore(const Checkpoint& checkpoint);
  void step();
  void validate();
  void make_up_for_validation();
  void save();
  bool finish();
  void write_files(const std::filesystem::path& folder) const;
  nlohmann::ordered_json state() const;

  std::int64_t epoch() const;  // of the last iteration, from 1; 0 before the first
  bool due(std::int64_t every) const;
  bool at_end() const { return trainer_.iteration() >= config_.num_iters; }
  void mark_profiler_window() const;
  double wall_seconds() const;

  using Clock = std::chrono::steady_clock;

  const Config& config_;
  RunFolder& folder_;
  TrainingData& data_;
  Forecaster& forecaster_;
  Trainer& trainer_;

  // Of the run, so far; kept in checkpoints.
  Tally epoch_;  // of the current or just ended epoch
  std::optional<double> best_loss_;
  bool validation_is_owed_ = false;  // the validation of this iteration was given up for a stop signal
  double earlier_seconds_ = 0;       // of processes before this one

  // Of this process.
  std::int64_t first_iteration_;
  Clock::time_point start_ = Clock::now();
  Tally since_line_, total_;
  std::int64_t saved_iteration_ = -1;
  std::optional<Validation> validation_;  // of the current iteration
  CheckpointStore store_;
  RunRecord record_;
  Progress progress_;
};

}  // namespace isobar
