#include "apps/train/step_plan.h"

#include <optional>
#include <vector>

#include "kernels/cuda/runtime.h"

namespace isobar {
namespace {

class SerialPlan : public StepPlan {
 public:
  void run(Passes& passes, StepParts& parts, const ReadAhead& read_ahead) override {
    run_in_turn(
        passes, [&](std::int64_t part) { return on_device(take_part(passes, parts, part)->tensors, passes.device()); },
        parts.all_ranks_have_last(), read_ahead);
  }
};

// The graph reads `batches`, one a part, which are filled before every launch. The first step of a process runs as it
// is, so that libraries have loaded and chosen their algorithms before one is captured. An incomplete batch does too:
// its shapes are others. So does the first step of a stage, whose shapes are others from then on.
class CapturedPlan : public StepPlan {
 public:
  void run(Passes& passes, StepParts& parts, const ReadAhead& read_ahead) override {
    if (has_run_ && parts.missing() == 0)
      replay(passes, parts, read_ahead);
    else
      serial_.run(passes, parts, read_ahead);
    has_run_ = true;
  }

  void begin_stage() override {
    graph_.reset();
    batches_.clear();
    has_run_ = false;
  }

  // What a graph holds between two steps, and what other passes leave in the pool, is never needed at once.
  void trim(Device device) override {
    if (graph_) gpu::trim_memory(device.index);
  }

 private:
  void replay(Passes& passes, StepParts& parts, const ReadAhead& read_ahead) {
    if (graph_)
      for (std::size_t part = 0; part < batches_.size(); ++part)
        copy_into(batches_[part], take_part(passes, parts, static_cast<std::int64_t>(part))->tensors);
    else
      capture(passes, parts);
    graph_->launch(current_stream());
    read_ahead(/*for_next_step=*/true);
  }

  // A graph has memory of its own: the pool gives back what earlier steps left in it, or the device would hold the
  // activations twice.
  void capture(Passes& passes, StepParts& parts) {
    std::vector<Batch> batches;
    for (std::int64_t part = 0; part < passes.parts(); ++part)
      batches.push_back(to_device(take_part(passes, parts, part)->tensors, passes.device()));
    gpu::synchronize(passes.device(), current_stream());
    gpu::trim_memory(passes.device().index);
    gpu::Capture recording(current_stream());
    run_in_turn(
        passes, [&](std::int64_t part) { return batches[static_cast<std::size_t>(part)]; }, true, [](bool) {});
    graph_ = recording.end();
    batches_ = std::move(batches);
  }

  SerialPlan serial_;
  bool has_run_ = false;  // this process has made a step of this stage
  std::vector<Batch> batches_;
  std::optional<gpu::Graph> graph_;
};

}  // namespace

std::shared_ptr<const LoadedBatch> take_part(Passes& passes, StepParts& parts, std::int64_t number) {
  StepPart part = parts.next();
  passes.set_share(number, part.share);
  return part.loaded;
}

std::unique_ptr<StepPlan> make_step_plan(bool is_captured) {
  if (is_captured) return std::make_unique<CapturedPlan>();
  return std::make_unique<SerialPlan>();
}

void run_in_turn(Passes& passes, const std::function<Batch(std::int64_t part)>& batch_of, bool all_ranks_have_last,
                 const ReadAhead& read_ahead) {
  passes.begin_gradients();
  for (std::int64_t part = 0; part < passes.parts(); ++part) {
    const Batch batch = batch_of(part);
    const bool is_last = part + 1 == passes.parts();
    if (batch_size(batch) > 0) passes.run(batch, part, is_last && all_ranks_have_last);
    read_ahead(/*for_next_step=*/is_last);
  }
  passes.end_gradients(all_ranks_have_last);
}

}  // namespace isobar
