// The transpose of a square of values in registers, with which rows become columns while they are packed.
// Only for files compiled once an instruction set (kernels/cpu/isa.h).
#pragma once

#include <utility>

#include "kernels/cpu/simd.h"

namespace isobar::cpu::ISOBAR_ISA {

// Lane l of the result is a[l], or b[l - kHalf] if bit kHalf of l is set.
template <int kHalf, class V, int... l>
ISOBAR_INLINE V lower_halves(V a, V b, std::integer_sequence<int, l...>) {
  constexpr int kCount = sizeof...(l);
  return __builtin_shufflevector(a, b, ((l & kHalf) != 0 ? kCount + l - kHalf : l)...);
}
// Lane l of the result is a[l + kHalf], or b[l] if bit kHalf of l is set.
template <int kHalf, class V, int... l>
ISOBAR_INLINE V upper_halves(V a, V b, std::integer_sequence<int, l...>) {
  constexpr int kCount = sizeof...(l);
  return __builtin_shufflevector(a, b, ((l & kHalf) != 0 ? kCount + l : l + kHalf)...);
}

// rows[i][l] becomes rows[l][i]. The blocks beside the diagonal are exchanged: first those of half the square's side,
// then those of a quarter within each block, down to single values (Eklundh 1972).
template <class V, int kCount, int kHalf = kCount / 2>
ISOBAR_INLINE void transpose_square(V (&rows)[kCount]) {
  using Lanes = std::make_integer_sequence<int, kCount>;
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i)
    if ((i & kHalf) == 0) {
      const V a = rows[i], b = rows[i + kHalf];
      rows[i] = lower_halves<kHalf>(a, b, Lanes{});
      rows[i + kHalf] = upper_halves<kHalf>(a, b, Lanes{});
    }
  if constexpr (kHalf > 1) transpose_square<V, kCount, kHalf / 2>(rows);
}

}  // namespace isobar::cpu::ISOBAR_ISA
