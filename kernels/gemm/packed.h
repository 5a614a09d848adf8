// gemm_packed - isobar's own matrix product on the CPU, behind cpu::gemm (kernels/gemm/gemm.h has the contract)
//
// C is computed tile by tile in registers (kernels/cpu/simd.h) from packed panels of A and B. Packing converts
// 16-bit inputs to fp32 on the way, or lays bf16 in pairs for AVX512_BF16 (kernels/cpu/pairs.h), and what follows the
// product (accumulation, bias, GELU, rounding) happens while the tile is in the first-level cache: no temporary of the
// size of a matrix is needed, except that a 16-bit C of a product with more than kGemmDepth terms, or pairs of them,
// keeps its partial sums in fp32.
#pragma once

#include "kernels/gemm/gemm.h"

namespace isobar::cpu {

inline constexpr int kGemmDepth = 512;  // terms, or pairs of them, summed before C is touched

void gemm_packed(const GemmArgs& arguments, Stream stream = {});

}  // namespace isobar::cpu
