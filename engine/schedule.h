// Learning-rate schedules, and the rules that scale a rate with the batch.
//
//   cosine            lr(t) = lr0 · ½(1 + cos(πt/T))                                     t = 0 … T updates done
//   with warmup W     lr(t) = lr0 · min((t + 1)/W, ½(1 + cos(πt/T)))
//   constant          lr(t) = lr0 (· min((t + 1)/W, 1) with warmup)
//
// as the NERSC tutorial computes them (PyTorch's CosineAnnealingLR in closed form; LambdaLR with warmup).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/keys.h"

namespace isobar {

enum class ScheduleKind : std::uint8_t { cosine, constant };

struct LearningRate {
  ScheduleKind kind = ScheduleKind::cosine;
  double base = 5e-4;
  std::int64_t warmup = 0;
  std::int64_t steps = 1;

  // The rate used by update t + 1, when t updates are done.
  double at(std::int64_t t) const;
};

enum class BatchScaling : std::uint8_t { none, sqrt, linear };

// lr · 1, √(batch/reference) or batch/reference.
double scaled_rate(double lr, BatchScaling rule, std::int64_t batch, std::int64_t reference_batch);

template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array names{"cosine", "constant"};
};
template <>
struct EnumNames<BatchScaling> {
  static constexpr std::array names{"none", "sqrt", "linear"};
};

struct ScheduleOptions {
  std::int64_t num_iters = 30000;
  double lr = 5e-4;
  ScheduleKind lr_schedule = ScheduleKind::cosine;
  std::int64_t warmup = 0;
  BatchScaling batch_lr_scaling = BatchScaling::none;
  std::int64_t reference_batch_size = 16;

  KeyTable keys();

  // Of a run with this many samples an update.
  LearningRate learning_rate(std::int64_t global_batch_size) const;
};

}  // namespace isobar
