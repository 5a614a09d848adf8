#include "models/forecast/scores.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"
#include "kernels/forecast_scores.h"

namespace isobar {

Tensor score_sums(const Tensor& forecast, const Tensor& target, const Tensor& row_weights, const Tensor& climatology) {
  const Shape& shape = forecast.shape();
  ISOBAR_CHECK(shape.size() == 4 && target.shape() == shape, "scores: forecast ", to_string(shape), " and target ",
               to_string(target.shape()), " differ");
  ISOBAR_CHECK(row_weights.shape() == Shape{shape[2]}, "scores: row weights ", to_string(row_weights.shape()),
               " do not fit the forecast ", to_string(shape));
  ISOBAR_CHECK(!climatology.defined() || climatology.shape() == Shape({shape[1], shape[2], shape[3]}),
               "scores: climatology ", to_string(climatology.shape()), " does not fit the forecast ", to_string(shape));
  for (const Tensor* t : {&target, &row_weights, &climatology})
    ISOBAR_CHECK(!t->defined() || t->dtype() == accumulator_of(forecast.dtype()), "scores: target, row weights and ",
                 "climatology must be ", name_of(accumulator_of(forecast.dtype())), ", not ", name_of(t->dtype()));
  const Tensor out = Tensor::empty({shape[0], shape[1], 4}, DType::fp64, forecast.device());
  ISOBAR_RUN(forecast.device(), forecast_scores,
             {.batch = shape[0],
              .channels = shape[1],
              .height = shape[2],
              .width = shape[3],
              .dtype = forecast.dtype(),
              .pred = forecast.data(),
              .target = target.data(),
              .row_weights = row_weights.data(),
              .climatology = climatology.defined() ? climatology.data() : nullptr,
              .out = out.data_as<double>()},
             current_stream());
  return out;
}

void ScoreTotals::add(std::span<const double> sums) {
  const auto per_sample = static_cast<std::size_t>(4 * channels_);
  ISOBAR_CHECK(sums.size() % per_sample == 0, "scores of ", channels_, " channels do not come in ", sums.size(),
               " numbers");
  for (std::size_t i = 0; i < sums.size(); i += 4) {
    double* total = &totals_[i % per_sample / 4 * static_cast<std::size_t>(kWidth)];
    for (std::size_t k = 0; k < 4; ++k) total[k] += sums[i + k];
    total[4] += std::sqrt(sums[i] / static_cast<double>(pixels_));
  }
  totals_.back() += static_cast<double>(sums.size() / per_sample);
}

double ScoreTotals::total(std::int64_t channel, std::int64_t which) const {
  return totals_[static_cast<std::size_t>(channel * kWidth + which)];
}

std::vector<double> ScoreTotals::rmse() const {
  std::vector<double> result;
  for (std::int64_t c = 0; c < channels_; ++c)
    result.push_back(std::sqrt(total(c, 0) / (totals_.back() * static_cast<double>(pixels_))));
  return result;
}

std::vector<double> ScoreTotals::mean_sample_rmse() const {
  std::vector<double> result;
  for (std::int64_t c = 0; c < channels_; ++c) result.push_back(total(c, 4) / totals_.back());
  return result;
}

std::vector<double> ScoreTotals::acc() const {
  std::vector<double> result;
  for (std::int64_t c = 0; c < channels_; ++c) result.push_back(total(c, 1) / std::sqrt(total(c, 2) * total(c, 3)));
  return result;
}

int decimals_for(double largest) {
  if (!std::isfinite(largest) || largest <= 0) return 4;
  return std::clamp(4 - static_cast<int>(std::floor(std::log10(largest))), 0, 9);
}

}  // namespace isobar
