// The loop of a training run: updates, epochs, validation, checkpoints, stopping and going on. Every rank runs it; all
// agree once a step on the loss and on whether to stop, at its end or, with agrees_late, at the end of the next one.
//
// A run that was stopped or killed and resumed makes the same updates, bit for bit, as one that was not: a checkpoint
// holds weights, moments, loss scale, the order's cursor, the sums behind the next log line, and which algorithms a
// GPU's products take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/train/algorithms.h"
#include "apps/train/batch_ramp.h"
#include "apps/train/clock.h"
#include "apps/train/dry_run.h"
#include "apps/train/loaders.h"
#include "apps/train/log_lines.h"
#include "apps/train/megatron_journal.h"
#include "apps/train/run_options.h"
#include "apps/train/run_record.h"
#include "apps/train/trace_file.h"
#include "apps/train/trainer.h"
#include "comm/async_sum.h"
#include "comm/parallel.h"
#include "kernels/common/trace.h"
#include "models/recipe.h"
#include "models/task.h"

namespace isobar {

// What a run is told besides its parts.
struct RunSetup {
  std::filesystem::path folder;
  RunOptions options;
  std::int64_t num_iters = 0;
  std::int64_t global_batch_size = 0;
  std::string precision;                         // for people
  std::string rank_map;                          // for the log of several ranks
  std::vector<std::string> notes;                // on the samples, for the log
  nlohmann::ordered_json config;                 // as config.json has it; kept with the weights
  StepPrediction step = {};                      // of the first rank, in the first stage
  bool autotune = false;                         // a GPU chooses the algorithms of its products by time
  bool comm_report = false;                      // at the end: what ranks told each other, predicted beside counted
  std::vector<TrainingStage> stages = {};        // of the training samples, at least one
  std::vector<CommLedger> traffic_of_step = {};  // with comm_report: of each stage, as predicted for this rank
  bool ranks_differ = false;                     // replicas are not kept equal: gradients are not exchanged
  bool agrees_late = false;                // on losses and stopping, an iteration later, where nobody needs it at once
  BatchRamp ramp = BatchRamp(1);           // of global_batch_size
  std::optional<TraceOptions> trace = {};  // of the first rank
  std::optional<MegatronVoice> megatron = {};  // its lines and tags are told too, and checkpoints have its names
};

// The sets that are judged besides the validation set; null: none.
struct JudgedSets {
  const Dataset* also_valid = nullptr;  // at every validation (OpenedRecipe::also_valid)
  const Dataset* test = nullptr;        // at the end
};

class TrainingRun {
 public:
  // folder: prepared; null on all ranks but the first. loaders: of the stage that the checkpoint is in. checkpoint:
  // where to go on from; none: from the beginning.
  TrainingRun(RunFolder* folder, RunSetup setup, const Parallel& parallel, Loaders& loaders, const JudgedSets& sets,
              Task& task, Trainer& trainer, const std::optional<Checkpoint>& checkpoint);

  // paused: by exit_interval or exit_duration_mins.
  enum class End { finished, stopped, paused };
  // Trains up to num_iters, or until a stop signal has come (apps/train/signals.h), during a validation too, or until
  // the options have it pause; a checkpoint of the last iteration exists in all cases.
  End train();

 private:
  void choose_algorithms();
  void log_notices() const;  // of kernels
  void begin_record(RunFolder& folder, const std::optional<Checkpoint>& checkpoint);
  void restore(const Checkpoint& checkpoint);
  // An iteration that was made, and on whose loss the ranks have still to agree.
  struct Step {
    std::int64_t iteration = 0;
    StepResult result = {};  // with this rank's own loss, until they have
    double seconds = 0;
  };
  bool may_agree_late() const;
  bool pauses();
  void begin_trace();
  void end_trace();
  End stop(const std::string& why, End end);
  void begin_megatron();
  void tell_megatron(const Step& step);
  void tell_megatron_validation();
  std::vector<MegatronTimer> timers_of_interval();
  void agree(std::span<const double> sums);
  void note(const Step& step);
  void report_communication() const;
  void report_uncounted() const;
  void begin_stage();
  bool is_followed() const;
  CommLedger predicted_traffic() const;
  void step();
  void validate();
  void make_up_for_validation();
  void save();
  std::unique_ptr<Working> work_of_first(const char* what) const;
  void save_best();
  bool finish();
  bool score_test();
  using Judging = decltype(&Trainer::judge);
  bool judge(EvaluationSet& set, Metrics& metrics, const std::string& label, Judging by);
  bool run_validation();
  void show_validation(double seconds);
  void log(const std::string& line, bool show = true) const;
  // All ranks take part, and the first one writes; `folder` counts there alone.
  void write_files(const std::filesystem::path& folder) const;
  nlohmann::ordered_json state() const;

  std::int64_t epoch() const { return epoch_of(trainer_.iteration()); }
  std::int64_t epoch_of(std::int64_t iteration) const;  // from 1; 0 before the first
  std::int64_t consumed(std::int64_t iteration) const { return setup_.ramp.samples_of(iteration); }
  std::int64_t samples_per_epoch() const { return loaders_.iterations_per_epoch() * setup_.global_batch_size; }
  bool due(std::int64_t every) const;
  bool at_end() const { return trainer_.iteration() >= setup_.num_iters; }
  // Whether there is a validation set with samples. Without one there are no best weights, and the summary has no
  // validation loss.
  bool validates() const { return loaders_.valid().samples() > 0; }
  void end_unvalidated();
  void mark_profiler_window() const;
  double wall_seconds() const;

  const RunSetup setup_;
  const Parallel& parallel_;
  Loaders& loaders_;
  const Dataset* const test_;
  Task& task_;
  Trainer& trainer_;
  const std::unique_ptr<LogLines> lines_;

  // Of the run, so far; kept in checkpoints.
  Tally epoch_;  // of the current or just ended epoch
  std::optional<double> best_loss_;
  std::int64_t best_iteration_ = -1;  // -1: not known, of a run that began before this was kept
  bool validation_pending_ =
      false;                     // a stop signal interrupted this iteration's validation; the resumed run repeats it
  double earlier_seconds_ = 0;   // of processes before this one
  ChosenAlgorithms algorithms_;  // that its products take on a GPU, with autotune

  // Of this process.
  std::int64_t first_iteration_;
  Clock::time_point start_ = Clock::now();
  Tally since_line_, total_;
  CommLedger traffic_, predicted_;  // of its steps; predicted_ with comm_report only
  double waited_ = 0;               // seconds, of steps of this process: for other stages of a pipeline
  const TrainingStage* stage_;      // that the loaders read
  std::int64_t saved_iteration_ = -1;
  std::optional<Step> step_;             // the last one, until the ranks have agreed on it
  std::optional<AsyncSum> agreement_;    // on it: sum of losses, number of ranks that are to stop
  std::unique_ptr<Metrics> metrics_;     // of the validation set
  std::unique_ptr<EvaluationSet> also_;  // what validations judge besides; null: nothing
  std::unique_ptr<Metrics> also_metrics_;
  std::unique_ptr<Metrics> tested_;  // of the test set, once it is scored
  bool is_validated_ = false;        // metrics_ are those of the current iteration
  bool stop_ = false;                // all ranks have agreed to stop
  std::string pause_;                // why the run pauses; empty: it does not
  std::unique_ptr<Trace> trace_;     // while it is taken
  bool has_traced_ = false;          // it is written
  PhaseSeconds phases_;              // since the last line of Megatron's
  std::optional<RunRecord> record_;  // of the first rank
};

}  // namespace isobar
