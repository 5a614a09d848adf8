// gemm_packed - isobar's own matrix product on the CPU, called by cpu::gemm (kernels/gemm/gemm.h has the contract)
//
// C is computed tile by tile in registers (kernels/cpu/simd.h) from packed panels of A and B. Packing converts 16-bit
// inputs to fp32, or arranges bf16 in pairs for AVX512_BF16 (kernels/cpu/pairs.h). Accumulation, bias, GELU and
// rounding are done while the tile is in the first-level cache. So no temporary of a matrix's size is needed, with one
// exception: a 16-bit C of a product with more than kGemmDepth terms, or pairs of terms, keeps its partial sums in
// fp32.
#pragma once

#include "kernels/gemm/gemm.h"

namespace isobar::cpu {

inline constexpr int kGemmDepth = 512;  // terms, or pairs of terms, that are summed before C is written

void gemm_packed(const GemmArgs& arguments, Stream stream = {});

}  // namespace isobar::cpu
