// Differentiable collectives: values and gradients by hand, in whole numbers that every dtype holds exactly; the
// products that are built of them beside naive loops and finite differences.
#include "comm/ops.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "engine/tape.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::Findings;
using Values = std::vector<double>;

constexpr std::int64_t kRows = 13, kCols = 3;  // eight ranks have 2 or 1 rows

Tensor tensor(Shape shape, const Values& values, DType dtype = DType::fp64) {
  Tensor x = Tensor::empty(std::move(shape), dtype, Device{});
  x.set_values(values);
  return x;
}

Tensor leaf(Shape shape, const Values& values, DType dtype = DType::fp64) {
  return make_leaf(tensor(shape, values, dtype), Tensor::empty(shape, accumulator_of(dtype), Device{}));
}

// Whole numbers of rank `rank`; sums of eight of them are exact in bf16.
Values numbers(int rank, std::int64_t rows = kRows) {
  Values x;
  for (std::int64_t i = 0; i < rows * kCols; ++i) x.push_back(static_cast<double>((5 * rank + 3 * i) % 17 - 8));
  return x;
}
Values sum_of_ranks(int ranks) {
  Values sum = numbers(0);
  for (int r = 1; r < ranks; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += numbers(r)[i];
  return sum;
}
Values rows_of(const Values& x, const Part& rows, std::int64_t cols = kCols) {
  return {x.begin() + rows.begin * cols, x.begin() + rows.end * cols};
}
// Every rank's numbers of its own rows, in rank order.
Values side_by_side(int ranks) {
  Values all;
  for (int r = 0; r < ranks; ++r)
    for (const double value : numbers(r, part_of(kRows, r, ranks).size())) all.push_back(value);
  return all;
}

// y = op(x), and the gradient of x where `dy` arrives at y.
struct Passed {
  Tensor y, dx;
};
Passed pass(const std::function<Tensor(const Tensor&)>& op, const Tensor& x, const Values& dy) {
  Passed out;
  Tape tape;
  {
    const TapeScope recording(tape);
    out.y = op(x);
  }
  x.leaf()->touched = false;
  tape.backward(out.y, tensor(out.y.shape(), dy, out.y.dtype()));
  out.dx = x.leaf()->grad;
  return out;
}

struct Expected {
  std::string op;
  std::function<Tensor(const Tensor&)> run;
  Values x, y, dy, dx;  // of this rank
};

// The table of comm/ops.h, of every rank.
std::vector<Expected> table(const Communicator& g) {
  const int n = g.size();
  const Part own = part_of(kRows, g.rank(), n);
  const Values mine = numbers(g.rank()), my_rows = numbers(g.rank(), own.size()), same = numbers(0),
               sum = sum_of_ranks(n);
  return {
      {"copy_to", [&g](const Tensor& x) { return copy_to(x, g); }, same, same, mine, sum},
      {"sum_over", [&g](const Tensor& x) { return sum_over(x, g); }, mine, sum, same, same},
      {"gather_rows", [&g](const Tensor& x) { return gather_rows(x, kRows, g); }, my_rows, side_by_side(n), mine,
       rows_of(sum, own)},
      {"scatter_rows", [&g](const Tensor& x) { return scatter_rows(x, g); }, mine, rows_of(sum, own), my_rows,
       side_by_side(n)},
      {"own_rows", [&g](const Tensor& x) { return own_rows(x, g); }, same, rows_of(same, own), my_rows,
       side_by_side(n)},
      {"all_rows", [&g](const Tensor& x) { return all_rows(x, kRows, g); }, my_rows, side_by_side(n), same,
       rows_of(same, own)},
  };
}

}  // namespace

TEST_CASE("collective ops: values and gradients of 1 to 8 ranks, rows that do not divide, in every dtype") {
  Findings findings;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    run_ranks({.ranks = ranks}, [&](const Communicator& world) {
      for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
        for (const Expected& expected : table(world)) {
          const std::string what = concat(expected.op, " in ", name_of(dtype), " on ", ranks, " ranks");
          const Tensor x = leaf({static_cast<std::int64_t>(expected.x.size()) / kCols, kCols}, expected.x, dtype);
          const Passed passed = pass(expected.run, x, expected.dy);
          findings.expect_values(passed.y, expected.y, what);
          findings.expect_values(passed.dx, expected.dx, what + ", gradient");
          findings.expect_values(x, expected.x, what + ", input afterwards");
          findings.expect(passed.y.dtype() == dtype, what + ": dtype");
        }
      }
    });
  }
  CHECK(findings.wrong() == "");
}

TEST_CASE("collective ops: among one rank they are the tensor itself") {
  Tape tape;
  const TapeScope recording(tape);
  const Communicator alone;
  for (const Expected& expected : table(alone)) {
    INFO(expected.op);
    const Tensor x = leaf({kRows, kCols}, expected.x);
    const Tensor y = expected.run(x);
    CHECK(y.data() == x.data());
    CHECK(y.id() == x.id());
  }
  CHECK(tape.size() == 0);
}

TEST_CASE("collective ops refuse rows that are not a rank's part") {
  const auto on_three = [](const std::function<Tensor(const Communicator&)>& body) {
    run_ranks({.ranks = 3}, [&](const Communicator& world) { body(world); });
  };
  const auto zeros = [](Shape shape) { return Tensor::zeros(std::move(shape), DType::fp32, Device{}); };
  CHECK_THROWS_WITH(on_three([&](const Communicator& g) {
                      return scatter_rows(zeros({2, 4}), g);
                    }),
                    ContainsSubstring("scatter_rows: 2 rows are fewer than the 3 ranks of group world"));
  CHECK_THROWS_WITH(on_three([&](const Communicator& g) {
                      return gather_rows(zeros({2, 4}), 7, g);
                    }),
                    ContainsSubstring("gather_rows: this rank has 2 of 7 rows, and its part of them is 3"));
  CHECK_THROWS_WITH(on_three([&](const Communicator& g) {
                      return all_rows(zeros({7, 4}), 7, g);
                    }),
                    ContainsSubstring("all_rows: this rank has 7 of 7 rows"));
  CHECK_THROWS_WITH(on_three([&](const Communicator& g) { return own_rows(zeros({7}), g); }),
                    ContainsSubstring("own_rows: [7] is no matrix of rows"));
  CHECK_THROWS_WITH(row_linear(zeros({2, 4}), zeros({3, 4}), {}, {.activation = Activation::gelu_erf}, {}),
                    ContainsSubstring("row_linear: an activation cannot be taken of parts of a sum"));
}

namespace {

// y = fc2(gelu(fc1 x)) on one rank by naive loops: what ranks that share out the hidden channels must get.
constexpr std::int64_t kM = 7, kIn = 5, kHidden = 11, kOut = 4;

struct MlpValues {
  Values x, w1, b1, w2, b2;

  std::vector<Values*> all() { return {&x, &w1, &b1, &w2, &b2}; }
};

Values waves(std::int64_t n, double phase) {
  Values values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(std::sin(static_cast<double>(i) * 1.7 + phase));
  return values;
}
const MlpValues kMlp{waves(kM * kIn, 0), waves(kHidden* kIn, 1), waves(kHidden, 2), waves(kOut* kHidden, 3),
                     waves(kOut, 4)};
const Values kUpstream = waves(kM * kOut, 5);

Values naive_linear(const Values& x, const Values& w, const Values& b, std::int64_t in) {
  const std::int64_t out = static_cast<std::int64_t>(b.size()), rows = static_cast<std::int64_t>(x.size()) / in;
  Values y;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < out; ++n) {
      double sum = b[static_cast<std::size_t>(n)];
      for (std::int64_t k = 0; k < in; ++k)
        sum += x[static_cast<std::size_t>(m * in + k)] * w[static_cast<std::size_t>(n * in + k)];
      y.push_back(sum);
    }
  return y;
}
Values naive_mlp(const MlpValues& v) {
  Values hidden = naive_linear(v.x, v.w1, v.b1, kIn);
  for (double& h : hidden) h = 0.5 * h * (1 + std::erf(h / std::sqrt(2.0)));
  return naive_linear(hidden, v.w2, v.b2, kHidden);
}
double naive_loss(const MlpValues& v) {
  const Values y = naive_mlp(v);
  double loss = 0;
  for (std::size_t i = 0; i < y.size(); ++i) loss += y[i] * kUpstream[i];
  return loss;
}

// d loss / d x, w1, b1, w2, b2 by central differences.
MlpValues finite_differences() {
  constexpr double kStep = 1e-5;
  MlpValues gradients = kMlp, moved = kMlp;
  for (std::size_t which = 0; which < 5; ++which) {
    Values &values = *moved.all()[which], &gradient = *gradients.all()[which];
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = naive_loss(moved);
      values[i] = value - kStep;
      gradient[i] = (above - naive_loss(moved)) / (2 * kStep);
      values[i] = value;
    }
  }
  return gradients;
}

// Columns [part) of a matrix with `cols` of them.
Values columns_of(const Values& x, const Part& part, std::int64_t cols) {
  Values some;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i)
    if (i % cols >= part.begin && i % cols < part.end) some.push_back(x[static_cast<std::size_t>(i)]);
  return some;
}

void expect_near(Findings& findings, const Tensor& got, const Values& want, double tolerance, const std::string& what) {
  const Values values = got.to_vector();
  findings.expect(values.size() == want.size(), what + ": size");
  for (std::size_t i = 0; i < want.size() && i < values.size(); ++i)
    findings.expect(std::abs(values[i] - want[i]) <= tolerance,
                    concat(what, ": element ", i, " is ", values[i], ", not ", want[i]));
}

// One rank's part of the MLP, forward and backward, as one op or as two products.
void check_split_mlp(const Parallel& parallel, bool fused, const MlpValues& gradients, Findings& findings) {
  const Part h = parallel.over_tp(kHidden), own = parallel.sequence ? parallel.over_tp(kM) : Part{0, kM};
  const Tensor x = leaf({own.size(), kIn}, rows_of(kMlp.x, own, kIn));
  const Tensor w1 = leaf({h.size(), kIn}, rows_of(kMlp.w1, h, kIn)), b1 = leaf({h.size()}, rows_of(kMlp.b1, h, 1));
  const Tensor w2 = leaf({kOut, h.size()}, columns_of(kMlp.w2, h, kHidden)), b2 = leaf({kOut}, kMlp.b2);
  const LinearOptions activated{.activation = Activation::gelu_erf, .out_dtype = DType::fp64};
  Tape tape;
  Tensor y;
  {
    const TapeScope recording(tape);
    y = fused ? parallel_mlp(x, kM, w1, b1, w2, b2, activated, parallel)
              : row_linear(column_linear(x, kM, w1, b1, activated, parallel), w2, b2, {.out_dtype = DType::fp64},
                           parallel);
  }
  const std::string what = concat(parallel.tp.size(), " ranks, ", parallel.sequence ? "own rows, " : "all rows, ",
                                  fused ? "one op" : "two products");
  expect_near(findings, y, rows_of(naive_mlp(kMlp), own, kOut), 1e-13, what);
  tape.backward(y, tensor(y.shape(), rows_of(kUpstream, own, kOut)));
  // What every rank holds has a part of its gradient on each, where they have rows of their own.
  if (parallel.sequence) parallel.tp.all_reduce(b2.leaf()->grad);
  const auto expect = [&](const Tensor& of, const Values& want, const char* name) {
    expect_near(findings, of.leaf()->grad, want, 1e-8, what + ", gradient of " + name);
  };
  expect(x, rows_of(gradients.x, own, kIn), "x");
  expect(w1, rows_of(gradients.w1, h, kIn), "w1");
  expect(b1, rows_of(gradients.b1, h, 1), "b1");
  expect(w2, columns_of(gradients.w2, h, kHidden), "w2");
  expect(b2, gradients.b2, "b2");
}

}  // namespace

TEST_CASE("split products: values as by naive loops, gradients as by finite differences") {
  const MlpValues gradients = finite_differences();
  Findings findings;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    run_ranks({.ranks = ranks}, [&](const Communicator& world) {
      Parallel parallel = Parallel::start(world, {.tp = ranks}, "tp");
      for (const bool sequence : {false, true}) {
        parallel.sequence = sequence;
        for (const bool fused : {false, true}) check_split_mlp(parallel, fused, gradients, findings);
      }
    });
  }
  CHECK(findings.wrong() == "");
}

TEST_CASE("the worked example of docs/learn/7_two_ranks.md") {
  constexpr std::int64_t kN = 4, kTokens = 2;
  const Values x{1, 2, 0, -1, 0, 1, 1, 2}, c{1, 0, -1, 2}, dy{1, 0, -1, 2, 0, 1, 1, 0};
  const Values a{1, 0, 2, 1, 0, 1, 1, -1, 2, 1, 0, 0, 1, -1, 1, 0}, b{1, 2, 0, 1, 0, 1, 1, 0, 1, 0, 1, 2, 2, 1, 0, 1};
  const Values y{6, 7, 1, 4, 5, 1, 4, 10}, dx{3, 2, 13, 0, 7, 1, 5, 0}, dc{1, 1, 0, 2};
  const Values da{4, 9, 1, -2, 4, 9, 1, -2, -1, 0, 2, 5, 1, 4, 2, 3};
  const Values db{0, 3, 4, -1, 4, 0, 1, 0, 4, -3, -3, 1, 0, 6, 8, -2};
  Findings findings;
  for (const bool sequence : {false, true}) {
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      Parallel parallel = Parallel::start(world, {.tp = 2}, "tp");
      parallel.sequence = sequence;
      const Part half = parallel.over_tp(kN), rows = sequence ? parallel.over_tp(kTokens) : Part{0, kTokens};
      const Tensor x_r = leaf({rows.size(), kN}, rows_of(x, rows, kN)), bias = leaf({kN}, c);
      const Tensor a_r = leaf({half.size(), kN}, rows_of(a, half, kN));
      const Tensor b_r = leaf({kN, half.size()}, columns_of(b, half, kN));
      Tape tape;
      Tensor h, y_r;
      {
        const TapeScope recording(tape);
        h = column_linear(x_r, kTokens, a_r, {}, {.out_dtype = DType::fp64}, parallel);
        y_r = row_linear(h, b_r, bias, {.out_dtype = DType::fp64}, parallel);
      }
      findings.expect_values(h, world.rank() == 0 ? Values{0, 3, 4, 0} : Values{4, -1, 1, 0}, "own columns of h");
      findings.expect_values(y_r, rows_of(y, rows, kN), "y");
      tape.backward(y_r, tensor(y_r.shape(), rows_of(dy, rows, kN)));
      findings.expect_values(x_r.leaf()->grad, rows_of(dx, rows, kN), "dx");
      findings.expect_values(a_r.leaf()->grad, rows_of(da, half, kN), "dA, own rows");
      findings.expect_values(b_r.leaf()->grad, columns_of(db, half, kN), "dB, own columns");
      if (sequence) parallel.tp.all_reduce(bias.leaf()->grad);  // parts, of a row each
      findings.expect_values(bias.leaf()->grad, dc, "dc");
    });
  }
  CHECK(findings.wrong() == "");
}

TEST_CASE("split products: each branch communicates once forward and once backward") {
  Findings findings;
  const std::int64_t ranks = 3, wide_in = kM * kIn * 8, wide_out = kM * kOut * 8;  // bytes
  run_ranks({.ranks = static_cast<int>(ranks)}, [&](const Communicator& world) {
    Findings ignored;  // the numbers are another test's
    Parallel parallel = Parallel::start(world, {.tp = ranks}, "tp");
    const auto traffic = [&](Verb verb) { return world.ledger().of("tp", verb); };
    check_split_mlp(parallel, true, kMlp, ignored);
    findings.expect(traffic(Verb::all_reduce) == Traffic{2, wide_in + wide_out}, "all_reduce of y and of dx");
    parallel.sequence = true;
    check_split_mlp(parallel, true, kMlp, ignored);
    findings.expect(traffic(Verb::all_gather) == Traffic{2, wide_in + wide_out}, "all_gather of x and of dy");
    findings.expect(traffic(Verb::reduce_scatter) == Traffic{2, wide_in + wide_out}, "reduce_scatter of y and of dx");
  });
  CHECK(findings.wrong() == "");
}

}  // namespace isobar
