#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace isobar {

double LearningRate::at(std::int64_t t) const {
  const double progress = static_cast<double>(t) / static_cast<double>(steps);
  const double shape = kind == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1;
  if (warmup <= 0) return base * shape;
  return base * std::min(static_cast<double>(t + 1) / static_cast<double>(warmup), shape);
}

double scaled_rate(double lr, BatchScaling rule, std::int64_t batch, std::int64_t reference_batch) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(reference_batch);
  switch (rule) {
    case BatchScaling::sqrt:
      return lr * std::sqrt(ratio);
    case BatchScaling::linear:
      return lr * ratio;
    case BatchScaling::none:
      break;
  }
  return lr;
}

KeyTable ScheduleOptions::keys() {
  return {
      "The learning rate",
      {key("num_iters", num_iters, "updates of the whole run")
           .at_least(1)
           .free_on_resume()
           .also_called({"epochs", "numepochs", "maxepochs", "steps", "maxsteps", "iterations"}),
       key("lr", lr, "largest learning rate").at_least(0).also_called({"learningrate", "maxlr"}),
       key("lr_schedule", lr_schedule, "how the rate goes on after the warmup: cosine falls to 0 at num_iters")
           .also_called({"lrscheduler", "scheduler"}),
       key("warmup", warmup, "iterations over which the rate grows from 0").at_least(0).also_called({"warmupsteps"}),
       key("batch_lr_scaling", batch_lr_scaling,
           "multiplies lr by (the root of) global_batch_size / reference_batch_size"),
       key("reference_batch_size", reference_batch_size, "see batch_lr_scaling").at_least(1)}};
}

LearningRate ScheduleOptions::learning_rate(std::int64_t global_batch_size) const {
  return {.kind = lr_schedule,
          .base = scaled_rate(lr, batch_lr_scaling, global_batch_size, reference_batch_size),
          .warmup = warmup,
          .steps = num_iters};
}

}  // namespace isobar
