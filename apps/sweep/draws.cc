#include "apps/sweep/draws.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "engine/files/checksum.h"
#include "kernels/common/rng.h"

namespace isobar {

std::uint32_t drawn_bits(std::uint64_t seed, std::string_view parameter, std::uint64_t draw) {
  return random_bits(seed, xxh64(std::as_bytes(std::span(parameter))), draw);
}

double uniform_of(std::uint32_t bits, double low, double high) {
  const double u = bits * 0x1p-32;
  // std::fma, because a compiler may fuse a product and a sum or not
  return std::clamp(std::fma(high, u, low * (1 - u)), low, high);
}

double log_uniform_of(std::uint32_t bits, double low, double high) {
  double root = std::sqrt(high) / std::sqrt(low);  // (high / low)^(1/2), then ^(1/4), ...; the quotient may overflow
  double value = low;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((bits & bit) != 0) value *= root;
    root = std::sqrt(root);
  }
  return std::clamp(value, low, high);
}

std::uint64_t index_of(std::uint32_t bits, std::uint64_t n) {
  return (bits * n) >> 32;
}

}  // namespace isobar
