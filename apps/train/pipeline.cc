#include "apps/train/pipeline.h"

#include <utility>

#include "apps/train/clock.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"

namespace isobar {
namespace {

// The gradient of a leaf, or zeros where none has come.
Tensor gradient_of(const Tensor& leaf) {
  const Tensor& gradient = leaf.leaf()->grad;
  if (!leaf.leaf()->touched)
    ISOBAR_RUN(gradient.device(), fill,
               {.n = gradient.numel(), .dtype = gradient.dtype(), .value = 0, .y = gradient.data()}, current_stream());
  return gradient;
}

}  // namespace

void check_pipeline(const Task& task, const BatchOptions& batch, const Parallel& parallel) {
  const int ranks = parallel.pp.size();
  if (ranks == 1) return;
  ISOBAR_CHECK(task.staged() != nullptr, "--pipeline-parallel ", ranks, ": a ", task.network(),
               " is not trained in stages; a language model is");
  pipeline_moves(0, ranks, static_cast<int>(batch.grad_accumulation), static_cast<int>(parallel.pipeline.chunks));
}

Pipeline::Pipeline(const StagedTask& task, const Parallel& parallel, Device device)
    : task_(task),
      parallel_(parallel),
      share_(task.staged_network().share()),
      pieces_(share_ == nullptr ? 1 : share_->pieces()),
      side_(parallel.world.may_overlap() ? device : Device{}) {}

int Pipeline::piece_of(int chunk) const {
  return share_ == nullptr ? 0 : share_->piece_of(chunk);
}

Part Pipeline::stages_of(int chunk) const {
  return share_ == nullptr ? Part{0, std::ssize(task_.staged_network().stages())} : share_->stages_of(chunk);
}

const PipelineSteps& Pipeline::steps_of(std::int64_t parts, bool with_backward) {
  const auto [found, is_new] = steps_.try_emplace({parts, with_backward});
  if (is_new) {
    const int ranks = parallel_.pp.size(), chunks = share_ == nullptr ? 1 : share_->chunks();
    const auto all = with_backward ? training_steps(ranks, static_cast<int>(parts), chunks)
                                   : scoring_steps(ranks, static_cast<int>(parts), chunks);
    found->second = all[static_cast<std::size_t>(parallel_.pp.rank())];
  }
  return found->second;
}

// A rank waits for an exchange only when it needs what it has received. Exchanges end in the order in which they began,
// so what earlier ones have sent is free then too.
Tensor Pipeline::take_arrived(const Move& move) {
  const auto found = arrived_.find({move.kind, {move.chunk, move.part}});
  ISOBAR_CHECK(found != arrived_.end(), "pipeline: part ", move.part, " of chunk ", move.chunk, " has not arrived");
  const auto [tensor, number] = found->second;
  arrived_.erase(found);
  finish_exchanges(number + 1);
  return tensor;
}

void Pipeline::finish_exchanges(std::size_t until) {
  for (; finished_ < until; ++finished_) {
    running_.front().pending.wait();
    running_.pop_front();
  }
}

// What the other rank sends for a move of this one has the shape that the piece before gives, or the shape of this
// piece's own output.
Tensor Pipeline::room_for(const Move& move, const BatchOfPart& batch_of) {
  if (move.kind == Move::Kind::backward) {
    const Tensor& output = under_way_.at({move.chunk, move.part}).output;
    return Tensor::empty(output.shape(), output.dtype(), output.device());
  }
  const Tensor input = task_.input_of(batch_of(move.part));
  return share_->room_behind(piece_of(move.chunk) - 1, input.shape(), input.dtype(), input.device());
}

void Pipeline::exchange(const PipelineStep& step, const BatchOfPart& batch_of) {
  Tensor sent, room;
  if (step.send) {
    auto& made = step.send->kind == Move::Kind::forward ? outputs_ : input_gradients_;
    const auto found = made.find({step.send->chunk, step.send->part});
    if (found != made.end()) {  // else the part has no samples here, nor on the other rank
      sent = found->second;
      made.erase(found);
    }
  }
  if (step.receive && batch_size(batch_of(step.receive->part)) > 0) room = room_for(*step.receive, batch_of);
  if (!sent.defined() && !room.defined()) return;
  const Clock::time_point start = Clock::now();
  const Communicator& link = parallel_.link_to(step.peer);
  const int peer = parallel_.rank_in_link(step.peer);
  running_.push_back({side_.run([&] {
                        link.send_receive(sent, sent.defined() ? peer : Call::kNoRank, room,
                                          room.defined() ? peer : Call::kNoRank);
                      }),
                      sent});
  if (room.defined()) arrived_[{step.receive->kind, {step.receive->chunk, step.receive->part}}] = {room, begun_};
  ++begun_;
  waited_ += seconds_since(start);
}

Tensor Pipeline::input_of(const Move& move, const Batch& batch) {
  return is_first_piece(move.chunk) ? task_.input_of(batch) : take_arrived(move);
}

Tensors Pipeline::run_chunk(int chunk, const Tensor& input, const Batch& batch, const Pass& pass,
                            std::int64_t left_out) const {
  const bool is_joined = share_ != nullptr && share_->follows_block(chunk);
  const auto [begin, end] = stages_of(chunk);
  return run_stages(task_.staged_network().stages(), is_joined ? split_stream(input) : Tensors{input},
                    task_.pass_over(batch, pass), {begin, end - left_out});
}

void Pipeline::forward(const Move& move, Passes& passes, const Batch& batch) {
  UnderWay& part = under_way_[{move.chunk, move.part}];
  Tensor input = input_of(move, batch);
  const gpu::Range range("forward");
  const MemoryScope memory("activations");
  if (!is_first_piece(move.chunk))
    input = part.input = make_leaf(input, Tensor::empty(input.shape(), input.dtype(), input.device()));
  const TapeScope recording(part.tape);
  const std::int64_t left_to_loss = is_last_piece(move.chunk) ? task_.stages_of_loss(batch) : 0;
  const Tensors state = run_chunk(move.chunk, input, batch, passes.pass_of(move.part), left_to_loss);
  if (is_last_piece(move.chunk)) {
    part.output = task_.loss_of(state[0], batch);
    passes.keep_loss(move.part, part.output);
  } else {
    part.output = joined_stream(state);
    outputs_[{move.chunk, move.part}] = part.output.detach();
  }
}

void Pipeline::backward(const Move& move, Passes& passes, bool begin_sums) {
  const auto found = under_way_.find({move.chunk, move.part});
  UnderWay part = std::move(found->second);
  under_way_.erase(found);
  const Tensor upstream = is_last_piece(move.chunk) ? passes.upstream_of(move.part) : take_arrived(move);
  const gpu::Range range("backward");
  if (begin_sums) passes.watch_sums(part.tape);
  if (part.output.tracked()) part.tape.backward(part.output, upstream);
  if (part.input.defined()) input_gradients_[{move.chunk, move.part}] = gradient_of(part.input);
}

void Pipeline::train(Passes& passes, const BatchOfPart& batch_of, bool all_ranks_have_last,
                     const ReadAhead& read_ahead) {
  std::vector<std::optional<Batch>> batches(static_cast<std::size_t>(passes.parts()));
  std::int64_t taken = 0;
  const BatchOfPart taken_batch = [&](std::int64_t part) -> Batch {
    for (; taken <= part; ++taken) {
      batches[static_cast<std::size_t>(taken)] = batch_of(taken);
      read_ahead(/*for_next_step=*/taken + 1 == passes.parts());
    }
    return *batches[static_cast<std::size_t>(part)];
  };
  passes.begin_gradients();
  if (all_ranks_have_last) passes.begin_sums();
  for (const PipelineStep& step : steps_of(passes.parts(), true)) {
    if (!step.move) {
      exchange(step, taken_batch);
      continue;
    }
    const Move& move = *step.move;
    const Batch batch = taken_batch(move.part);
    if (batch_size(batch) == 0) continue;
    if (move.kind == Move::Kind::forward)
      forward(move, passes, batch);
    else
      backward(move, passes, all_ranks_have_last && move.part + 1 == passes.parts());
  }
  finish_exchanges(begun_);
  passes.end_gradients(all_ranks_have_last);
}

void Pipeline::score(std::span<const Batch> batches, const Score& score) {
  const TapeScope off(nullptr);
  const BatchOfPart batch_of = [&](std::int64_t part) { return batches[static_cast<std::size_t>(part)]; };
  for (const PipelineStep& step : steps_of(std::ssize(batches), false)) {
    if (!step.move) {
      exchange(step, batch_of);
      continue;
    }
    const Move& move = *step.move;
    const Batch& batch = batches[static_cast<std::size_t>(move.part)];
    if (batch_size(batch) == 0) continue;
    const Tensors state = run_chunk(move.chunk, input_of(move, batch), batch, Pass(), 0);
    if (is_last_piece(move.chunk))
      score(state[0], batch);
    else
      outputs_[{move.chunk, move.part}] = joined_stream(state);
  }
  finish_exchanges(begun_);
}

namespace {

class PipelinePlan : public StepPlan {
 public:
  explicit PipelinePlan(Pipeline& pipeline) : pipeline_(pipeline) {}

  void run(Passes& passes, StepParts& parts, const ReadAhead& read_ahead) override {
    pipeline_.train(
        passes, [&](std::int64_t part) { return on_device(take_part(passes, parts, part)->tensors, passes.device()); },
        parts.all_ranks_have_last(), read_ahead);
  }

 private:
  Pipeline& pipeline_;
};

}  // namespace

std::unique_ptr<StepPlan> make_pipeline_plan(Pipeline& pipeline) {
  return std::make_unique<PipelinePlan>(pipeline);
}

}  // namespace isobar
