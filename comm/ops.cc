#include "comm/ops.h"

#include <vector>

#include "engine/tape.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// How the rows of a matrix [rows, cols] are split over the ranks of a group.
struct RowSplit {
  std::int64_t rows, cols;
  Part own;
  std::vector<std::int64_t> counts;  // elements, by rank

  RowSplit(const char* op, std::int64_t rows, const Tensor& x, const Communicator& group)
      : rows(rows), cols(columns(op, x)), own(part_of(rows, group.rank(), group.size())) {
    ISOBAR_CHECK(rows >= group.size(), op, ": ", rows, " rows are fewer than the ", group.size(), " ranks of group ",
                 group.name());
    for (int r = 0; r < group.size(); ++r) counts.push_back(part_of(rows, r, group.size()).size() * cols);
  }
  static std::int64_t columns(const char* op, const Tensor& x) {
    ISOBAR_CHECK(x.shape().size() == 2, op, ": ", to_string(x.shape()), " is no matrix of rows");
    return x.size(1);
  }
  Tensor like(const Tensor& x, std::int64_t count) const { return Tensor::empty({count, cols}, x.dtype(), x.device()); }

  // A copy of this rank's rows of x: the memory of the others can be freed.
  Tensor cut(const Tensor& x) const {
    const std::int64_t n = own.size() * cols;
    Tensor mine = like(x, own.size());
    copy_strided(mine, {}, x, {.first = own.begin * cols}, 1, n);
    return mine;
  }
  Tensor gather(const Tensor& mine, const Communicator& group) const {
    Tensor all = like(mine, rows);
    group.all_gather(mine, all, counts);
    return all;
  }
  Tensor sum_and_scatter(const Tensor& all, const Communicator& group) const {
    Tensor mine = like(all, own.size());
    group.reduce_scatter(all, mine, counts);
    return mine;
  }
};

void check_own(const char* op, const Tensor& x, const RowSplit& deal) {
  ISOBAR_CHECK(x.size(0) == deal.own.size(), op, ": this rank has ", x.size(0), " of ", deal.rows,
               " rows, and its part of them is ", deal.own.size());
}

// Σ_s x_s into `sum`, a buffer that holds x's values and that nothing else reads.
Tensor sum_into(const Tensor& x, Tensor sum, const Communicator& group) {
  group.all_reduce(sum);
  Tape::record("sum_over", {&x}, {}, {&sum},
               [x = Target(x)](Gradients& gradients, const std::vector<Tensor>& dy) { gradients.give(x, dy[0]); });
  return sum;
}

// `product`: this rank's term of the sum. It is the fresh output of a product that saves nothing of it, so that its
// buffer may take the sum.
Tensor leave_branch(const Tensor& product, const Tensor& bias, const Parallel& parallel) {
  const Tensor sum = parallel.sequence ? scatter_rows(product, parallel.tp) : sum_into(product, product, parallel.tp);
  return bias.defined() ? add_row(sum, bias) : sum;
}

}  // namespace

Tensor copy_to(const Tensor& x, const Communicator& group) {
  if (group.size() == 1) return x;
  Tensor y = x;
  Tape::record("copy_to", {&x}, {}, {&y}, [x = Target(x), group](Gradients& gradients, const std::vector<Tensor>& dy) {
    group.all_reduce(dy[0]);
    gradients.give(x, dy[0]);
  });
  return y;
}

Tensor sum_over(const Tensor& x, const Communicator& group) {
  if (group.size() == 1) return x;
  Tensor sum = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy_strided(sum, {}, x, {}, 1, x.numel());
  return sum_into(x, sum, group);
}

Tensor gather_rows(const Tensor& x, std::int64_t rows, const Communicator& group) {
  if (group.size() == 1) return x;
  const RowSplit deal("gather_rows", rows, x, group);
  check_own("gather_rows", x, deal);
  Tensor y = deal.gather(x, group);
  Tape::record("gather_rows", {&x}, {}, {&y},
               [x = Target(x), deal, group](Gradients& gradients, const std::vector<Tensor>& dy) {
                 gradients.give(x, deal.sum_and_scatter(dy[0], group));
               });
  return y;
}

Tensor scatter_rows(const Tensor& x, const Communicator& group) {
  if (group.size() == 1) return x;
  const RowSplit deal("scatter_rows", x.size(0), x, group);
  Tensor y = deal.sum_and_scatter(x, group);
  Tape::record("scatter_rows", {&x}, {}, {&y},
               [x = Target(x), deal, group](Gradients& gradients, const std::vector<Tensor>& dy) {
                 gradients.give(x, deal.gather(dy[0], group));
               });
  return y;
}

Tensor own_rows(const Tensor& x, const Communicator& group) {
  if (group.size() == 1) return x;
  const RowSplit deal("own_rows", x.size(0), x, group);
  Tensor y = deal.cut(x);
  Tape::record("own_rows", {&x}, {}, {&y},
               [x = Target(x), deal, group](Gradients& gradients, const std::vector<Tensor>& dy) {
                 gradients.give(x, deal.gather(dy[0], group));
               });
  return y;
}

Tensor all_rows(const Tensor& x, std::int64_t rows, const Communicator& group) {
  if (group.size() == 1) return x;
  const RowSplit deal("all_rows", rows, x, group);
  check_own("all_rows", x, deal);
  Tensor y = deal.gather(x, group);
  Tape::record("all_rows", {&x}, {}, {&y}, [x = Target(x), deal](Gradients& gradients, const std::vector<Tensor>& dy) {
    gradients.give(x, deal.cut(dy[0]));
  });
  return y;
}

Tensor enter_branch(const Tensor& x, std::int64_t rows, const Parallel& parallel) {
  return parallel.sequence ? gather_rows(x, rows, parallel.tp) : copy_to(x, parallel.tp);
}

Tensor column_linear(const Tensor& x, std::int64_t rows, const Tensor& weight, const Tensor& bias,
                     const LinearOptions& options, const Parallel& parallel) {
  return linear(enter_branch(x, rows, parallel), weight, bias, options);
}

Tensor row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options,
                  const Parallel& parallel) {
  ISOBAR_CHECK(options.activation == Activation::none, "row_linear: an activation cannot be taken of parts of a sum");
  if (parallel.tp.size() == 1) return linear(x, weight, bias, options);
  return leave_branch(linear(x, weight, {}, options), bias, parallel);
}

Tensor parallel_mlp(const Tensor& x, std::int64_t rows, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, const LinearOptions& options, const Parallel& parallel) {
  if (parallel.tp.size() == 1) return mlp(x, w1, b1, w2, b2, options);
  return leave_branch(mlp(enter_branch(x, rows, parallel), w1, b1, w2, {}, options), b2, parallel);
}

}  // namespace isobar
