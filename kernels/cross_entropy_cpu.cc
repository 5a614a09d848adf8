// cross_entropy on the CPU: a thread takes one row at a time, which stays in the cache between its passes.
#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

template <class Acc>
struct RowResult {
  Acc max, sum, loss;
  std::int32_t prediction;
};

// The first class with this logit; 0 if there is none.
template <class T, class Acc>
std::int32_t first_of(const T* x, std::int64_t classes, Acc value) {
  for (std::int64_t c = 0; c < classes; ++c)
    if (convert<Acc>(x[c]) == value) return static_cast<std::int32_t>(c);
  return 0;
}

template <class T, class Acc>
RowResult<Acc> forward_row(const T* x, std::int64_t classes, std::int32_t label, bool has_prediction) {
  // Begins with the lowest finite number, since -∞ - -∞ would be NaN. A NaN is ignored here, and makes the sum NaN.
  Acc max = std::numeric_limits<Acc>::lowest();
#pragma omp simd reduction(max : max)
  for (std::int64_t c = 0; c < classes; ++c) {
    const Acc value = convert<Acc>(x[c]);
    max = value > max ? value : max;
  }
  Acc sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < classes; ++c) sum += exp(convert<Acc>(x[c]) - max);

  const bool is_valid = label >= 0 && label < classes;
  const Acc at_label = is_valid ? convert<Acc>(x[label]) : std::numeric_limits<Acc>::quiet_NaN();
  std::int32_t prediction = -1;
  if (has_prediction && sum == sum) prediction = first_of(x, classes, max);
  return {max, sum, std::log(sum) + (max - at_label), prediction};
}

template <class T>
void forward(const CrossEntropyFwdArgs& a) {
  using Acc = accumulator_t<T>;
  Acc* row_loss = static_cast<Acc*>(a.row_loss);
  parallel_for(a.rows, kGrain / 2 / a.classes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      RowResult<Acc> result = {0, 0, 0, -1};
      if (a.labels[row] != a.ignore)
        result = forward_row<T, Acc>(static_cast<const T*>(a.logits) + row * a.classes, a.classes - a.padding,
                                     a.labels[row], a.prediction != nullptr);
      static_cast<Acc*>(a.max)[row] = result.max;
      static_cast<Acc*>(a.sum)[row] = result.sum;
      row_loss[row] = result.loss;
      if (a.prediction != nullptr) a.prediction[row] = result.prediction;
    }
  });

  double total = 0;
  std::int32_t counted = 0;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    total += static_cast<double>(row_loss[row]);
    counted += a.labels[row] != a.ignore;
  }
  *static_cast<Acc*>(a.loss) = static_cast<Acc>(total / counted);
  *a.counted = counted;
}

template <class T>
void backward(const CrossEntropyBwdArgs& a) {
  using Acc = accumulator_t<T>;
  const double upstream =
      a.upstream *
      (a.device_upstream != nullptr ? static_cast<double>(*static_cast<const Acc*>(a.device_upstream)) : 1.0);
  const Acc scale = static_cast<Acc>(upstream / *a.counted);
  const std::int64_t read = a.classes - a.padding;
  parallel_for(a.rows, kGrain / 2 / a.classes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(a.logits) + row * a.classes;
      T* dx = static_cast<T*>(a.dlogits) + row * a.classes;
      const std::int32_t label = a.labels[row];
      if (label == a.ignore) {
        for (std::int64_t c = 0; c < a.classes; ++c) dx[c] = convert<T>(Acc(0));
        continue;
      }
      const bool is_valid = label >= 0 && label < read;
      const Acc max = static_cast<const Acc*>(a.max)[row];
      const Acc factor = is_valid ? scale / static_cast<const Acc*>(a.sum)[row] : std::numeric_limits<Acc>::quiet_NaN();
      const Acc at_label = is_valid ? factor * exp(convert<Acc>(x[label]) - max) - scale : Acc(0);
#pragma omp simd
      for (std::int64_t c = 0; c < read; ++c) dx[c] = convert<T>(factor * exp(convert<Acc>(x[c]) - max));
      for (std::int64_t c = read; c < a.classes; ++c) dx[c] = convert<T>(Acc(0));
      if (is_valid) dx[label] = convert<T>(at_label);
    }
  });
}

}  // namespace

void cross_entropy_fwd(const CrossEntropyFwdArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { forward<T>(a); });
}

void cross_entropy_bwd(const CrossEntropyBwdArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { backward<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(cross_entropy_fwd, CrossEntropyFwdArgs)
ISOBAR_CPU_KERNEL(cross_entropy_bwd, CrossEntropyBwdArgs)
