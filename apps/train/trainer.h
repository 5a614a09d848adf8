// Training: one update, one validation, and the state that a checkpoint holds. The loop around it is apps/train/run.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "apps/train/comm_report.h"
#include "apps/train/loaders.h"
#include "apps/train/passes.h"
#include "apps/train/pipeline.h"
#include "apps/train/step_plan.h"
#include "comm/gradients.h"
#include "comm/parallel.h"
#include "engine/files/flat_tensors.h"
#include "engine/optimizer.h"
#include "engine/schedule.h"
#include "models/compute_options.h"
#include "models/task.h"

namespace isobar {

struct StepResult {
  // Of this iteration, before its update: this rank's sum times the ranks of dp, divided by the weight of the global
  // batch. So the mean over all ranks that have a loss (Parallel::ranks_with_loss) is that of the global batch; on the
  // others, stages of a pipeline that are not the last, it is 0.
  double loss = 0;
  double lr = 0;                            // used by this update
  double grad_norm = 0;                     // before clipping
  double loss_scale = 1;                    // used by this iteration
  double gradient_scale = 1;                // that the summed gradients carry
  double data_seconds = 0;                  // that it waited for its batches
  std::int64_t missing = 0;                 // samples that its batch lacked of a whole one
  std::int64_t uncounted = 0;               // samples of its batch without weight (Task::describe_uncounted)
  bool applied = true;                      // false: fp16 gradients overflowed, the weights are as they were
  std::int64_t samples = 0;                 // of its batch
  double next_lr = 0, next_loss_scale = 1;  // of the next update
  // As this rank's host sees them: of the passes, until sums of gradients have ended, and of the update.
  double pass_seconds = 0, reduce_seconds = 0, update_seconds = 0;
};

// Everything that decides an update, beside the task.
struct TrainerOptions {
  BatchOptions batch = {};
  OptimizerOptions optimizer = {};
  ScheduleOptions schedule = {};
  ComputeOptions compute = {};
  std::int64_t iterations_per_epoch = 1;  // for rates that go by epochs
  LossScaleOptions loss_scale = {};
};

// In the metadata of a file of moments (Trainer::take_moments).
inline constexpr const char* kUpdatesOfMoments = "isobar.updates";

class Trainer {
 public:
  // Every rank of `parallel` makes one, and makes its steps at the same time; of parts of the model that several ranks
  // hold, the first one's weights become all theirs. Error where cuda_graph cannot be had: on a CPU, with several
  // ranks; and where a pipeline of ranks cannot carry out the task, or cut its batches.
  Trainer(Task& task, const TrainerOptions& options, Parallel parallel = {});
  ~Trainer();

  // One iteration: forward and backward over the grad_accumulation parts of a batch, then the update. A part counts by
  // its weight (Task::weight), and may be empty. A loss or gradient that is not finite is an error (fp16: the loss
  // scale is lowered and the update skipped), and so is a batch in which nothing counts. The host waits for the device
  // once, at the end; where weights are not numbers of samples it has all parts first, and waits for their labels too.
  StepResult step(
      const NextBatch& next, const ReadAhead& read_ahead = [](bool) {});

  // The batches of the next steps have other tensors than those before. The host has waited for the last step.
  void begin_stage() { plan_->begin_stage(); }

  std::int64_t parts() const { return passes_.parts(); }  // of an update

  // Host seconds that this rank has waited for other stages of a pipeline; 0 without one, and on a GPU.
  double waited_seconds() const { return pipeline_ ? pipeline_->waited_seconds() : 0; }

  // The passes of a step, with its first batch, and those of a validation, with its first and last ones, for what
  // libraries do when they are first asked. Nothing that a run will need is changed.
  void rehearse(Loaders& loaders);

  // What this rank holds of weights, gradients and moments: as numbers, and as it is.
  RankHolds holds() const;

  // The gradients of the last step, summed over the ranks and before clipping, times its gradient_scale; as optimizers
  // that are sharded have them, of the elements that this rank updates.
  FlatBuffer gradients() const;

  // Scores a set, every sample once, on all ranks together. False where `stop` was true on one of them between two
  // batches. scored: called with the samples that all ranks have scored so far, about.
  bool judge(
      EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
      const std::function<void(std::int64_t samples)>& scored = [](std::int64_t) {}) const;
  // The same of the validation set, whose loss is an error where it is not finite.
  bool validate(
      EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
      const std::function<void(std::int64_t samples)>& scored = [](std::int64_t) {}) const;

  // While one lives the averaged weights (OptimizerOptions::ema) are the model's, and a step is an Error; one within
  // another's life changes nothing, nor does one before the first update or of a run that keeps no average. All ranks
  // make it together.
  class AveragedWeights {
   public:
    explicit AveragedWeights(Trainer& trainer);
    // With an error on its way the weights stay as they are; ranks that do not answer are an Error here too.
    ~AveragedWeights() noexcept(false);
    AveragedWeights(const AveragedWeights&) = delete;
    AveragedWeights& operator=(const AveragedWeights&) = delete;

   private:
    Trainer* trainer_ = nullptr;  // null: nothing was changed
    int exceptions_ = 0;
  };

  // Error naming the first weight or moment that is not finite: what an update does is seen by the next step's loss,
  // but must not be validated or kept before.
  void check_finite() const;

  // Error naming a tensor of weights or moments, and two ranks that should hold the same of it and do not: replicas of
  // the whole model, of what tensor-parallel ranks all hold, and of moments where the optimizer is not sharded.
  void check_replicas() const;

  std::int64_t iteration() const { return iteration_; }  // iterations done
  double lr_after() const;                               // of the next

  // Of all weights together, and how many elements of the last step's gradients are 0; all ranks call them.
  double weights_norm() { return optimizer_.weights_norm(); }
  double gradient_zeros() { return optimizer_.gradient_zeros(); }

  // Moments in the layout and dtype of the weights, named "m.NAME" and "v.NAME", whole whatever ranks hold them, of the
  // parameters that are not frozen: all ranks call it, and the first one writes; each reads what it holds. And the
  // numbers beside them. Where an average is
  // kept, so are the weights themselves, as "w.NAME": the model's weights have to be those of its file, the averaged
  // ones, when it is read.
  void write_optimizer(const std::filesystem::path& path) const;
  void read_optimizer(const std::filesystem::path& path);
  // Before the first step: Adam goes on from moments of another run, "m.NAME" and "v.NAME" of every parameter that is
  // trained, which a tool has written (tools/megatron_checkpoint.py). The number of their updates, for the bias
  // corrections, is in the file's metadata, as kUpdatesOfMoments. Rates, decay and loss scale begin anew. Error naming
  // what the file lacks.
  void take_moments(const std::filesystem::path& path);
  nlohmann::ordered_json state() const;
  // Error naming the key that is missing or says what cannot be.
  void set_state(const nlohmann::ordered_json& state);

 private:
  bool is_captured() const;  // Error if a step cannot be captured as a graph
  double gradient_scale() const;
  void check_update(const StepResult& result);
  Optimizer make_optimizer();
  FlatBuffer of_optimizer(const char* prefix, const Tensor& values) const;
  FlatBuffer trained_weights() const;
  FlatBuffers moments() const;  // with the prefixes of their names
  FlatBuffers weights_and_moments() const;
  void swap_average();

  Task& task_;
  const TrainerOptions options_;
  const Parallel parallel_;
  std::unique_ptr<GradientReducer> reducer_;  // null on a single rank
  Optimizer optimizer_;
  LearningRate lr_;
  WeightDecay decay_;
  std::int64_t applied_samples_ = 0;  // of the updates that were applied
  std::int64_t earlier_updates_ = 0;  // of Adam's, those that the moments had before this run
  LossScale loss_scale_;
  std::int64_t iteration_ = 0;
  bool is_averaged_ = false;  // the model's weights are the averaged ones, and these lie in their place
  Passes passes_;
  std::unique_ptr<Pipeline> pipeline_;  // null: this rank has the whole network
  std::unique_ptr<StepPlan> plan_;
};

}  // namespace isobar
