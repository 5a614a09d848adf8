// dropout - zero elements at random and scale the rest; and drop_path, the same for whole samples
//
//   dropout     y[i]    = keep(i) ? x[i]/(1-p) : 0,     keep(i) = random_bits(seed, stream, i) >= drop_threshold(p)
//   drop_path   y[b, i] = keep(b) ? x[b, i]/(1-p) : 0,  keep(b) = random_bits(seed, stream, b) >= drop_threshold(p)
//
//   x, y          [n] / [batch, n]   dtype: fp32, bf16, fp16, fp64 (CPU)
//   gradient      the same call on dy: the mask is drawn again from (seed, stream), nothing is stored
//   numerics      one multiplication in fp32 (fp64 for fp64), one rounding
//   deterministic yes, and the same mask on every device
//   limits        0 <= p < 1
//   aliasing      y may be x
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/dtype.h"

namespace isobar {

struct Dropout {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  float p = 0;
  std::uint64_t seed = 0, stream = 0;
  const void* x = nullptr;
  void* y = nullptr;
};

struct DropPath {
  std::int64_t batch = 0, n = 0;
  DType dtype = DType::fp32;
  float p = 0;
  std::uint64_t seed = 0, stream = 0;
  const void* x = nullptr;
  void* y = nullptr;
};

constexpr Cost dropout_cost(const Dropout& a) {
  return {.bytes = 2.0 * a.n * size_of(a.dtype), .flops = 1.0 * a.n};
}
constexpr Cost drop_path_cost(const DropPath& a) {
  const double n = static_cast<double>(a.batch) * a.n;
  return {.bytes = 2 * n * size_of(a.dtype), .flops = n};
}

ISOBAR_KERNEL(dropout, Dropout)
ISOBAR_KERNEL(drop_path, DropPath)

}  // namespace isobar
