#include "bench/training_step.h"

#include <memory>

#include "apps/train/model_file.h"
#include "kernels/attention/attention.h"
#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

Grid identity_grid(const Config& config) {
  const auto channels = static_cast<std::size_t>(config.n_in_channels);
  Grid grid;
  for (std::size_t c = 0; c < channels; ++c) grid.channel_names.push_back("c" + std::to_string(c));
  grid.statistics.means.assign(channels, 0);
  grid.statistics.stds.assign(channels, 1);
  grid.row_weights.assign(static_cast<std::size_t>(config.img_size[0]), 1);
  return grid;
}

Config with_dtype(Config config, DType dtype) {
  config.amp_mode = dtype == DType::bf16 ? AmpMode::bf16 : dtype == DType::fp16 ? AmpMode::fp16 : AmpMode::none;
  return config;
}

}  // namespace

TrainingStep::TrainingStep(Config config, DType dtype, Device device)
    : forecaster_(with_dtype(config, dtype), identity_grid(config), device), trainer_(forecaster_) {}

void TrainingStep::read_weights(const std::string& file) {
  read_model(file, forecaster_);
}

std::int64_t TrainingStep::values() const {
  const Config& c = forecaster_.config();
  return c.global_batch_size * c.n_in_channels * c.img_size[0] * c.img_size[1];
}

StepResult TrainingStep::run(std::vector<float>& input, std::vector<float>& target) {
  const auto wanted = static_cast<std::size_t>(values());
  ISOBAR_CHECK(input.size() == wanted && target.size() == wanted, "fields of ", input.size(), " and ", target.size(),
               " values; expected ", wanted);
  const Config& c = forecaster_.config();
  const auto tensor = [&](std::vector<float>& fields) {  // over memory that the caller keeps
    return Tensor::over({std::shared_ptr<void>(), fields.data()},
                        {c.global_batch_size, c.n_in_channels, c.img_size[0], c.img_size[1]}, DType::fp32);
  };
  const auto batch = std::make_shared<LoadedBatch>();
  batch->tensors = {{"input", tensor(input)}, {"target", tensor(target)}};
  return trainer_.step([&] { return batch; });
}

Cost training_step_cost(const Config& c, DType dtype) {
  const double patch = static_cast<double>(c.patch_size * c.patch_size), embed = static_cast<double>(c.embed_dim);
  const std::int64_t tokens = c.img_size[0] / c.patch_size * (c.img_size[1] / c.patch_size);
  const double patch_products = patch * embed * static_cast<double>(c.n_in_channels + c.n_out_channels);
  const double block_products = 12 * embed * embed;  // q, k, v, projection: 4 E^2; the MLP: 8 E^2
  const double linear = 2.0 * static_cast<double>(c.global_batch_size * tokens) *
                        (static_cast<double>(c.depth) * block_products + patch_products);
  const double head_products = 2.0 * static_cast<double>(c.global_batch_size) * static_cast<double>(tokens) *
                               static_cast<double>(tokens) * embed;
  const double weights = static_cast<double>(c.depth) * block_products + patch_products;
  const double moved =
      28 + (is_16_bit(dtype) ? 2 : 0);  // bytes a weight: weight, m and v both ways, gradient; the copy
  return {.bytes = moved * weights, .flops = 3 * linear + static_cast<double>(c.depth) * 7 * head_products};
}

}  // namespace isobar::bench
