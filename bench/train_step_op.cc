// The op train_step: with it isobar-bench-step is isobar-bench and a whole training step.
#include <memory>
#include <vector>

#include "bench/ops.h"
#include "bench/training_step.h"

namespace isobar::bench {
namespace {

// A training step of the base ViT; its share of the floor is its share of the machine's arithmetic.
ISOBAR_BENCH(
    train_step, .dims = "batch height width depth",
    .base_shape =
        [](std::int64_t batch) {
          return Shape{batch, 360, 720, 12};
        },
    .small_shape = {1, 16, 24, 1}, .has_tf32 = true) {
  const Shape& d = p.shape;
  StepConfig config;
  config.batch = d[0];
  config.forecast.img_size = {d[1], d[2]};
  config.vit.depth = d[3];
  const auto step = std::make_shared<TrainingStep>(config, p.dtype, p.memory.device());
  const auto fields = std::make_shared<std::vector<float>>(static_cast<std::size_t>(step->values()), 0.5f);
  return {training_step_cost(config, p.dtype), [step, fields] { step->run(*fields, *fields); }};
}

}  // namespace
}  // namespace isobar::bench
