#include "models/forecast/forecast_memory.h"

#include <algorithm>

#include "engine/storage.h"

namespace isobar {

std::size_t bytes_of_forecasts(const ForecasterOptions& options, const ComputeOptions& compute, const FieldsInfo& info,
                               DeviceKind like, std::int64_t batch) {
  const Device device = meta_like(like);
  const OwnMemoryLedger memory;
  const StreamScope no_stream(nullptr);
  const Forecaster forecaster(options, compute, info, device);
  const std::size_t weights = memory_bytes();
  const ForecastOptions& forecast = options.forecast;
  Batch samples;
  samples["input"] =
      Tensor::empty({batch, forecast.input_planes(), forecast.height(), forecast.width()}, DType::fp32, device);
  if (*forecast.time_features) samples["time"] = Tensor::empty({batch, kTimeFeatures}, DType::fp64, device);
  const Tensor input = forecaster.input().input_of(samples), output = forecaster.forecast(input);
  return peak_memory_bytes() - weights;
}

std::int64_t starts_that_fit(const ForecasterOptions& options, const ComputeOptions& compute, const FieldsInfo& info,
                             DeviceKind like, std::size_t bytes) {
  const std::size_t one = bytes_of_forecasts(options, compute, info, like, 1),
                    two = bytes_of_forecasts(options, compute, info, like, 2);
  const std::size_t more = std::max<std::size_t>(two - std::min(one, two), 1);
  const std::size_t fit = bytes <= one ? 1 : 1 + (bytes - one) / more;
  return static_cast<std::int64_t>(std::min<std::size_t>(fit, kMaxStartsAtOnce));
}

}  // namespace isobar
