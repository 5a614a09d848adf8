// forecast_scores on the CPU: a variable of a sample at a time; a line in the arithmetic's type, sums of lines in fp64.
#include "kernels/forecast_scores.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// Adds weight · (the four sums of one line) to out; masked: over the points of the target that are present. Never
// inlined: the compiler must not order the additions of one line in one way here and in another there.
template <bool kMasked, class T, class Acc>
[[gnu::noinline]] void add_line(const T* pred, const Acc* target, const Acc* climatology, std::int64_t width,
                                double weight, double* out) {
  Acc error = 0, product = 0, pred_square = 0, target_square = 0;
#pragma omp simd reduction(+ : error, product, pred_square, target_square)
  for (std::int64_t i = 0; i < width; ++i) {
    const Acc mean = climatology != nullptr ? climatology[i] : Acc(0);
    const Acc p = convert<Acc>(pred[i]), t = target[i];
    const bool present = !kMasked || t == t;
    const Acc difference = present ? p - t : Acc(0), p_anomaly = present ? p - mean : Acc(0),
              t_anomaly = present ? t - mean : Acc(0);
    error += difference * difference;
    product += p_anomaly * t_anomaly;
    pred_square += p_anomaly * p_anomaly;
    target_square += t_anomaly * t_anomaly;
  }
  out[0] += weight * static_cast<double>(error);
  out[1] += weight * static_cast<double>(product);
  out[2] += weight * static_cast<double>(pred_square);
  out[3] += weight * static_cast<double>(target_square);
}

// Adds weight · (the six sums of one line) to out. A line without missing points goes through the loop of the kernel
// without a mask, for the same bits.
template <class T, class Acc>
void add_masked_line(const T* pred, const Acc* target, const Acc* climatology, std::int64_t width, double weight,
                     double* out) {
  int missing = 0;  // as wide as fp32, for vectors of both
#pragma omp simd reduction(+ : missing)
  for (std::int64_t i = 0; i < width; ++i) missing += target[i] == target[i] ? 0 : 1;
  if (missing == 0)
    add_line<false>(pred, target, climatology, width, weight, out);
  else
    add_line<true>(pred, target, climatology, width, weight, out);
  out[4] += weight * static_cast<double>(width - missing);
  out[5] += weight * static_cast<double>(missing);
}

template <class T, bool kMasked>
void run(const ForecastScoresArgs& a) {
  using Acc = accumulator_t<T>;
  constexpr std::int64_t kSums = forecast_scores_of(kMasked);
  const std::int64_t pixels = a.height * a.width;
  const auto* weights = static_cast<const Acc*>(a.row_weights);
  parallel_for(a.batch * a.channels, kGrain / (pixels + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const T* pred = static_cast<const T*>(a.pred) + plane * pixels;
      const Acc* target = static_cast<const Acc*>(a.target) + plane * pixels;
      const Acc* climatology = static_cast<const Acc*>(a.climatology);
      if (climatology != nullptr) climatology += plane % a.channels * pixels;
      double* out = a.out + kSums * plane;
      for (std::int64_t k = 0; k < kSums; ++k) out[k] = 0;
      for (std::int64_t h = 0; h < a.height; ++h) {
        const std::int64_t at = h * a.width;
        const Acc* climate = climatology != nullptr ? climatology + at : nullptr;
        const auto weight = static_cast<double>(weights[h]);
        if constexpr (kMasked)
          add_masked_line(pred + at, target + at, climate, a.width, weight, out);
        else
          add_line<false>(pred + at, target + at, climate, a.width, weight, out);
      }
    }
  });
}

}  // namespace

void forecast_scores(const ForecastScoresArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { a.masked ? run<T, true>(a) : run<T, false>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(forecast_scores, ForecastScoresArgs)
