// A whole training step of a ViT on fields that need no normalising: forward, loss, backward and Adam.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/train/trainer.h"
#include "bench/arithmetic.h"
#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/dtype.h"
#include "models/forecast/forecaster.h"
#include "models/vit/recipe.h"

namespace isobar::bench {

// The base ViT unless something else is set.
struct StepConfig {
  VitOptions vit;
  ForecastOptions forecast;
  std::int64_t batch = 16;
};

class TrainingStep {
 public:
  // The ViT of `config`, with the weights of seed 0. dtype: fp32, tf32 or, mixed with fp32, bf16 or fp16.
  TrainingStep(const StepConfig& config, Arithmetic dtype, Device device);

  // input, target [B, V, LAT, LON], normalised, on the host; B is the config's batch.
  StepResult run(const std::vector<float>& input, const std::vector<float>& target);
  std::int64_t values() const;  // B C H W

 private:
  StepConfig config_;
  Forecaster forecaster_;
  Trainer trainer_;
};

// The products of one step, in flops: those of the linear layers three times (forward, and the two of backward), those
// of attention as its kernels do them (2 forward, 5 backward, with the scores computed again). All the rest is below 2
// %. Bytes: what Adam must move.
Cost training_step_cost(const StepConfig& config, DType dtype);

}  // namespace isobar::bench
