// The parts of a task that a pipeline carries out on different ranks: the input of the first stage, and what is made of
// the output of the last one. For a batch, loss(run_stages(input)) is what Task::loss gives.
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
  // As Task::loss, of the tensor that the last stage gives.
  virtual Tensor loss_of(const Tensor& output, const Batch& batch) const = 0;
  // As Task::score, of the same tensor.
  virtual void score_output(const Tensor& output, const Batch& batch, Metrics& metrics) const = 0;
};

}  // namespace isobar
