// The cases of normalize and denormalize. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/normalize.h"

namespace isobar::cases {

inline NormalizeArgs normalize(NormalizeArgs a, Operands&& operands) {
  const std::int64_t pixels = a.height * a.width;
  a.x = operands.input("x", a.batch * a.channels * pixels, DType::fp32);
  a.mean = operands.input("mean", a.channels, DType::fp64);
  a.std = operands.input("std", a.channels, DType::fp64, {1, 2});
  a.fill = operands.optional_input("fill", a.channels, DType::fp64);
  if (a.mask_count > 0)
    a.masks = operands.input("masks", a.mask_count, DType::i32, {0, static_cast<double>(a.channels)});
  a.planes = operands.optional_input("planes", a.batch * a.extra, DType::fp64);
  a.y = operands.output("y", a.batch * (a.channels + a.mask_count + a.extra) * pixels, a.dtype);
  return operands.complete(a);
}

inline DenormalizeArgs denormalize(DenormalizeArgs a, Operands&& operands) {
  const std::int64_t n = a.batch * a.channels * a.height * a.width;
  a.x = operands.input("x", n, a.dtype);
  a.mean = operands.input("mean", a.channels, DType::fp64);
  a.std = operands.input("std", a.channels, DType::fp64, {1, 2});
  a.y = operands.output("y", n, DType::fp32);
  return operands.complete(a);
}

}  // namespace isobar::cases
