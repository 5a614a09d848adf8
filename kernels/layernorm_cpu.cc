// layernorm on the CPU: one row at a time; it stays in the first-level cache, so only the first pass reads memory.
#include "kernels/layernorm.h"

#include "kernels/common/math.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kMinRows = 32;     // of a block with its own partial sums
constexpr std::int64_t kMaxBlocks = 264;  // of rows
static_assert(kMaxBlocks <= kLayernormBlocks);

// s = x + branch, rounded when it is stored.
template <bool kHasBranch, class S, class T>
ISOBAR_INLINE accumulator_t<S> stream_value(const S* x, const T* branch, std::int64_t i) {
  using Acc = accumulator_t<S>;
  if constexpr (kHasBranch)
    return convert<Acc>(convert<S>(convert<Acc>(x[i]) + convert<Acc>(branch[i])));
  else
    return convert<Acc>(x[i]);
}

template <class Acc>
struct Statistics {
  Acc mean, rstd;
};

template <bool kHasBranch, class S, class T, class Acc>
Statistics<Acc> normalize_row(std::int64_t cols, Acc eps, const S* x, const T* branch, const Acc* weight,
                              const Acc* bias, T* y) {
  Acc sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < cols; ++i) sum += stream_value<kHasBranch>(x, branch, i);
  const Acc mean = sum / static_cast<Acc>(cols);
  Acc squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < cols; ++i) {
    const Acc distance = stream_value<kHasBranch>(x, branch, i) - mean;
    squares += distance * distance;
  }
  const Acc rstd = Acc(1) / std::sqrt(squares / static_cast<Acc>(cols) + eps);
#pragma omp simd
  for (std::int64_t i = 0; i < cols; ++i)
    y[i] = convert<T>((stream_value<kHasBranch>(x, branch, i) - mean) * rstd * weight[i] + bias[i]);
  return {mean, rstd};
}

template <class S, class T>
void forward(const LayernormFwdArgs& a) {
  using Acc = accumulator_t<S>;
  const auto* weight = static_cast<const Acc*>(a.weight);
  const auto* bias = static_cast<const Acc*>(a.bias);
  const Acc eps = static_cast<Acc>(a.eps);
  parallel_for(a.rows, kGrain / a.cols + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.cols;
      const S* x = static_cast<const S*>(a.x) + at;
      const T* branch = a.branch != nullptr ? static_cast<const T*>(a.branch) + at : nullptr;
      T* y = static_cast<T*>(a.y) + at;
      if (a.sum != nullptr) {
        S* sum = static_cast<S*>(a.sum) + at;
        if (branch != nullptr) {
#pragma omp simd
          for (std::int64_t i = 0; i < a.cols; ++i) sum[i] = convert<S>(stream_value<true>(x, branch, i));
        } else if (sum != x) {
          for (std::int64_t i = 0; i < a.cols; ++i) sum[i] = x[i];
        }
        x = sum;
        branch = nullptr;
      }
      const Statistics<Acc> s = branch != nullptr ? normalize_row<true>(a.cols, eps, x, branch, weight, bias, y)
                                                  : normalize_row<false>(a.cols, eps, x, branch, weight, bias, y);
      static_cast<Acc*>(a.mean)[row] = s.mean;
      static_cast<Acc*>(a.rstd)[row] = s.rstd;
    }
  });
}

// One row: writes dx and dbranch, adds dweight and dbias to a block's partial sums.
template <class S, class T, class Acc>
void backward_row(std::int64_t cols, Statistics<Acc> s, const T* dy, const S* x, const Acc* weight, const S* dsum,
                  S* dx, T* dbranch, Acc* dweight, Acc* dbias) {
  Acc sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
  for (std::int64_t i = 0; i < cols; ++i) {
    const Acc d = convert<Acc>(dy[i]), h = (convert<Acc>(x[i]) - s.mean) * s.rstd, g = d * weight[i];
    sum_g += g;
    sum_gh += g * h;
    dweight[i] += d * h;
    dbias[i] += d;
  }
  const Acc mean_g = sum_g / static_cast<Acc>(cols), mean_gh = sum_gh / static_cast<Acc>(cols);
  const auto gradient = [=](std::int64_t i) __attribute__((always_inline)) {
    const Acc g = convert<Acc>(dy[i]) * weight[i], h = (convert<Acc>(x[i]) - s.mean) * s.rstd;
    return s.rstd * (g - mean_g - h * mean_gh);
  };
  if (dsum != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < cols; ++i) dx[i] = convert<S>(gradient(i) + convert<Acc>(dsum[i]));
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < cols; ++i) dx[i] = convert<S>(gradient(i));
  }
  if (dbranch != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < cols; ++i) dbranch[i] = convert<T>(convert<Acc>(dx[i]));
  }
}

template <class S, class T>
void backward(const LayernormBwdArgs& a) {
  using Acc = accumulator_t<S>;
  std::int64_t block_rows = ceil_div(a.rows, kMaxBlocks);
  if (block_rows < kMinRows) block_rows = kMinRows;
  const std::int64_t blocks = ceil_div(a.rows, block_rows);
  auto* partial = static_cast<Acc*>(a.workspace);  // [blocks, 2, cols]: dweight, dbias
  const std::int64_t stride = 2 * a.cols;

  parallel_for(blocks, kGrain / (block_rows * a.cols) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      Acc* dweight = partial + block * stride;
      for (std::int64_t i = 0; i < stride; ++i) dweight[i] = 0;
      const std::int64_t last = (block + 1) * block_rows < a.rows ? (block + 1) * block_rows : a.rows;
      for (std::int64_t row = block * block_rows; row < last; ++row) {
        const std::int64_t at = row * a.cols;
        backward_row<S, T, Acc>(
            a.cols, {static_cast<const Acc*>(a.mean)[row], static_cast<const Acc*>(a.rstd)[row]},
            static_cast<const T*>(a.dy) + at, static_cast<const S*>(a.x) + at, static_cast<const Acc*>(a.weight),
            a.dsum != nullptr ? static_cast<const S*>(a.dsum) + at : nullptr, static_cast<S*>(a.dx) + at,
            a.dbranch != nullptr ? static_cast<T*>(a.dbranch) + at : nullptr, dweight, dweight + a.cols);
      }
    }
  });
  parallel_for(a.cols, kGrain / (blocks + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    add_blocks(blocks, stride, partial, a.mode, begin, end, static_cast<Acc*>(a.dweight));
    add_blocks(blocks, stride, partial + a.cols, a.mode, begin, end, static_cast<Acc*>(a.dbias));
  });
}

// Calls f(Type<S>{}, Type<T>{}) for the dtype pairs of kernels/layernorm.h.
template <class F>
void visit_pair(DType stream_dtype, DType dtype, const F& f) {
  if (stream_dtype == DType::fp32)
    visit_cuda_floating(dtype, [&](auto t) { f(Type<float>{}, t); });
  else
    visit_floating(stream_dtype, [&](auto s) { f(s, s); });
}

}  // namespace

void layernorm_fwd(const LayernormFwdArgs& a) {
  visit_pair(a.stream_dtype, a.dtype, [&]<class S, class T>(Type<S>, Type<T>) { forward<S, T>(a); });
}

void layernorm_bwd(const LayernormBwdArgs& a) {
  visit_pair(a.stream_dtype, a.dtype, [&]<class S, class T>(Type<S>, Type<T>) { backward<S, T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(layernorm_fwd, LayernormFwdArgs)
ISOBAR_CPU_KERNEL(layernorm_bwd, LayernormBwdArgs)
