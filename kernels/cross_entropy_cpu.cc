// cross_entropy on the CPU: a thread takes one row at a time, which stays in the cache between its passes.
#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

template <class Acc>
struct RowStatistics {
  Acc max, sum;
};

// The first class with this logit; kNoClass if there is none.
template <class T, class Acc>
std::int32_t first_of(const T* x, std::int64_t classes, Acc value) {
  for (std::int64_t c = 0; c < classes; ++c)
    if (convert<Acc>(x[c]) == value) return static_cast<std::int32_t>(c);
  return kNoClass;
}

template <class Acc, class T>
RowStatistics<Acc> statistics_of(const T* x, std::int64_t classes) {
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
  return {max, sum};
}

template <class Acc>
Acc loss_of_row(const RowStatistics<Acc>& of, Acc at_label) {
  return std::log(of.sum) + (of.max - at_label);
}

// `best` of a whole row: the class 0 if all logits are -∞, none if one is NaN or +∞.
template <class Acc>
std::int32_t prediction_of(const RowStatistics<Acc>& of, std::int32_t best) {
  if (of.sum != of.sum) return -1;
  return best == kNoClass ? 0 : best;
}

template <class Acc>
struct RowResult {
  Acc max, sum, loss;
  std::int32_t prediction;
};

template <class T, class Acc>
RowResult<Acc> forward_row(const T* x, std::int64_t classes, std::int32_t label, bool has_prediction) {
  const auto of = statistics_of<Acc>(x, classes);
  const bool is_valid = label >= 0 && label < classes;
  const Acc at_label = is_valid ? convert<Acc>(x[label]) : std::numeric_limits<Acc>::quiet_NaN();
  std::int32_t prediction = -1;
  if (has_prediction && of.sum == of.sum) prediction = prediction_of(of, first_of(x, classes, of.max));
  return {of.max, of.sum, loss_of_row(of, at_label), prediction};
}

// Of the rows: the sum of their losses, and how many count.
struct LossSums {
  double total = 0;
  std::int32_t counted = 0;
};
template <class Acc>
LossSums sums_of(const Acc* row_loss, const std::int32_t* labels, std::int64_t rows, std::int32_t ignore) {
  LossSums sums;
  for (std::int64_t row = 0; row < rows; ++row) {
    sums.total += static_cast<double>(row_loss[row]);
    sums.counted += labels[row] != ignore;
  }
  return sums;
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

  const LossSums sums = sums_of(row_loss, a.labels, a.rows, a.ignore);
  *static_cast<Acc*>(a.loss) = static_cast<Acc>(sums.total / sums.counted);
  *a.counted = sums.counted;
}

// What a rank says of a row by its own columns.
template <class Acc>
struct RowPart {
  Acc max = 0, sum = 0, at_label = 0;
  std::int32_t best = -1;
};

template <class T, class Acc>
RowPart<Acc> partial_row(const T* x, std::int64_t classes, const Span& columns, std::int32_t label, bool has_best) {
  const auto of = statistics_of<Acc>(x, classes);
  RowPart<Acc> part{.max = of.max, .sum = of.sum};
  const std::int64_t own = label - columns.first;
  if (label < 0 || label >= columns.total)
    part.at_label = std::numeric_limits<Acc>::quiet_NaN();
  else if (own >= 0 && own < classes)
    part.at_label = convert<Acc>(x[own]);
  if (!has_best) return part;
  const std::int32_t best = first_of(x, classes, of.max);
  part.best = best == kNoClass ? kNoClass : static_cast<std::int32_t>(columns.first + best);
  return part;
}

template <class T>
void partial(const CrossEntropyPartialArgs& a) {
  using Acc = accumulator_t<T>;
  const std::int64_t classes = a.classes - a.padding;
  const Span columns = a.columns.total == 0 ? Span{0, classes} : a.columns;
  parallel_for(a.rows, kGrain / 2 / a.classes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      RowPart<Acc> part;
      if (a.labels[row] != a.ignore)
        part = partial_row<T, Acc>(static_cast<const T*>(a.logits) + row * a.classes, classes, columns, a.labels[row],
                                   a.best != nullptr);
      static_cast<Acc*>(a.max)[row] = part.max;
      static_cast<Acc*>(a.sum)[row] = part.sum;
      static_cast<Acc*>(a.at_label)[row] = part.at_label;
      if (a.best != nullptr) a.best[row] = part.best;
    }
  });
}

template <class Acc>
RowResult<Acc> join_row(const CrossEntropyJoinArgs& a, std::int64_t row) {
  const Acc* parts = static_cast<const Acc*>(a.parts);
  const auto of_rank = [&](std::int64_t rank, int which) { return parts[(3 * rank + which) * a.rows + row]; };
  RowStatistics<Acc> whole{of_rank(0, 0), 0};
  for (std::int64_t s = 1; s < a.ranks; ++s) whole.max = of_rank(s, 0) > whole.max ? of_rank(s, 0) : whole.max;
  Acc at_label = 0;
  std::int32_t best = kNoClass;
  for (std::int64_t s = 0; s < a.ranks; ++s) {
    whole.sum += of_rank(s, 1) * std::exp(of_rank(s, 0) - whole.max);
    at_label += of_rank(s, 2);
    if (a.bests == nullptr || of_rank(s, 0) != whole.max) continue;
    const std::int32_t own = a.bests[s * a.rows + row];
    best = own < best ? own : best;
  }
  return {whole.max, whole.sum, loss_of_row(whole, at_label), prediction_of(whole, best)};
}

template <class Acc>
void join(const CrossEntropyJoinArgs& a) {
  Acc* row_loss = static_cast<Acc*>(a.row_loss);
  parallel_for(a.rows, kGrain / 16 / a.ranks + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      RowResult<Acc> result = {0, 0, 0, -1};
      if (a.labels[row] != a.ignore) result = join_row<Acc>(a, row);
      static_cast<Acc*>(a.max)[row] = result.max;
      static_cast<Acc*>(a.sum)[row] = result.sum;
      row_loss[row] = result.loss;
      if (a.prediction != nullptr) a.prediction[row] = result.prediction;
    }
  });
  const LossSums sums = sums_of(row_loss, a.labels, a.rows, a.ignore);
  a.sums[0] = sums.total;
  a.sums[1] = sums.counted;
}

template <class T>
void backward(const CrossEntropyBwdArgs& a) {
  using Acc = accumulator_t<T>;
  const double upstream =
      a.upstream *
      (a.device_upstream != nullptr ? static_cast<double>(*static_cast<const Acc*>(a.device_upstream)) : 1.0);
  const Acc scale = static_cast<Acc>(upstream / *a.counted);
  const std::int64_t read = a.classes - a.padding;
  const Span columns = a.columns.total == 0 ? Span{0, read} : a.columns;
  parallel_for(a.rows, kGrain / 2 / a.classes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(a.logits) + row * a.classes;
      T* dx = static_cast<T*>(a.dlogits) + row * a.classes;
      const std::int32_t label = a.labels[row];
      if (label == a.ignore) {
        for (std::int64_t c = 0; c < a.classes; ++c) dx[c] = convert<T>(Acc(0));
        continue;
      }
      const bool is_valid = label >= 0 && label < columns.total;
      const std::int64_t own = label - columns.first;
      const bool is_own = is_valid && own >= 0 && own < read;
      const Acc max = static_cast<const Acc*>(a.max)[row];
      const Acc factor = is_valid ? scale / static_cast<const Acc*>(a.sum)[row] : std::numeric_limits<Acc>::quiet_NaN();
      const Acc at_label = is_own ? factor * exp(convert<Acc>(x[own]) - max) - scale : Acc(0);
#pragma omp simd
      for (std::int64_t c = 0; c < read; ++c) dx[c] = convert<T>(factor * exp(convert<Acc>(x[c]) - max));
      for (std::int64_t c = read; c < a.classes; ++c) dx[c] = convert<T>(Acc(0));
      if (is_own) dx[own] = convert<T>(at_label);
    }
  });
}

}  // namespace

void cross_entropy_fwd(const CrossEntropyFwdArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { forward<T>(a); });
}

void cross_entropy_partial(const CrossEntropyPartialArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { partial<T>(a); });
}

void cross_entropy_join(const CrossEntropyJoinArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { join<accumulator_t<T>>(a); });
}

void cross_entropy_finish(const CrossEntropyFinishArgs& a) {
  *a.counted = static_cast<std::int32_t>(a.sums[1]);
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    *static_cast<accumulator_t<T>*>(a.loss) = static_cast<accumulator_t<T>>(a.sums[0] / a.sums[1]);
  });
}

void cross_entropy_bwd(const CrossEntropyBwdArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { backward<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(cross_entropy_fwd, CrossEntropyFwdArgs)
ISOBAR_CPU_KERNEL(cross_entropy_partial, CrossEntropyPartialArgs)
ISOBAR_CPU_KERNEL(cross_entropy_join, CrossEntropyJoinArgs)
ISOBAR_CPU_KERNEL(cross_entropy_finish, CrossEntropyFinishArgs)
ISOBAR_CPU_KERNEL(cross_entropy_bwd, CrossEntropyBwdArgs)
