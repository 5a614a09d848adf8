// The ladder of layer norm on a CPU. Like kernels/*_cpu.cc this file is compiled once for each instruction set
// (kernels/cpu/isa.h).
#include <cmath>

#include "bench/ladder/layernorm.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {

// ---- 1. naive -------------------------------------------------------------------------------------------------------

// The formula, one line after the other, each for the whole matrix: the mean of every row, then the reciprocal
// deviation of every row, then y. Array code such as (x - x.mean(1)) / x.std(1) runs like this.
//
// Two things make it slow. Each `sum +=` waits for the one before it: an addition takes three or four cycles, and the
// compiler may not change the order of the additions, since that changes the rounding. And x passes through the caches
// three times: when a loop comes to the first row again, the matrix that followed has pushed it out.
void ladder_naive(const LayernormRungArgs& a) {
  const float n = static_cast<float>(a.cols);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.cols;
    float sum = 0;
    for (std::int64_t c = 0; c < a.cols; ++c) sum += x[c];
    a.mean[row] = sum / n;
  }
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.cols;
    const float mean = a.mean[row];
    float squares = 0;
    for (std::int64_t c = 0; c < a.cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
    a.rstd[row] = 1 / std::sqrt(squares / n + a.eps);
  }
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.cols;
    float* y = a.y + row * a.cols;
    const float mean = a.mean[row], rstd = a.rstd[row];
    for (std::int64_t c = 0; c < a.cols; ++c) y[c] = (x[c] - mean) * rstd * a.weight[c] + a.bias[c];
  }
}

// ---- 2. vector ------------------------------------------------------------------------------------------------------

// The three loops over a row, with the order of the additions set free: `reduction` lets the compiler keep one partial
// sum in each lane of a vector (16 of them in AVX-512) and add these at the end. `simd` also says that y overlaps
// nothing. Each partial sum is shorter than the whole one, so the rounding error shrinks too.
ISOBAR_INLINE float row_mean(const float* x, std::int64_t cols) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) sum += x[c];
  return sum / static_cast<float>(cols);
}

ISOBAR_INLINE float row_rstd(const float* x, float mean, float eps, std::int64_t cols) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
  return 1 / std::sqrt(squares / static_cast<float>(cols) + eps);
}

ISOBAR_INLINE void write_row(const float* x, float mean, float rstd, const float* weight, const float* bias, float* y,
                             std::int64_t cols) {
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

// Rung 1 with vectors; nothing else changes. Now the arithmetic is quick, and the three trips of x through the caches
// are what is left.
void ladder_vector(const LayernormRungArgs& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) a.mean[row] = row_mean(a.x + row * a.cols, a.cols);
  for (std::int64_t row = 0; row < a.rows; ++row)
    a.rstd[row] = row_rstd(a.x + row * a.cols, a.mean[row], a.eps, a.cols);
  for (std::int64_t row = 0; row < a.rows; ++row)
    write_row(a.x + row * a.cols, a.mean[row], a.rstd[row], a.weight, a.bias, a.y + row * a.cols, a.cols);
}

// ---- 3. one pass ----------------------------------------------------------------------------------------------------

// A rung that looks good and does not hold. var = mean(x²) - mean(x)² needs no mean beforehand, so both sums come from
// one trip of x, and two trips are left of three. But where the mean is large beside the deviation, the two terms are
// nearly equal, and their difference is the rounding error of both: at a mean of 10,000 and a deviation of 1 no digit
// of the variance is right, and a negative one gives NaN.
void ladder_one_pass(const LayernormRungArgs& a) {
  const float n = static_cast<float>(a.cols);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.cols;
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum, squares)
    for (std::int64_t c = 0; c < a.cols; ++c) {
      sum += x[c];
      squares += x[c] * x[c];
    }
    const float mean = sum / n;
    a.mean[row] = mean;
    a.rstd[row] = 1 / std::sqrt(squares / n - mean * mean + a.eps);
  }
  for (std::int64_t row = 0; row < a.rows; ++row)
    write_row(a.x + row * a.cols, a.mean[row], a.rstd[row], a.weight, a.bias, a.y + row * a.cols, a.cols);
}

// ---- 4. blocked -----------------------------------------------------------------------------------------------------

// The loops are exchanged: all three steps for one row, then the next row. "Blocking" is to finish with a piece of the
// data while a cache holds it; here the piece is a row. A row of 384 columns is 1.5 KB, the first-level cache has 32 KB
// or more: only the first step reads memory. The second pass of an exact variance is free now, so rung 3 has lost
// its reason.
ISOBAR_INLINE void blocked_rows(const LayernormRungArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.cols;
    const float mean = row_mean(x, a.cols);
    const float rstd = row_rstd(x, mean, a.eps, a.cols);
    write_row(x, mean, rstd, a.weight, a.bias, a.y + row * a.cols, a.cols);
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

void ladder_blocked(const LayernormRungArgs& a) {
  blocked_rows(a, 0, a.rows);
}

// ---- 5. threaded ----------------------------------------------------------------------------------------------------

// Rows do not depend on each other, so every thread takes a contiguous range of them. One core alone cannot keep the
// memory busy: it waits for a limited number of cache lines at a time.
void ladder_threaded(const LayernormRungArgs& a) {
  parallel_for(a.rows, kGrain / a.cols + 1, [&](std::int64_t begin, std::int64_t end) { blocked_rows(a, begin, end); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(ladder_naive, LayernormRungArgs)
ISOBAR_CPU_KERNEL(ladder_vector, LayernormRungArgs)
ISOBAR_CPU_KERNEL(ladder_one_pass, LayernormRungArgs)
ISOBAR_CPU_KERNEL(ladder_blocked, LayernormRungArgs)
ISOBAR_CPU_KERNEL(ladder_threaded, LayernormRungArgs)
