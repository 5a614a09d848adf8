// Division and rounding of numbers of things: blocks of a grid, tiles of a matrix, bytes of a buffer.
#pragma once

#include <concepts>
#include <type_traits>

#include "kernels/common/dtype.h"

namespace isobar {

// Always inline: the CPU kernels are compiled once per instruction set, and the linker would keep one copy of a
// function for all of them (tools/check_isa_symbols.py).

// ⌈n / divisor⌉ for n >= 0 and divisor >= 1, in n's type; n + divisor must not overflow it.
template <std::integral T>
ISOBAR_HD inline __attribute__((always_inline)) constexpr T ceil_div(T n, std::type_identity_t<T> divisor) {
  return (n + divisor - 1) / divisor;
}

// The smallest multiple of `multiple` that is at least n, within the same limits.
template <std::integral T>
ISOBAR_HD inline __attribute__((always_inline)) constexpr T round_up(T n, std::type_identity_t<T> multiple) {
  return ceil_div(n, multiple) * multiple;
}

}  // namespace isobar
