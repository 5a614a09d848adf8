// Learning-rate schedules, and the rules that scale a rate with the batch.
//
//   cosine            lr(t) = lr0 · ½(1 + cos(πt/T))                                     t = 0 … T updates done
//   with warmup W     lr(t) = lr0 · min((t + 1)/W, ½(1 + cos(πt/T)))
//   constant          lr(t) = lr0 (· min((t + 1)/W, 1) with warmup)
//
// as the NERSC tutorial computes them (PyTorch's CosineAnnealingLR in closed form; LambdaLR with warmup).
#pragma once

#include <cstdint>
#include <string>

namespace isobar {

enum class ScheduleKind : std::uint8_t { cosine, constant };

struct Schedule {
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

}  // namespace isobar
