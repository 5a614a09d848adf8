// replace - the same points of every group are replaced; a group is the fields of a sample
//
//   y[g, i] = flags[i] == 0 ? x[g, i] : with[g·stride + i],  g < groups, i < n      stride: n, or 0 (with_row)
//
//   x, y          [groups, n]  dtype: fp32, bf16, fp16, fp64 (CPU)
//   with          [groups, n], or with with_row [n]; the dtype of x. Null: zeros
//   flags         [n] i32
//   gradient      dx: the same call on dy with `with` null. No gradient to `with`
//   numerics      copies
//   deterministic yes
//   aliasing      y may be x
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct ReplaceArgs {
  std::int64_t groups = 0, n = 0;
  DType dtype = DType::fp32;
  bool with_row = false;
  const void* x = nullptr;
  const void* with = nullptr;
  const std::int32_t* flags = nullptr;
  void* y = nullptr;
};

// Every element is read from one of two places.
constexpr Cost replace_cost(const ReplaceArgs& a) {
  const double n = static_cast<double>(a.groups) * a.n;
  return {.bytes = 2 * n * size_of(a.dtype) + 4.0 * a.n};
}

ISOBAR_KERNEL(replace, ReplaceArgs)

}  // namespace isobar
