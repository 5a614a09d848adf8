#include "models/forecast/zonal_spectrum.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace isobar {

RowTransform::RowTransform(std::int64_t width) : width_(static_cast<std::size_t>(width)) {
  for (std::size_t j = 0; j < width_; ++j)
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(width_)));
}

// Mixed radix (Cooley and Tukey 1965): with p the smallest prime factor of count = p m, the transforms of the p
// interleaved parts are joined. in: every stride-th of the whole input.
void RowTransform::transform_part(const Complex* in, std::size_t stride, std::size_t count, Complex* out) const {
  if (count == 1) {
    *out = *in;
    return;
  }
  std::size_t p = 2;
  while (count % p != 0) p = p * p > count ? count : p + 1;
  const std::size_t m = count / p;
  for (std::size_t r = 0; r < p; ++r) transform_part(in + r * stride, stride * p, m, out + r * m);
  std::vector<Complex> parts(p);
  for (std::size_t k = 0; k < m; ++k) {
    for (std::size_t r = 0; r < p; ++r) parts[r] = out[r * m + k];
    for (std::size_t q = 0; q < p; ++q) {
      Complex sum = 0;
      for (std::size_t r = 0; r < p; ++r) sum += parts[r] * roots_[r * (k + q * m) % count * (width_ / count)];
      out[q * m + k] = sum;
    }
  }
}

void RowTransform::transform(std::span<const double> row, std::span<std::complex<double>> out) const {
  const std::vector<Complex> in(row.begin(), row.end());
  std::vector<Complex> whole(width_);
  transform_part(in.data(), 1, width_, whole.data());
  std::copy_n(whole.begin(), out.size(), out.begin());
}

ZonalSpectrum::ZonalSpectrum(std::span<const double> latitudes, std::span<const double> row_weights, std::int64_t width)
    : width_(width), transform_(width) {
  constexpr double kFirst = 30, kLast = 60, kEarthRadius = 6.371e6;
  for (std::size_t row = 0; row < latitudes.size(); ++row) {
    const double degrees = std::abs(latitudes[row]);
    if (degrees < kFirst || degrees > kLast) continue;
    rows_.push_back(
        {row, row_weights[row], 2 * std::numbers::pi * kEarthRadius * std::cos(degrees * std::numbers::pi / 180)});
  }
}

std::vector<double> ZonalSpectrum::of(std::span<const float> field) const {
  const auto width = static_cast<std::size_t>(width_);
  const std::size_t count = width / 2 + 1;
  std::vector<double> spectrum(count, 0.0), row(width);
  std::vector<std::complex<double>> waves(count);
  double weight = 0;
  for (const Row& of_row : rows_) {
    const std::span<const float> values = field.subspan(of_row.number * width, width);
    if (std::ranges::any_of(values, [](float value) { return std::isnan(value); })) continue;
    row.assign(values.begin(), values.end());
    transform_.transform(row, waves);
    weight += of_row.weight;
    for (std::size_t k = 0; k < count; ++k)
      spectrum[k] += of_row.weight * of_row.circumference * (k == 0 ? 1 : 2) * std::norm(waves[k]) /
                     static_cast<double>(width * width);
  }
  if (weight <= 0) return {};
  for (double& value : spectrum) value /= weight;
  return spectrum;
}

}  // namespace isobar
