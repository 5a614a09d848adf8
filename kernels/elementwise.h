// elementwise - the simplest ops: cast, fill, add, and add a row to every group
//
//   cast      y[i] = x[i] in y's dtype                                  any floating dtype to any (fp64: CPU)
//   fill      y[i] = value
//   add       y[i] = a[i] + b[i]                                        three dtypes; y may be a or b
//   add_row   y[g, i] = x[g, i] + row[i],  g < groups, i < n            row in row_dtype; a position embedding
//
//   numerics      computed in fp32 (fp64 if any operand is fp64), one rounding at the store
//   deterministic yes
//   aliasing      y may be x (same dtype)
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct CastArgs {
  std::int64_t n = 0;
  DType x_dtype = DType::fp32, y_dtype = DType::fp32;
  const void* x = nullptr;
  void* y = nullptr;
};

struct FillArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  double value = 0;
  void* y = nullptr;
};

struct AddArgs {
  std::int64_t n = 0;
  DType a_dtype = DType::fp32, b_dtype = DType::fp32, y_dtype = DType::fp32;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
};

struct AddRowArgs {
  std::int64_t groups = 0, n = 0;
  DType x_dtype = DType::fp32, row_dtype = DType::fp32, y_dtype = DType::fp32;
  const void* x = nullptr;
  const void* row = nullptr;
  void* y = nullptr;
};

constexpr Cost cast_cost(const CastArgs& a) {
  return {.bytes = static_cast<double>(a.n) * (size_of(a.x_dtype) + size_of(a.y_dtype))};
}
constexpr Cost fill_cost(const FillArgs& a) {
  return {.bytes = static_cast<double>(a.n) * size_of(a.dtype)};
}
constexpr Cost add_cost(const AddArgs& a) {
  return {.bytes = static_cast<double>(a.n) * (size_of(a.a_dtype) + size_of(a.b_dtype) + size_of(a.y_dtype)),
          .flops = static_cast<double>(a.n)};
}
constexpr Cost add_row_cost(const AddRowArgs& a) {
  const double n = static_cast<double>(a.groups) * a.n;
  return {.bytes = n * (size_of(a.x_dtype) + size_of(a.y_dtype)) + a.n * static_cast<double>(size_of(a.row_dtype)),
          .flops = n};
}
ISOBAR_KERNEL(cast, CastArgs)
ISOBAR_KERNEL(fill, FillArgs)
ISOBAR_KERNEL(add, AddArgs)
ISOBAR_KERNEL(add_row, AddRowArgs)

}  // namespace isobar
