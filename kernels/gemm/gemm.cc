// gemm on the CPU: checks, and the choice between isobar's products and oneDNN.
#include "kernels/gemm/gemm.h"

#include <utility>

#include "kernels/common/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/gemm/few_rows.h"
#include "kernels/gemm/onednn.h"
#include "kernels/gemm/packed.h"

namespace isobar::cpu {
namespace {

thread_local bool few_rows_may_differ = false;

void check(const GemmArgs& g) {
  ISOBAR_CHECK(g.in_dtype != DType::i32 && (g.out_dtype == g.in_dtype || g.out_dtype == DType::fp32),
               "gemm: cannot multiply ", name_of(g.in_dtype), " into ", name_of(g.out_dtype));
  ISOBAR_CHECK(g.bias == nullptr || g.bias_dtype == accumulator_of(g.in_dtype), "gemm: a bias in ",
               name_of(g.bias_dtype), " is added by a GPU only");
  ISOBAR_CHECK(g.a_sums == nullptr, "gemm: sums of A on the way are made by a GPU only; use column_sum");
  ISOBAR_CHECK(g.m >= 0 && g.n >= 0 && g.k >= 1, "gemm: bad sizes m=", g.m, " n=", g.n, " k=", g.k);
  ISOBAR_CHECK(g.mode == Grad::overwrite || (g.bias == nullptr && g.pre == nullptr && g.activation == Activation::none),
               "gemm: bias and activation cannot be combined with accumulation");
}

}  // namespace

void gemm(const GemmArgs& g, Stream) {
  check(g);
  if (g.in_dtype == DType::bf16 && are_on_tiles(bf16_products()))
    gemm_onednn(g);
  else if (few_rows_may_differ && g.m <= kFewRows && g.transpose_b && !g.transpose_a)
    gemm_dots(g);
  else
    gemm_packed(g);
}

FewRowsScope::FewRowsScope() : before_(std::exchange(few_rows_may_differ, true)) {}

FewRowsScope::~FewRowsScope() {
  few_rows_may_differ = before_;
}

}  // namespace isobar::cpu
