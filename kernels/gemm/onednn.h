// gemm_onednn - the matrix product of bf16 with oneDNN, called by cpu::gemm (kernels/gemm/gemm.h has the contract)
//
// oneDNN's bf16 products on AMX tiles are several times faster than fp32 arithmetic. Without AMX isobar's own packed
// product (kernels/gemm/packed.h) is used, in fp32 or with AVX512_BF16: there it is as fast as oneDNN's. One
// difference: with oneDNN a GELU follows the rounding of the product.
#pragma once

#include "kernels/gemm/gemm.h"

namespace isobar::cpu {

// Arguments that gemm() has checked, in_dtype bf16; needs AVX-512.
void gemm_onednn(const GemmArgs& arguments);

}  // namespace isobar::cpu
