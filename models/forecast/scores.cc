#include "models/forecast/scores.h"

#include <cmath>

#include "kernels/common/check.h"

namespace isobar {

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

}  // namespace isobar
