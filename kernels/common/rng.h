// Counter-based random numbers: Philox 4x32 with 10 rounds (Salmon et al., SC 2011, "Parallel random numbers: as easy
// as 1, 2, 3"). An element's number depends on (seed, stream, index) only. So the backward pass can draw a mask again,
// and a mask is the same on CPU and GPU for any launch shape.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/common/dtype.h"

namespace isobar {

struct Philox4 {
  std::uint32_t word[4];
};

ISOBAR_HD constexpr Philox4 philox4x32(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  auto c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32);
  auto c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0;
    const std::uint64_t p1 = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The 32 random bits of element `index`: word index % 4 of block index / 4.
ISOBAR_HD constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return philox4x32(seed, stream, index / 4).word[index % 4];
}

// The stream of a mask. `more` is null, or points to a number in device memory that is added. A captured step reads a
// new number there at every replay, and draws other masks.
ISOBAR_HD constexpr std::uint64_t mask_stream(std::uint64_t stream, const std::uint64_t* more) {
  return more != nullptr ? stream + *more : stream;
}

// An element is dropped if its bits are smaller than this: probability p in steps of 2^-32.
ISOBAR_HD constexpr std::uint32_t drop_threshold(float p) {
  const double t = static_cast<double>(p) * 4294967296.0;
  return t >= 4294967295.0 ? 0xffffffffu : static_cast<std::uint32_t>(t);
}

// Uniform in [0, 1) with 24 bits.
ISOBAR_HD constexpr float to_uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// A standard normal number from two random words (Box and Muller 1958), on the host.
inline double to_normal(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2 * std::log((a + 1.0) * 0x1p-32));
  return radius * std::cos(2 * std::numbers::pi * (b * 0x1p-32));
}

}  // namespace isobar
