// The parts of a task that a pipeline carries out on different ranks: the input of the first stage, and what is made of
// the output of the last one. For a batch, loss_of(run_stages(input_of, pass_over)) is what Task::loss gives.
#pragma once

#include "models/network.h"
#include "models/task.h"

namespace isobar {

class StagedTask {
 public:
  StagedTask() = default;
  virtual ~StagedTask() = default;
  StagedTask(const StagedTask&) = delete;
  StagedTask& operator=(const StagedTask&) = delete;

  virtual const Network& staged_network() const = 0;
  // The tensor that the first stage takes; on any rank, for its shape.
  virtual Tensor input_of(const Batch& batch) const = 0;
  // The same pass over the samples of a batch; on any rank.
  virtual Pass pass_over(const Batch& batch, const Pass& pass) const { return pass.over(batch_size(batch)); }
  // How many of the last stages loss_of() carries out itself.
  virtual std::int64_t stages_of_loss(const Batch&) const { return 0; }
  // As Task::loss, of the tensor that the last of the other stages gives.
  virtual Tensor loss_of(const Tensor& output, const Batch& batch) const = 0;
  // As Task::score, of the tensor that the last of all stages gives.
  virtual void score_output(const Tensor& output, const Batch& batch, Metrics& metrics) const = 0;
};

}  // namespace isobar
