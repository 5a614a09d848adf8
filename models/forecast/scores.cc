#include "models/forecast/scores.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/forecast_scores.h"

namespace isobar {

Tensor score_sums(const Tensor& forecast, const Tensor& target, const Tensor& row_weights, const Tensor& climatology,
                  bool masked) {
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
  const Tensor out = Tensor::empty({shape[0], shape[1], forecast_scores_of(masked)}, DType::fp64, forecast.device());
  ISOBAR_RUN(forecast.device(), forecast_scores,
             {.batch = shape[0],
              .channels = shape[1],
              .height = shape[2],
              .width = shape[3],
              .masked = masked,
              .dtype = forecast.dtype(),
              .pred = forecast.data(),
              .target = target.data(),
              .row_weights = row_weights.data(),
              .climatology = climatology.defined() ? climatology.data() : nullptr,
              .out = out.data_as<double>()},
             current_stream());
  return out;
}

// The points behind these sums of one sample and channel, in parts of the grid's weight: `pixels_` where none is
// missing, 0 where all are.
double ScoreTotals::points_of(std::span<const double> sums) const {
  const auto pixels = static_cast<double>(pixels_);
  if (!masked_) return pixels;
  const double present = sums[4], missing = sums[5];
  return present == 0 ? 0 : pixels * (present / (present + missing));
}

void ScoreTotals::add(std::span<const double> sums) {
  const auto per_channel = static_cast<std::size_t>(forecast_scores_of(masked_)),
             channels = static_cast<std::size_t>(channels_);
  ISOBAR_CHECK(sums.size() % (per_channel * channels) == 0, "scores of ", channels_, " channels do not come in ",
               sums.size(), " numbers");
  for (; !sums.empty(); sums = sums.subspan(per_channel * channels)) {
    bool is_scored = false;
    for (std::size_t c = 0; c < channels; ++c) {
      const std::span<const double> of_channel = sums.subspan(c * per_channel, per_channel);
      const double points = points_of(of_channel);
      if (points == 0) continue;
      double* total = &totals_[c * static_cast<std::size_t>(kWidth)];
      for (std::size_t k = 0; k < 4; ++k) total[k] += of_channel[k];
      total[4] += std::sqrt(of_channel[0] / points);
      total[5] += points;
      total[6] += 1;
      is_scored = true;
    }
    totals_.back() += is_scored ? 1 : 0;
  }
}

double ScoreTotals::total(std::int64_t channel, std::int64_t which) const {
  return totals_[static_cast<std::size_t>(channel * kWidth + which)];
}

std::vector<double> ScoreTotals::points() const {
  std::vector<double> result;
  for (std::int64_t c = 0; c < channels_; ++c) result.push_back(total(c, 5));
  return result;
}

std::vector<double> ScoreTotals::rmse() const {
  std::vector<double> result;
  for (std::int64_t c = 0; c < channels_; ++c) result.push_back(std::sqrt(total(c, 0) / total(c, 5)));
  return result;
}

std::vector<double> ScoreTotals::mean_sample_rmse() const {
  std::vector<double> result;
  for (std::int64_t c = 0; c < channels_; ++c) result.push_back(total(c, 4) / total(c, 6));
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
