// The plan of an update: in which order the passes of its parts are made. Both plans here make one part after the
// other, forward and backward; that of a pipeline (apps/train/pipeline.h) has several parts under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "apps/train/passes.h"
#include "apps/train/step_parts.h"

namespace isobar {

// Called when the device is busy: starts to read the batch of the next part, of this update or of the next one.
using ReadAhead = std::function<void(bool for_next_step)>;

class StepPlan {
 public:
  virtual ~StepPlan() = default;
  // All passes of an update: the gradients add up in the parameters, the losses in `passes`.
  virtual void run(Passes& passes, StepParts& parts, const ReadAhead& read_ahead) = 0;
  // The next batches have other tensors than those before.
  virtual void begin_stage() {}
  // Before and after a validation: gives free memory of the device back, if updates keep memory apart from the pool.
  virtual void trim(Device device) { static_cast<void>(device); }
};

// Parts in turn. `is_captured`: the passes of a whole batch are recorded as a CUDA graph and launched from then on.
std::unique_ptr<StepPlan> make_step_plan(bool is_captured);

// Takes the next part, whose share `passes` has then.
std::shared_ptr<const LoadedBatch> take_part(Passes& passes, StepParts& parts, std::int64_t number);

// Forward and backward of all parts in turn. `all_ranks_have_last`: no rank is without a sample of the last part.
void run_in_turn(Passes& passes, const std::function<Batch(std::int64_t part)>& batch_of, bool all_ranks_have_last,
                 const ReadAhead& read_ahead);

}  // namespace isobar
