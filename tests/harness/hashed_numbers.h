// What the golden files of the U-Net leave out (tests/golden/README.md): numbers that a formula makes, hashed() in
// tools/make_golden.py, and tensors in a few numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/tensor.h"

namespace isobar::testing {

inline double hashed(std::uint64_t i, std::uint64_t seed) {
  auto bits = static_cast<std::uint32_t>((i + 1) * 2654435761u + seed * 40503u);
  bits = (bits ^ (bits >> 16)) * 0x85EBCA6Bu;
  bits = (bits ^ (bits >> 13)) * 0xC2B2AE35u;
  bits ^= bits >> 16;
  return static_cast<double>(bits >> 8) / (1 << 23) - 1;
}

inline std::vector<double> hashed_values(std::int64_t n, std::uint64_t seed, double scale = 1, double offset = 0) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(offset + scale * hashed(static_cast<std::uint64_t>(i), seed));
  return values;
}

inline Tensor hashed_tensor(const Shape& shape, Device device, std::uint64_t seed, double scale = 1,
                            double offset = 0) {
  Tensor tensor = Tensor::empty(shape, DType::fp32, device);
  tensor.set_values(hashed_values(tensor.numel(), seed, scale, offset));
  return tensor;
}

// A tensor in a few numbers: its norm, a sum with signs, elements at equal distances.
inline std::vector<double> summary(const std::vector<double>& values) {
  constexpr std::size_t kSamples = 48;
  double squares = 0, sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double sign = hashed(i, 0);
    squares += values[i] * values[i];
    sum += sign > 0 ? values[i] : sign < 0 ? -values[i] : 0;
  }
  const double root = std::sqrt(static_cast<double>(values.size()));
  std::vector<double> result{std::sqrt(squares) / root, sum / root};
  for (std::size_t i = 0; i < kSamples; ++i) result.push_back(values[i * values.size() / kSamples]);
  return result;
}

}  // namespace isobar::testing
