// The arithmetic of tensor cores. They round operands to TF32, and truncate sums where ordinary arithmetic rounds.
//
// The products of a few pairs of operands are exact. They and the sum so far are shifted to the exponent of the largest
// of them. Bits below the last kept bit are truncated, and the sum is truncated to fp32 as well (Fasi, Higham, Mikaitis
// and Pranesh 2021, "Numerical behavior of NVIDIA tensor cores"; Khattak and Mikaitis 2025, arXiv 2512.07004). The
// errors of a long sum then have one sign and do not cancel: those of 1531 products are about five times those of a
// rounded fp32 sum. This models an A100, the least accurate of the GPUs that isobar is for: eight products at once, and
// one bit more than fp32.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace isobar::testing {

// A number as a product takes it that rounds its operands to TF32: to the nearest with 10 of the 23 bits of its
// fraction, a half away from zero.
inline float in_tf32(float value) {
  constexpr std::uint32_t kDropped = (1u << 13) - 1, kHalf = 1u << 12;
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + kHalf) & ~kDropped);
}

class TensorCoreSum {
 public:
  // Operands have at most 11 bits: bf16, fp16 or TF32.
  void add_product(float a, float b) {
    products_[static_cast<std::size_t>(count_++)] = static_cast<double>(a) * b;
    if (count_ == kProducts) add_up();
  }
  float sum() {
    if (count_ > 0) add_up();
    return static_cast<float>(sum_);
  }

 private:
  static constexpr int kProducts = 8, kBits = 23 + 1;  // after the leading one

  void add_up() {
    double greatest = std::fabs(sum_), plain = sum_;
    for (int i = 0; i < count_; ++i) {
      greatest = std::fmax(greatest, std::fabs(products_[static_cast<std::size_t>(i)]));
      plain += products_[static_cast<std::size_t>(i)];
    }
    if (std::isfinite(plain) && greatest > 0) plain = cut_sum(std::ldexp(1.0, std::ilogb(greatest) - kBits));
    sum_ = plain;
    count_ = 0;
  }

  // Of whole multiples of `unit`, which doubles represent exactly.
  double cut_sum(double unit) const {
    double sum = std::trunc(sum_ / unit);
    for (int i = 0; i < count_; ++i) sum += std::trunc(products_[static_cast<std::size_t>(i)] / unit);
    constexpr std::uint64_t kBelowFp32 = (std::uint64_t{1} << 29) - 1;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum * unit) & ~kBelowFp32);
  }

  std::array<double, kProducts> products_{};
  int count_ = 0;
  double sum_ = 0;  // an fp32 number
};

}  // namespace isobar::testing
