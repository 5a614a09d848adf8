// How tensor cores add: they cut where ordinary arithmetic rounds.
//
// The products of a few pairs of operands are exact. They and the sum so far are shifted to the exponent of the
// greatest of them, what lies below the last bit kept is cut off, and the sum is cut to fp32 as well (Fasi, Higham,
// Mikaitis and Pranesh 2021, "Numerical behavior of NVIDIA tensor cores"; Khattak and Mikaitis 2025, arXiv 2512.07004).
// The errors of a long sum have one sign then and do not cancel: those of 1531 products are about five times those of
// a sum in fp32 that rounds. Here as an A100 does it, the roughest of the GPUs that isobar is for: eight products at
// once, and one bit more than fp32 has.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace isobar::testing {

class TensorCoreSum {
 public:
  // Operands are of at most 11 bits: bf16, fp16 or TF32.
  void add_product(float a, float b) {
    products_[static_cast<std::size_t>(count_++)] = static_cast<double>(a) * b;
    if (count_ == kProducts) add_up();
  }
  float sum() {
    if (count_ > 0) add_up();
    return static_cast<float>(sum_);
  }

 private:
  static constexpr int kProducts = 8, kBits = 23 + 1;  // behind the leading one

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

  // Of whole multiples of `unit`, which doubles hold exactly.
  double cut_sum(double unit) const {
    double sum = std::trunc(sum_ / unit);
    for (int i = 0; i < count_; ++i) sum += std::trunc(products_[static_cast<std::size_t>(i)] / unit);
    constexpr std::uint64_t kBelowFp32 = (std::uint64_t{1} << 29) - 1;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum * unit) & ~kBelowFp32);
  }

  std::array<double, kProducts> products_{};
  int count_ = 0;
  double sum_ = 0;  // a number of fp32
};

}  // namespace isobar::testing
