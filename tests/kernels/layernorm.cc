// layernorm: forward and backward against their formulas, with and without the residual branch; finite differences.
#include "kernels/cases/layernorm.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Pair {
  DType stream, dtype;
};
const std::vector<Pair> kPairs = {{DType::fp32, DType::fp32}, {DType::fp32, DType::bf16}, {DType::fp32, DType::fp16},
                                  {DType::bf16, DType::bf16}, {DType::fp16, DType::fp16}, {DType::fp64, DType::fp64}};

struct Shape {
  std::int64_t rows, cols;
};
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (std::int64_t cols : kRaggedCols)
    for (std::int64_t rows : kRaggedRows) all.push_back({rows, cols});
  // On a GPU: more rows than the emulator's 11 blocks take at a time, for one, four and eight warps a row, with threads
  // that own fewer columns than others; then rows that are read again, since they are not aligned or too long.
  for (Shape shape :
       {Shape{200, 132}, Shape{26, 520}, Shape{12, 1040}, Shape{150, 65}, Shape{13, 1030}, Shape{3, 4100}})
    all.push_back(shape);
  return all;
}

constexpr double kEps = 1e-6;
constexpr std::int64_t kMany = 20000;  // elements with which not every combination of arguments is tried

// Rows on which one-pass or sloppy statistics fail: a large mean, a column a thousand times the others, constant rows.
Values stream_values(Shape s, DType dtype) {
  Values x = random_values(s.rows * s.cols, dtype, 1);
  for (std::int64_t row = 0; row < s.rows; ++row)
    for (std::int64_t col = 0; col < s.cols; ++col) {
      double& value = x[row * s.cols + col];
      if (row % 4 == 1) value += 100;
      if (row % 4 == 2 && col == s.cols / 2) value *= 1000;
      if (row % 7 == 6) value = 3;
      value = round_to(value, dtype);
    }
  return x;
}

// y, mean, rstd, s
template <class Real>
std::array<std::vector<Real>, 4> naive_fwd(Shape shape, DType stream, const Values& x, const Values* branch,
                                           const Values& weight, const Values& bias) {
  std::array<std::vector<Real>, 4> out;
  auto& [y, means, rstds, sums] = out;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::vector<Real> s;
    for (std::int64_t i = row * shape.cols; i < (row + 1) * shape.cols; ++i) {
      const Real value = static_cast<Real>(x[i]) + (branch != nullptr ? static_cast<Real>((*branch)[i]) : Real(0));
      // The contract rounds s to the stream's type.
      s.push_back(is_16_bit(stream) ? static_cast<Real>(round_to(static_cast<double>(value), stream)) : value);
    }
    Real mean = 0, variance = 0;
    for (Real value : s) mean += value;
    mean /= static_cast<Real>(shape.cols);
    for (Real value : s) variance += (value - mean) * (value - mean);
    variance /= static_cast<Real>(shape.cols);
    const Real rstd = Real(1) / std::sqrt(variance + static_cast<Real>(kEps));
    for (std::int64_t c = 0; c < shape.cols; ++c)
      y.push_back((s[static_cast<std::size_t>(c)] - mean) * rstd * static_cast<Real>(weight[c]) +
                  static_cast<Real>(bias[c]));
    means.push_back(mean);
    rstds.push_back(rstd);
    sums.insert(sums.end(), s.begin(), s.end());
  }
  return out;
}

struct Backward {
  Shape shape;
  Values dy = {}, x = {}, weight = {}, mean = {}, rstd = {}, dsum = {}, dweight = {},
         dbias = {};  // the last two: what is there before
  bool has_dsum, accumulate;
};

// dx, dweight, dbias
template <class Real>
std::array<std::vector<Real>, 3> naive_bwd(const Backward& b) {
  const std::int64_t cols = b.shape.cols;
  std::array<std::vector<Real>, 3> out;
  auto& [dx, dweight, dbias] = out;
  for (std::int64_t c = 0; c < cols; ++c) {
    dweight.push_back(b.accumulate ? static_cast<Real>(b.dweight[c]) : Real(0));
    dbias.push_back(b.accumulate ? static_cast<Real>(b.dbias[c]) : Real(0));
  }
  for (std::int64_t row = 0; row < b.shape.rows; ++row) {
    const Real mean = static_cast<Real>(b.mean[row]), rstd = static_cast<Real>(b.rstd[row]);
    const auto h = [&](std::int64_t c) { return (static_cast<Real>(b.x[row * cols + c]) - mean) * rstd; };
    const auto g = [&](std::int64_t c) {
      return static_cast<Real>(b.dy[row * cols + c]) * static_cast<Real>(b.weight[c]);
    };
    Real mean_g = 0, mean_gh = 0;
    for (std::int64_t c = 0; c < cols; ++c) mean_g += g(c), mean_gh += g(c) * h(c);
    mean_g /= static_cast<Real>(cols);
    mean_gh /= static_cast<Real>(cols);
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t i = row * cols + c;
      // Fused, as compilers do it: at one column the exact answer is 0 and the product's rounding is all there is.
      const Real centred = std::fma(static_cast<Real>(b.dy[i]), static_cast<Real>(b.weight[c]), -mean_g);
      dx.push_back(rstd * (centred - h(c) * mean_gh) + (b.has_dsum ? static_cast<Real>(b.dsum[i]) : Real(0)));
      dweight[static_cast<std::size_t>(c)] += static_cast<Real>(b.dy[i]) * h(c);
      dbias[static_cast<std::size_t>(c)] += static_cast<Real>(b.dy[i]);
    }
  }
  return out;
}

Backward backward_case(Shape shape, Pair pair, bool has_dsum, bool accumulate) {
  const std::int64_t n = shape.rows * shape.cols;
  const DType acc = accumulator_of(pair.stream);
  Backward b{.shape = shape,
             .dy = random_values(n, pair.dtype, 11),
             .x = stream_values(shape, pair.stream),
             .weight = random_values(shape.cols, acc, 12, 0.5, 1),
             .dsum = random_values(n, pair.stream, 13),
             .dweight = random_values(shape.cols, acc, 14),
             .dbias = random_values(shape.cols, acc, 15),
             .has_dsum = has_dsum,
             .accumulate = accumulate};
  const auto forward = naive_fwd<long double>(shape, pair.stream, b.x, nullptr, b.weight, b.weight);
  b.mean = values_of({forward[1].begin(), forward[1].end()}, acc);
  b.rstd = values_of({forward[2].begin(), forward[2].end()}, acc);
  return b;
}

LayernormFwdArgs forward_sizes(Shape shape, Pair pair) {
  return {.rows = shape.rows, .cols = shape.cols, .stream_dtype = pair.stream, .dtype = pair.dtype, .eps = kEps};
}

}  // namespace

TEST_CASE("layernorm_fwd follows its formula") {
  for (Pair pair : kPairs)
    for (Shape shape : shapes())
      for (bool has_branch : {false, true})
        for (bool has_sum : {false, true}) {
          const std::int64_t n = shape.rows * shape.cols;
          if (n > kMany && has_branch != has_sum) continue;
          const DType acc = accumulator_of(pair.stream);
          const Values x = stream_values(shape, pair.stream), branch = random_values(n, pair.dtype, 2);
          const Values weight = random_values(shape.cols, acc, 3, 0.5, 1), bias = random_values(shape.cols, acc, 4);
          const auto [y, mean, rstd, sum] = expected(pair.stream, [&]<class Real>(Arithmetic<Real>) {
            return naive_fwd<Real>(shape, pair.stream, x, has_branch ? &branch : nullptr, weight, bias);
          });
          INFO(name_of(pair.stream) << "/" << name_of(pair.dtype) << ", " << shape.rows << " x " << shape.cols
                                    << ", branch " << has_branch << ", sum " << has_sum);
          on_devices(kDevices, {pair.stream}, [&](Workbench& bench) {
            const LayernormFwdArgs a = cases::layernorm_fwd(forward_sizes(shape, pair),
                                                            bench.operands({{"x", x},
                                                                            {"branch", has_branch ? &branch : nullptr},
                                                                            {"weight", weight},
                                                                            {"bias", bias},
                                                                            {"sum", has_sum}}));
            ISOBAR_RUN(bench.device(), layernorm_fwd, a);
            bench.check("y", {a.y}, y);
            bench.check("mean", {a.mean}, mean);
            bench.check("rstd", {a.rstd}, rstd);
            if (has_sum) bench.check("sum", {a.sum}, sum, Norm::ulps);
          });
        }
}

TEST_CASE("layernorm_fwd may write the sum over x") {
  for (Pair pair : kPairs) {
    const Shape shape{67, 33};
    const std::int64_t n = shape.rows * shape.cols;
    const DType acc = accumulator_of(pair.stream);
    const Values x = stream_values(shape, pair.stream), branch = random_values(n, pair.dtype, 2);
    const Values weight = random_values(shape.cols, acc, 3, 0.5, 1), bias = random_values(shape.cols, acc, 4);
    const auto [y, mean, rstd, sum] = expected(pair.stream, [&]<class Real>(Arithmetic<Real>) {
      return naive_fwd<Real>(shape, pair.stream, x, &branch, weight, bias);
    });
    INFO(name_of(pair.stream) << "/" << name_of(pair.dtype));
    on_devices(kDevices, {pair.stream}, [&](Workbench& bench) {
      const Pointer over = bench.in_out(x);
      const LayernormFwdArgs a = cases::layernorm_fwd(
          forward_sizes(shape, pair),
          bench.operands({{"x", over}, {"branch", branch}, {"weight", weight}, {"bias", bias}, {"sum", over}}));
      ISOBAR_RUN(bench.device(), layernorm_fwd, a);
      bench.check("y", {a.y}, y);
      bench.check("sum", over, sum, Norm::ulps);
    });
  }
}

TEST_CASE("layernorm_fwd keeps NaN and infinity within their rows") {
  for (Pair pair : kPairs) {
    const Shape shape{5, 40};
    const DType acc = accumulator_of(pair.stream);
    Values x = random_values(200, pair.stream, 1);
    x[1 * 40 + 39] = std::nan("");
    x[3 * 40] = std::numeric_limits<double>::infinity();
    const Values weight = random_values(40, acc, 3), bias = random_values(40, acc, 4);
    const auto [y, mean, rstd, sum] = expected(pair.stream, [&]<class Real>(Arithmetic<Real>) {
      return naive_fwd<Real>(shape, pair.stream, x, nullptr, weight, bias);
    });
    on_devices(kDevices, {pair.stream}, [&](Workbench& bench) {
      const LayernormFwdArgs a = cases::layernorm_fwd(forward_sizes(shape, pair),
                                                      bench.operands({{"x", x}, {"weight", weight}, {"bias", bias}}));
      ISOBAR_RUN(bench.device(), layernorm_fwd, a);
      bench.check("y", {a.y}, y);
    });
  }
}

TEST_CASE("layernorm_bwd follows its formula") {
  for (Pair pair : kPairs)
    for (Shape shape : shapes())
      for (bool has_dsum : {false, true}) {
        if (shape.rows * shape.cols > kMany && !has_dsum) continue;
        const bool accumulate = (shape.rows + has_dsum) % 2 == 0;
        const Backward b = backward_case(shape, pair, has_dsum, accumulate);
        const auto [dx, dweight, dbias] =
            expected(pair.stream, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(b); });
        const std::int64_t n = shape.rows * shape.cols;
        INFO(name_of(pair.stream) << "/" << name_of(pair.dtype) << ", " << shape.rows << " x " << shape.cols
                                  << ", dsum " << has_dsum << ", accumulate " << accumulate);
        on_devices(kDevices, {pair.stream}, [&](Workbench& bench) {
          // In place over dsum where there is one; with the copy for the branch, but not always.
          const bool has_dbranch = !has_dsum || shape.cols % 2 == 1;
          const Pointer dx_out = has_dsum ? bench.in_out(b.dsum) : bench.output(n, pair.stream);
          const LayernormBwdArgs a = cases::layernorm_bwd({.rows = shape.rows,
                                                           .cols = shape.cols,
                                                           .stream_dtype = pair.stream,
                                                           .dtype = pair.dtype,
                                                           .mode = accumulate ? Grad::accumulate : Grad::overwrite},
                                                          bench.operands({{"dy", b.dy},
                                                                          {"x", b.x},
                                                                          {"weight", b.weight},
                                                                          {"mean", b.mean},
                                                                          {"rstd", b.rstd},
                                                                          {"dsum", has_dsum ? dx_out : Pointer{}},
                                                                          {"dx", dx_out},
                                                                          {"dbranch", has_dbranch},
                                                                          {"dweight", b.dweight},
                                                                          {"dbias", b.dbias}}));
          ISOBAR_RUN(bench.device(), layernorm_bwd, a);
          bench.check("dx", {a.dx}, dx);
          bench.check("dweight", {a.dweight}, dweight);
          bench.check("dbias", {a.dbias}, dbias);
          if (has_dbranch) bench.check_equal("dbranch", {a.dbranch}, values_of(bench.read({a.dx}).v, pair.dtype));
        });
      }
}

TEST_CASE("layernorm_bwd is the gradient of layernorm_fwd") {
  const Shape shape{5, 9};
  const std::int64_t n = shape.rows * shape.cols;
  const Values x = random_values(n, DType::fp64, 21), branch = random_values(n, DType::fp64, 22);
  const Values weight = random_values(9, DType::fp64, 23), bias = random_values(9, DType::fp64, 24);
  const Values dy = random_values(n, DType::fp64, 25), dsum = random_values(n, DType::fp64, 26);

  struct Forward {
    Values y, sum, mean, rstd;
  };
  const auto forward = [&](const Values& x_, const Values& branch_, const Values& weight_, const Values& bias_) {
    Workbench bench({});
    const LayernormFwdArgs a = cases::layernorm_fwd(
        forward_sizes(shape, {DType::fp64, DType::fp64}),
        bench.operands({{"x", x_}, {"branch", branch_}, {"weight", weight_}, {"bias", bias_}, {"sum"}}));
    cpu::layernorm_fwd(a);
    return Forward{bench.read({a.y}), bench.read({a.sum}), bench.read({a.mean}), bench.read({a.rstd})};
  };
  const auto loss = [&](const Forward& f) { return dot(f.y, dy) + dot(f.sum, dsum); };

  const Forward f = forward(x, branch, weight, bias);
  Workbench bench({});
  const LayernormBwdArgs a = cases::layernorm_bwd(
      {.rows = 5, .cols = 9, .stream_dtype = DType::fp64, .dtype = DType::fp64}, bench.operands({{"dy", dy},
                                                                                                 {"x", f.sum},
                                                                                                 {"weight", weight},
                                                                                                 {"mean", f.mean},
                                                                                                 {"rstd", f.rstd},
                                                                                                 {"dsum", dsum},
                                                                                                 {"dbranch"}}));
  cpu::layernorm_bwd(a);
  check_gradient("dx", x, bench.read({a.dx}), [&](const Values& v) { return loss(forward(v, branch, weight, bias)); });
  check_gradient("dbranch", branch, bench.read({a.dbranch}),
                 [&](const Values& v) { return loss(forward(x, v, weight, bias)); });
  check_gradient("dweight", weight, bench.read({a.dweight}),
                 [&](const Values& v) { return loss(forward(x, branch, v, bias)); });
  check_gradient("dbias", bias, bench.read({a.dbias}),
                 [&](const Values& v) { return loss(forward(x, branch, weight, v)); });
}

}  // namespace isobar::testing
