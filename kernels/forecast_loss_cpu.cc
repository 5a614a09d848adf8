// forecast_loss on the CPU: lines of the grid are summed in the arithmetic's type, lines and blocks of lines in fp64.
#include "kernels/forecast_loss.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// The weight of line (c, h) of a sample.
template <class Acc, class Arguments>
double line_weight(const Arguments& a, std::int64_t line) {
  if (a.kind == LossKind::relative_l2) return 1;
  const auto* rows = static_cast<const Acc*>(a.row_weights);
  const auto* channels = static_cast<const Acc*>(a.channel_weights);
  return (rows != nullptr ? static_cast<double>(rows[line % a.height]) : 1.0) *
         (channels != nullptr ? static_cast<double>(channels[line / a.height]) : 1.0);
}

struct Sums {
  double error = 0, target = 0;
};

template <class T, class Acc>
Sums sum_line(const T* pred, const Acc* target, std::int64_t width) {
  Acc error = 0, square = 0;
#pragma omp simd reduction(+ : error, square)
  for (std::int64_t i = 0; i < width; ++i) {
    const Acc e = convert<Acc>(pred[i]) - target[i];
    error += e * e;
    square += target[i] * target[i];
  }
  return {static_cast<double>(error), static_cast<double>(square)};
}

template <class T>
void add_up(const ForecastLossSums& a) {
  using Acc = accumulator_t<T>;
  const T* pred = static_cast<const T*>(a.pred);
  const Acc* target = static_cast<const Acc*>(a.target);
  auto* partial = static_cast<Sums*>(a.workspace);  // [batch, blocks]
  const std::int64_t lines = a.channels * a.height;
  const std::int64_t blocks = lines < kForecastLossBlocks ? lines : kForecastLossBlocks;

  parallel_for(a.batch * blocks, kGrain * blocks / (lines * a.width + 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t part = begin; part < end; ++part) {
                   const std::int64_t b = part / blocks, block = part % blocks;
                   Sums sums;
                   for (std::int64_t line = lines * block / blocks; line < lines * (block + 1) / blocks; ++line) {
                     const std::int64_t at = (b * lines + line) * a.width;
                     const Sums s = sum_line(pred + at, target + at, a.width);
                     const double weight = line_weight<Acc>(a, line);
                     sums.error += weight * s.error;
                     sums.target += weight * s.target;
                   }
                   partial[part] = sums;
                 }
               });

  for (std::int64_t b = 0; b < a.batch; ++b) {
    Sums sums;
    for (std::int64_t block = 0; block < blocks; ++block) {
      sums.error += partial[b * blocks + block].error;
      sums.target += partial[b * blocks + block].target;
    }
    a.sums[2 * b] = sums.error;
    a.sums[2 * b + 1] = sums.target;
  }
}

template <class Acc>
void finish(const ForecastLossFinish& a) {
  double loss = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const double error = a.sums[2 * b], target = a.sums[2 * b + 1];
    loss += a.kind == LossKind::weighted_mse ? error / static_cast<double>(a.sample_size)
                                             : std::sqrt(error) / std::sqrt(target);
  }
  *static_cast<Acc*>(a.loss) = static_cast<Acc>(loss / static_cast<double>(a.batch));
}

// dL/dpred = coefficient · weight · (pred - target) within sample b.
template <class Acc>
double coefficient(const ForecastLossBwd& a, std::int64_t b) {
  const double upstream = a.upstream != nullptr ? static_cast<double>(*static_cast<const Acc*>(a.upstream)) : 1.0;
  const auto batch = static_cast<double>(a.batch);
  if (a.kind == LossKind::weighted_mse) return upstream * 2 / (batch * static_cast<double>(a.sample_size));
  const double error = a.sums[2 * b], target = a.sums[2 * b + 1];
  return error == 0 ? 0 : upstream / (batch * std::sqrt(error) * std::sqrt(target));
}

template <class T>
void backward(const ForecastLossBwd& a) {
  using Acc = accumulator_t<T>;
  const std::int64_t lines = a.channels * a.height;
  parallel_for(a.batch * lines, kGrain / (a.width + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const Acc factor = static_cast<Acc>(coefficient<Acc>(a, line / lines) * line_weight<Acc>(a, line % lines));
      const T* pred = static_cast<const T*>(a.pred) + line * a.width;
      const Acc* target = static_cast<const Acc*>(a.target) + line * a.width;
      T* dpred = static_cast<T*>(a.dpred) + line * a.width;
#pragma omp simd
      for (std::int64_t i = 0; i < a.width; ++i) dpred[i] = convert<T>(factor * (convert<Acc>(pred[i]) - target[i]));
    }
  });
}

}  // namespace

void forecast_loss_sums(const ForecastLossSums& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { add_up<T>(a); });
}

void forecast_loss_finish(const ForecastLossFinish& a) {
  visit_accumulator(accumulator_of(a.dtype), [&]<class Acc>(Type<Acc>) { finish<Acc>(a); });
}

void forecast_loss_bwd(const ForecastLossBwd& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { backward<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(forecast_loss_sums, ForecastLossSums)
ISOBAR_CPU_KERNEL(forecast_loss_finish, ForecastLossFinish)
ISOBAR_CPU_KERNEL(forecast_loss_bwd, ForecastLossBwd)
