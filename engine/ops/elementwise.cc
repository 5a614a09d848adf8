// add, add_row, dropout, drop_path.
#include "kernels/elementwise.h"

#include <algorithm>

#include "engine/ops/common.h"
#include "kernels/dropout.h"

namespace isobar {
namespace {

// y = mask(x). The backward pass draws the same mask again from its key: no mask is kept.
template <class Mask>
Tensor apply_mask(const char* op, const Tensor& x, float p, const Mask& mask) {
  check_operands(op, {{"the input", x}});
  ISOBAR_CHECK(p > 0 && p < 1, op, ": a rate of ", p, " is none in [0, 1)");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  mask(x, y);
  Tape::record(op, {&x}, {}, {&y}, [x = Target(x), mask](Gradients& gradients, const std::vector<Tensor>& dy) {
    mask(dy[0], dy[0]);
    gradients.give(x, dy[0]);
  });
  return y;
}

void fill_with_zeros(const Tensor& x) {
  if (x.numel() == 0) return;
  ISOBAR_RUN(x.device(), fill, {.n = x.numel(), .dtype = x.dtype(), .value = 0, .y = x.data()}, current_stream());
}

// x plus elements [first, first + n) of row, for each group of n. The gradient of the row's other elements is zero.
Tensor add_part_of_row(const Tensor& x, const Tensor& row, std::int64_t first, std::int64_t n) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  ISOBAR_RUN(x.device(), add_row,
             {.groups = x.numel() / n,
              .n = n,
              .x_dtype = x.dtype(),
              .row_dtype = row.dtype(),
              .y_dtype = y.dtype(),
              .x = x.data(),
              .row = row.detach().slice(first, {n}).data(),
              .y = y.data()},
             current_stream());
  Tape::record("add_row", {&x, &row}, {}, {&y},
               [x = Target(x), row = Target(row), first, n](Gradients& gradients, const std::vector<Tensor>& dy) {
                 if (const auto drow = gradients.slot(row)) {
                   if (drow.mode == Grad::overwrite) {  // an empty slot: its other elements must become zero
                     const std::int64_t end = first + n;
                     fill_with_zeros(drow.tensor.slice(0, {first}));
                     fill_with_zeros(drow.tensor.slice(end, {drow.tensor.numel() - end}));
                   }
                   add_column_sum(dy[0], n, {drow.tensor.slice(first, {n}), drow.mode});
                 }
                 gradients.give(x, dy[0]);
               });
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  check_operands("add", {{"the first term", a}, {"the second", b}});
  ISOBAR_CHECK(a.numel() == b.numel(), "add: ", to_string(a.shape()), " and ", to_string(b.shape()), " differ");
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  ISOBAR_RUN(y.device(), add,
             {.n = y.numel(),
              .a_dtype = a.dtype(),
              .b_dtype = b.dtype(),
              .y_dtype = y.dtype(),
              .a = a.data(),
              .b = b.data(),
              .y = y.data()},
             current_stream());
  Tape::record("add", {&a, &b}, {}, {&y},
               [a = Target(a), b = Target(b)](Gradients& gradients, const std::vector<Tensor>& dy) {
                 if (b.tracked()) gradients.give(b, copy_of(dy[0], b.dtype).view(b.shape));
                 gradients.give(a, dy[0]);
               });
  return y;
}

Tensor add_row(const Tensor& x, const Tensor& row) {
  check_operands("add_row", {{"the input", x}, {"the row", row}});
  ISOBAR_CHECK(row.numel() > 0 && x.numel() % row.numel() == 0, "add_row: ", to_string(x.shape()),
               " is no repetition of ", to_string(row.shape()));
  return add_part_of_row(x, row, 0, row.numel());
}

Tensor add_row(const Tensor& x, const Tensor& row, std::int64_t first, std::int64_t count) {
  check_operands("add_row", {{"the input", x}, {"the row", row}});
  const std::int64_t cols = row.numel() > 0 ? row.size(-1) : 1, rows = row.numel() / cols;
  ISOBAR_CHECK(first >= 0 && count > 0 && first <= rows - count, "add_row: rows ", first, " to ", first + count - 1,
               " lie outside ", to_string(row.shape()));
  ISOBAR_CHECK(x.numel() % (count * cols) == 0, "add_row: ", to_string(x.shape()), " is no repetition of ", count,
               " rows of ", to_string(row.shape()));
  return add_part_of_row(x, row, first * cols, count * cols);
}

Tensor dropout(const Tensor& x, float p, DropoutKey key, const ElementWindow& window) {
  if (p == 0) return x;
  const auto mask = [p, key, window](const Tensor& from, const Tensor& to) {
    ISOBAR_RUN(from.device(), dropout,
               {.n = from.numel(),
                .dtype = from.dtype(),
                .p = p,
                .seed = key.seed,
                .stream = key.stream,
                .stream_offset = key.stream_offset,
                .window = window,
                .x = from.data(),
                .y = to.data()},
               current_stream());
  };
  return apply_mask("dropout", x, p, mask);
}

Tensor drop_path(const Tensor& x, float p, DropoutKey key, const RowWindow& rows) {
  if (p == 0) return x;
  const auto mask = [p, key, rows](const Tensor& from, const Tensor& to) {
    ISOBAR_RUN(from.device(), drop_path,
               {.rows = from.size(0),
                .cols = from.numel() / std::max<std::int64_t>(from.size(0), 1),
                .dtype = from.dtype(),
                .p = p,
                .seed = key.seed,
                .stream = key.stream,
                .stream_offset = key.stream_offset,
                .window = rows,
                .x = from.data(),
                .y = to.data()},
               current_stream());
  };
  return apply_mask("drop_path", x, p, mask);
}

}  // namespace isobar
