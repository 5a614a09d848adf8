// The forward and backward passes of an update. In which order they are made is a plan (apps/train/step_plan.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/train/loaders.h"
#include "comm/gradients.h"
#include "comm/parallel.h"
#include "engine/readback.h"
#include "engine/tape.h"
#include "models/compute_options.h"
#include "models/task.h"

namespace isobar {

class Passes {
 public:
  // Refers to all of these but the options. `reducer`: adds up the gradients of several ranks, or null. `is_captured`:
  // what changes from iteration to iteration lies in memory, where a CUDA graph reads it.
  Passes(Task& task, const BatchOptions& batch, const ComputeOptions& compute, const Parallel& parallel,
         GradientReducer* reducer, bool is_captured);

  // Before the passes of an iteration. `gradient_scale`: the factor that the summed gradients will carry. The passes of
  // the last iteration have ended on the device. parts: of this iteration, at most grad_accumulation; none: so many.
  void begin(std::int64_t iteration, double gradient_scale, std::optional<std::int64_t> parts = {});
  // A part's share of the whole batch (StepPart::share), before its pass.
  void set_share(std::int64_t part, double share);

  // Gradients are overwritten by the next pass, and added to by those after it.
  void begin_gradients();
  // Forward and backward of one part. With `begin_sums` sums of gradients over ranks may begin before the backward pass
  // ends: it is the last part, and all ranks have one.
  void run(const Batch& batch, std::int64_t part, bool begin_sums);
  // The gradients are those of the batch; sums over ranks have begun.
  void end_gradients(bool have_sums_begun);

  // The pieces of run(), for plans that have several parts under way. Of a part's own passes:
  Pass pass_of(std::int64_t part) const;
  void keep_loss(std::int64_t part, const Tensor& loss) { losses_.slice(part, {1}).copy_from(loss.detach()); }
  Tensor upstream_of(std::int64_t part) const { return upstream_.slice(part, {1}); }
  // Sums of gradients over ranks may begin while the last part is passed backward: before the passes of an update, and
  // before each backward pass of that part.
  void begin_sums();
  void watch_sums(Tape& tape);

  void begin_reading_losses() { losses_read_.begin(); }
  // The losses of all parts by their shares, times the ranks of dp: the mean over these ranks is the loss of the global
  // batch. The host has waited for the device.
  double sum_of_losses() const;

  std::int64_t parts() const { return parts_; }
  Device device() const { return task_.device(); }

 private:
  DropoutKey masks_of(std::int64_t part) const;
  std::uint64_t first_stream() const;  // of this iteration's masks

  Task& task_;
  const BatchOptions batch_;
  const Parallel& parallel_;
  GradientReducer* reducer_;
  std::uint64_t seed_;
  std::int64_t iteration_ = 0, parts_ = 1;
  double gradient_scale_ = 1;
  Tensor losses_;  // [parts]
  Readback losses_read_;
  std::vector<double> shares_;  // [parts]
  Tensor upstream_;             // [parts]: dL/dL times the gradient scale, by the part's share
  // If captured: first_stream(), [1], 8 bytes.
  Tensor stream_, stream_on_host_;
};

}  // namespace isobar
