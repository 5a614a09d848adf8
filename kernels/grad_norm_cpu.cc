// grad_norm on the CPU: fp64 sums of blocks whose size depends on n only, added in order.
#include "kernels/grad_norm.h"

#include "kernels/common/math.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kMinBlock = 1 << 13;  // elements of a block

template <class Real>
double add_squares(const Real* x, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  }
  return sum;
}

}  // namespace

void sum_of_squares(const SumOfSquaresArgs& a) {
  std::int64_t block_size = ceil_div(a.n, kSumOfSquaresBlocks);
  if (block_size < kMinBlock) block_size = kMinBlock;
  const std::int64_t blocks = ceil_div(a.n, block_size);
  visit_accumulator(a.dtype, [&]<class Acc>(Type<Acc>) {
    const Acc* x = static_cast<const Acc*>(a.x);
    parallel_for(blocks, 2, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * block_size, left = a.n - first;
        a.workspace[block] = add_squares(x + first, left < block_size ? left : block_size);
      }
    });
  });
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += a.workspace[block];
  *a.sum = a.factor * sum;
}

void clip_coefficient(const ClipCoefficientArgs& a) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.count; ++i) sum += a.sums[i];
  *a.norm = std::sqrt(sum);
  const double norm = *a.norm * a.unscale;
  const double clip = a.max_norm > 0 && norm + 1e-6 > a.max_norm ? a.max_norm / (norm + 1e-6) : 1.0;
  *a.grad_scale = __builtin_isfinite(norm) ? a.unscale * clip : 0.0;
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(sum_of_squares, SumOfSquaresArgs)
ISOBAR_CPU_KERNEL(clip_coefficient, ClipCoefficientArgs)
