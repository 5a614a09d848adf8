#include "bench/training_step.h"

#include <memory>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

// Fields that need no normalising.
FieldsInfo plain_fields(const ForecastOptions& forecast) {
  const auto channels = static_cast<std::size_t>(*forecast.n_in_channels);
  FieldsInfo info;
  for (std::size_t c = 0; c < channels; ++c) info.channel_names.push_back("c" + std::to_string(c));
  info.statistics.means.assign(channels, 0);
  info.statistics.stds.assign(channels, 1);
  info.row_weights.assign(static_cast<std::size_t>(forecast.height()), 1);
  return info;
}

ComputeOptions compute_in(Arithmetic dtype) {
  return {.amp_mode = dtype == DType::bf16   ? AmpMode::bf16
                      : dtype == DType::fp16 ? AmpMode::fp16
                                             : AmpMode::none,
          .tf32 = dtype.tf32};
}

// Over memory that the caller keeps.
Tensor tensor_over(const std::vector<float>& fields, const Shape& shape) {
  return Tensor::over({std::shared_ptr<void>(), const_cast<float*>(fields.data())}, shape, DType::fp32);
}

}  // namespace

TrainingStep::TrainingStep(const StepConfig& config, Arithmetic dtype, Device device)
    : config_(config),
      forecaster_({.network = std::make_shared<VitRecipe>(config.vit), .forecast = config.forecast}, compute_in(dtype),
                  plain_fields(config.forecast), device),
      trainer_(forecaster_, {.batch = {.global_batch_size = config.batch}, .compute = compute_in(dtype)}) {}

std::int64_t TrainingStep::values() const {
  return config_.batch * *config_.forecast.n_in_channels * config_.forecast.pixels();
}

StepResult TrainingStep::run(const std::vector<float>& input, const std::vector<float>& target) {
  const auto wanted = static_cast<std::size_t>(values());
  ISOBAR_CHECK(input.size() == wanted && target.size() == wanted, "fields of ", input.size(), " and ", target.size(),
               " values; expected ", wanted);
  const ForecastOptions& forecast = config_.forecast;
  const Shape shape{config_.batch, *forecast.n_in_channels, forecast.height(), forecast.width()};
  const auto loaded = std::make_shared<LoadedBatch>();
  loaded->tensors = {{"input", tensor_over(input, shape)}, {"target", tensor_over(target, shape)}};
  return trainer_.step([&] { return loaded; });
}

Cost training_step_cost(const StepConfig& config, DType dtype) {
  const VitOptions& vit = config.vit;
  const ForecastOptions& forecast = config.forecast;
  const double patch = static_cast<double>(*vit.patch_size * *vit.patch_size);
  const double embed = static_cast<double>(vit.embed_dim), depth = static_cast<double>(vit.depth);
  const std::int64_t tokens = forecast.height() / *vit.patch_size * (forecast.width() / *vit.patch_size);
  const double patch_products = patch * embed * static_cast<double>(*forecast.n_in_channels + *forecast.n_out_channels);
  const double block_products = 12 * embed * embed;  // q, k, v, projection: 4 E^2; the MLP: 8 E^2
  const double linear = 2.0 * static_cast<double>(config.batch * tokens) * (depth * block_products + patch_products);
  const double head_products =
      2.0 * static_cast<double>(config.batch) * static_cast<double>(tokens) * static_cast<double>(tokens) * embed;
  const double weights = depth * block_products + patch_products;
  const double moved =
      28 + (is_16_bit(dtype) ? 2 : 0);  // bytes a weight: weight, m and v both ways, gradient; the copy
  return {.bytes = moved * weights, .flops = 3 * linear + depth * 7 * head_products};
}

}  // namespace isobar::bench
