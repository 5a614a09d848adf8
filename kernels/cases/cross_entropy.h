// The cases of cross_entropy_fwd, cross_entropy_bwd and the forward in two halves. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/cross_entropy.h"

namespace isobar::cases {

inline CrossEntropyFwdArgs cross_entropy_fwd(CrossEntropyFwdArgs a, Operands&& operands) {
  const DType acc = accumulator_of(a.dtype);
  a.logits = operands.input("logits", a.rows * a.classes, a.dtype);
  a.labels = operands.input("labels", a.rows, DType::i32, {0, static_cast<double>(a.classes - a.padding)});
  a.max = operands.output("max", a.rows, acc);
  a.sum = operands.output("sum", a.rows, acc);
  a.row_loss = operands.output("row_loss", a.rows, acc);
  a.prediction = operands.optional_output("prediction", a.rows, DType::i32);
  a.loss = operands.output("loss", 1, acc);
  a.counted = operands.output("counted", 1, DType::i32);
  return operands.complete(a);
}

inline CrossEntropyPartialArgs cross_entropy_partial(CrossEntropyPartialArgs a, Operands&& operands) {
  const DType acc = accumulator_of(a.dtype);
  const std::int64_t total = a.columns.total == 0 ? a.classes - a.padding : a.columns.total;
  a.logits = operands.input("logits", a.rows * a.classes, a.dtype);
  a.labels = operands.input("labels", a.rows, DType::i32, {0, static_cast<double>(total)});
  a.max = operands.output("max", a.rows, acc);
  a.sum = operands.output("sum", a.rows, acc);
  a.at_label = operands.output("at_label", a.rows, acc);
  a.best = operands.optional_output("best", a.rows, DType::i32);
  return operands.complete(a);
}

inline CrossEntropyJoinArgs cross_entropy_join(CrossEntropyJoinArgs a, Operands&& operands) {
  const DType acc = accumulator_of(a.dtype);
  a.labels = operands.input("labels", a.rows, DType::i32, {0, 100});
  a.parts = operands.input("parts", a.ranks * 3 * a.rows, acc, {1, 2});
  a.bests = operands.optional_input("bests", a.ranks * a.rows, DType::i32, {0, 100});
  a.max = operands.output("max", a.rows, acc);
  a.sum = operands.output("sum", a.rows, acc);
  a.row_loss = operands.output("row_loss", a.rows, acc);
  a.prediction = operands.optional_output("prediction", a.rows, DType::i32);
  a.sums = operands.output("sums", 2, DType::fp64);
  return operands.complete(a);
}

inline CrossEntropyFinishArgs cross_entropy_finish(CrossEntropyFinishArgs a, Operands&& operands) {
  a.sums = operands.input("sums", 2, DType::fp64, {1, 2});
  a.loss = operands.output("loss", 1, accumulator_of(a.dtype));
  a.counted = operands.output("counted", 1, DType::i32);
  return operands.complete(a);
}

inline CrossEntropyBwdArgs cross_entropy_bwd(CrossEntropyBwdArgs a, Operands&& operands) {
  const DType acc = accumulator_of(a.dtype);
  const auto rows = static_cast<double>(a.rows);
  const std::int64_t total = a.columns.total == 0 ? a.classes - a.padding : a.columns.total;
  a.logits = operands.input("logits", a.rows * a.classes, a.dtype);
  a.labels = operands.input("labels", a.rows, DType::i32, {0, static_cast<double>(total)});
  a.max = operands.input("max", a.rows, acc, {1, 2});
  a.sum = operands.input("sum", a.rows, acc, {1, 2});
  a.counted = operands.input("counted", 1, DType::i32, {rows, rows});
  a.device_upstream = operands.optional_input("device_upstream", 1, acc, {1, 1});
  a.dlogits = operands.output("dlogits", a.rows * a.classes, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
