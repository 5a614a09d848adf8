#include "apps/train/passes.h"

#include <cmath>
#include <cstring>

#include "engine/tape.h"
#include "kernels/common/run.h"
#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"

namespace isobar {

Passes::Passes(Task& task, const BatchOptions& batch, const ComputeOptions& compute, const Parallel& parallel,
               GradientReducer* reducer, bool is_captured)
    : task_(task),
      batch_(batch),
      parallel_(parallel),
      reducer_(reducer),
      seed_(static_cast<std::uint64_t>(compute.seed)),
      losses_(Tensor::zeros({batch.grad_accumulation}, task.parameters().dtype(), task.device())),
      losses_read_(losses_),
      shares_(static_cast<std::size_t>(batch.grad_accumulation), 1.0),
      upstream_(Tensor::empty({batch.grad_accumulation}, losses_.dtype(), losses_.device())) {
  if (!is_captured) return;
  stream_ = Tensor::empty({1}, DType::fp64, task.device());  // 8 bytes
  stream_on_host_ = Tensor::over(transfer_memory(stream_.bytes(), task.device()), {1}, DType::fp64);
}

void Passes::begin(std::int64_t iteration, double gradient_scale, std::optional<std::int64_t> parts) {
  iteration_ = iteration;
  parts_ = parts.value_or(batch_.grad_accumulation);
  gradient_scale_ = gradient_scale;
  if (!stream_.defined()) return;
  const std::uint64_t stream = first_stream();
  std::memcpy(stream_on_host_.data(), &stream, sizeof stream);
  gpu::copy(stream_.data(), stream_on_host_.data(), sizeof stream, device(), current_stream());
}

// The mean over parts and ranks is made here, so that all that follows are sums. The upstream lies in memory, where a
// captured step finds that of this iteration.
void Passes::set_share(std::int64_t part, double share) {
  shares_[static_cast<std::size_t>(part)] = share;
  const Tensor upstream = upstream_.slice(part, {1});
  ISOBAR_RUN(upstream.device(), fill,
             {.n = 1, .dtype = upstream.dtype(), .value = gradient_scale_ / share, .y = upstream.data()},
             current_stream());
}

void Passes::begin_gradients() {
  task_.parameters().begin_step();
}

// Samples r, r + R, ... of the part that all ranks share (ReadingRank).
Pass Passes::pass_of(std::int64_t part) const {
  return Pass::training(masks_of(part), {parallel_.dp.rank(), parallel_.dp.size()});
}

void Passes::begin_sums() {
  if (reducer_ != nullptr) reducer_->begin_after_backward();
}

void Passes::watch_sums(Tape& tape) {
  if (reducer_ != nullptr) reducer_->watch(tape);
}

void Passes::run(const Batch& batch, std::int64_t part, bool begin_sums) {
  const Pass pass = pass_of(part);
  Tape tape;
  Tensor loss;
  {
    const gpu::Range range("forward");
    const MemoryScope memory("activations");
    const TapeScope recording(tape);
    loss = task_.loss(batch, pass);
  }
  keep_loss(part, loss);
  const gpu::Range range("backward");
  if (reducer_ != nullptr && begin_sums) reducer_->begin(tape);
  tape.backward(loss, upstream_of(part));
}

// If a rank had no sample of the last part, all ranks begin their sums here, or they would begin them in different
// orders.
void Passes::end_gradients(bool have_sums_begun) {
  if (reducer_ != nullptr && !have_sums_begun) reducer_->begin_after_backward();
  task_.parameters().finish_gradients();
}

// What counts nothing is not read: it may be NaN, or of an earlier step.
double Passes::sum_of_losses() const {
  double sum = 0;
  const std::vector<double> losses = losses_read_.values();
  for (std::size_t part = 0; part < static_cast<std::size_t>(parts_); ++part)
    if (std::isfinite(shares_[part])) sum += losses[part] / (shares_[part] / parallel_.dp.size());
  return sum;
}

// Masks of different iterations and parts come from streams of their own (models/pass.h: at least 2^16 apart). In a
// graph the iteration's part of the number lies in memory, as the factor of the loss does.
DropoutKey Passes::masks_of(std::int64_t part) const {
  const auto of_part = static_cast<std::uint64_t>(part) << 16;
  if (!stream_.defined()) return {seed_, first_stream() + of_part};
  return {seed_, of_part, static_cast<const std::uint64_t*>(stream_.data())};
}

std::uint64_t Passes::first_stream() const {
  return static_cast<std::uint64_t>(iteration_ * batch_.grad_accumulation) << 16;
}

}  // namespace isobar
