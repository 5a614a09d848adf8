// Learning-rate schedules, as one family, and the rules that scale a rate with the batch.
//
// A decay goes from lr0 to `end`. It is at position d of its length L; r = d / L is 0 to 1:
//
//   cosine               end + (lr0 - end) · ½(1 + cos πr)
//   linear               end + (lr0 - end) · (1 - r)
//   constant             lr0
//   inverse_square_root  max(end, lr0 · √max(W, 1) / √max(n, 1))
//   wsd                  end + (lr0 - end) · s(q): s is 1 before the last `wsd_iters` iterations; q is the part of
//                        these that is done; s is 1 - q, ½(1 + cos πq), 2 · 0.5^q - 1 or 1 - √q
//   step                 max(end, lr0 · gamma^⌊d / every⌋)
//
// Before it, a warmup of W iterations goes from `warmup_lr` to lr0. After t updates, and with T = decay_iters:
//
//   rule       n      warmup                               d      L
//   tutorial   t      (t + 1)/W while that is smaller      n      T        NERSC's weather tutorial (LambdaLR)
//   unet       t + 1  n/W while n < W                      n - W  T        NERSC's U-Net tutorial: never reaches `end`
//   megatron   t      n/W while n <= W                     n - W  T - W    Megatron-LM: update 1 has warmup_lr
//   nanogpt    t      (n + 1)/(W + 1) while n < W          n - W  T - W    nanoGPT
//
// With `unet` a run warms up only where its batch is larger than the reference's, and batch_lr_scaling is not none.
//
// After its length a decay stays at `end` (constant and step continue). If lr_step is `epoch`, the decay uses the t of
// the epoch's beginning; the warmup counts iterations. The formulas are those of PyTorch's CosineAnnealingLR (closed
// form), LinearLR, StepLR and ExponentialLR. Megatron does not count skipped updates, the others do.
//
// With decay_samples, t, W, T and wsd count samples of updates that were applied, as Megatron-LM does: W need not be a
// multiple of the batch, which may grow.
//
// Weight decay has a schedule too. Of N samples or updates of the run, after n of them, with r = n / N:
//
//   constant  weight_decay
//   linear    weight_decay + (end_weight_decay - weight_decay) · r
//   cosine    weight_decay + (end_weight_decay - weight_decay) · ½(1 + cos π(1 - r))        behind N: end_weight_decay
//
//   source  NVIDIA/Megatron-LM, its schedule of optimizer parameters
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/keys.h"

namespace isobar {

enum class ScheduleKind : std::uint8_t { cosine, constant, linear, inverse_square_root, wsd, step };
enum class WarmupRule : std::uint8_t { tutorial, unet, megatron, nanogpt };
enum class WsdDecay : std::uint8_t { linear, cosine, exponential, minus_sqrt };
enum class RateStep : std::uint8_t { iteration, epoch };

struct LearningRate {
  ScheduleKind kind = ScheduleKind::cosine;
  double base = 5e-4;  // lr0
  double end = 0;
  WarmupRule rule = WarmupRule::tutorial;
  double warmup = 0;  // W
  double warmup_lr = 0;
  std::int64_t steps = 1;     // T
  std::int64_t interval = 1;  // iterations in which the decay is constant: 1, or those of an epoch
  double gamma = 0.1;         // for step
  std::int64_t every = 1;     // for step, in iterations
  WsdDecay wsd = WsdDecay::exponential;
  std::int64_t wsd_iters = 1;
  bool by_samples = false;  // W, T and wsd_iters are samples, and so is t

  // The rate of the next update, after t updates, or updates of t samples.
  double at(std::int64_t t) const;
  // Whether t counts updates that were skipped because a gradient overflowed in fp16.
  bool counts_skipped() const { return rule != WarmupRule::megatron; }

 private:
  double decayed(std::int64_t t) const;
};

enum class WeightDecayKind : std::uint8_t { constant, linear, cosine };

struct WeightDecay {
  WeightDecayKind kind = WeightDecayKind::constant;
  double begin = 0, end = 0;
  std::int64_t steps = 1;  // N

  double at(std::int64_t n) const;
};

enum class BatchScaling : std::uint8_t { none, sqrt, linear };

// lr · 1, lr · √(batch/reference) or lr · batch/reference.
double scaled_rate(double lr, BatchScaling rule, std::int64_t batch, std::int64_t reference_batch);

template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array names{"cosine", "constant", "linear", "inverse_square_root", "wsd", "step"};
};
template <>
struct EnumNames<WarmupRule> {
  static constexpr std::array names{"tutorial", "unet", "megatron", "nanogpt"};
};
template <>
struct EnumNames<WsdDecay> {
  static constexpr std::array names{"linear", "cosine", "exponential", "minus_sqrt"};
};
template <>
struct EnumNames<RateStep> {
  static constexpr std::array names{"iteration", "epoch"};
};
template <>
struct EnumNames<WeightDecayKind> {
  static constexpr std::array names{"constant", "linear", "cosine"};
};
template <>
struct EnumNames<BatchScaling> {
  static constexpr std::array names{"none", "sqrt", "linear"};
};

struct ScheduleOptions {
  std::int64_t num_iters = 30000;
  std::optional<std::int64_t> num_epochs = {};  // null: num_iters is used
  double lr = 5e-4;
  ScheduleKind lr_schedule = ScheduleKind::cosine;
  double end_lr = 0;
  RateStep lr_step = RateStep::iteration;
  std::optional<std::int64_t> decay_iters = {};   // null: num_iters
  std::optional<std::int64_t> decay_epochs = {};  // null: decay_iters is used
  std::int64_t warmup = 0;
  double warmup_lr = 0;
  WarmupRule warmup_rule = WarmupRule::tutorial;
  double lr_gamma = 0.1;
  std::int64_t lr_decay_every = 1;  // in iterations or epochs: see lr_step
  std::int64_t wsd_iters = 1;
  WsdDecay wsd_decay = WsdDecay::exponential;
  // In samples, in the place of decay_iters, warmup and wsd_iters; null: these count.
  std::optional<std::int64_t> decay_samples = {};
  double warmup_samples = 0;
  std::int64_t wsd_samples = 1;
  BatchScaling batch_lr_scaling = BatchScaling::none;
  std::int64_t reference_batch_size = 16;

  KeyTable keys();

  // num_iters, unless num_epochs decides.
  std::optional<std::int64_t> iterations() const { return num_epochs ? std::nullopt : std::optional(num_iters); }

  // The same options for a run with this number of updates an epoch: num_iters follows from num_epochs, and decay_iters
  // from decay_epochs, which become null. Throws Error if there are too many iterations, or if other keys do not fit
  // that length.
  ScheduleOptions of_run(std::int64_t iterations_per_epoch) const;

  // For a run with this number of samples an update, and this number of updates an epoch.
  LearningRate learning_rate(std::int64_t global_batch_size, std::int64_t iterations_per_epoch = 1) const;

 private:
  void check_samples(const KeyOrigins& origins) const;
};

}  // namespace isobar
