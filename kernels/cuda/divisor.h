// Division by a number that the host knows and the compiler does not, without a division instruction: the numerator
// times the rounded-up reciprocal (Granlund & Montgomery 1994, section 4). With b = ⌈log2 d⌉ and m = ⌈2^(31+b) / d⌉ <
// 2^32 the quotient ⌊n·m / 2^(31+b)⌋ is exact for 0 <= n < 2^31: m is too large by less than 1, the quotient by less
// than 1/d.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

struct Quotient {
  int quotient, remainder;
};

class Divisor {
 public:
  Divisor() = default;  // by 1

  // 1 <= divisor < 2^31
  explicit Divisor(std::int64_t divisor) : divisor_(static_cast<int>(divisor)) {
    ISOBAR_CHECK(divisor >= 1 && divisor < std::int64_t{1} << 31, "a divisor of ", divisor, " is out of range");
    shift_ = std::bit_width(static_cast<std::uint32_t>(divisor - 1));
    const std::uint64_t power = std::uint64_t{1} << (31 + shift_);
    factor_ = static_cast<std::uint32_t>((power + divisor - 1) / divisor);
  }

  __host__ __device__ int divisor() const { return divisor_; }

  // of 0 <= n < 2^31
  __host__ __device__ __forceinline__ Quotient divide(int n) const {
    const auto scaled = static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * factor_) >> 31);
    const int quotient = static_cast<int>(scaled >> shift_);
    return {quotient, n - quotient * divisor_};
  }

 private:
  int divisor_ = 1, shift_ = 0;
  std::uint32_t factor_ = std::uint32_t{1} << 31;
};

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
