// elementwise: cast, fill, add, add_row against their formulas, for every combination of dtypes.
#include "kernels/cases/elementwise.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

// Where an op on these dtypes computes.
DType computed_in(std::initializer_list<DType> dtypes) {
  for (DType dtype : dtypes)
    if (dtype == DType::fp64) return DType::fp64;
  return DType::fp32;
}

template <class Real>
std::array<std::vector<Real>, 1> naive_add_row(const Values& x, const Values& row) {
  std::vector<Real> y;
  for (std::int64_t i = 0; i < x.size(); ++i)
    y.push_back(static_cast<Real>(x[i]) + static_cast<Real>(row[i % row.size()]));
  return {y};
}

const double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<double> kSpecial = {0.0,     -0.0,  1e-8,      -3e-6,      65504.0,
                                      65520.0, -1e30, kInfinity, -kInfinity, std::nan("")};

}  // namespace

TEST_CASE("cast rounds once, between all dtypes") {
  for (DType from : kFloating)
    for (DType to : kFloating)
      for (std::int64_t n : kRaggedLengths) {
        Values x = random_values(n, from, 1);
        for (std::size_t i = 0; i < kSpecial.size() && n > 100; ++i) x.v[i * 7] = round_to(kSpecial[i], from);
        INFO(name_of(from) << " -> " << name_of(to) << ", n = " << n);
        on_devices(kDevices, {from, to}, [&](Workbench& bench) {
          const CastArgs a = cases::cast({.n = n, .x_dtype = from, .y_dtype = to},
                                         bench.operands({{"x", x, n % 2}, {"y", bench.output(n, to, n % 3)}}));
          ISOBAR_RUN(bench.device(), cast, a);
          bench.check_equal("y", {a.y}, values_of(x.v, to));
        });
      }
}

TEST_CASE("fill writes n elements and no more") {
  for (DType dtype : kFloating)
    for (std::int64_t n : kRaggedLengths)
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const FillArgs a = cases::fill({.n = n, .dtype = dtype, .value = 1.0 / 3},
                                       bench.operands({{"y", bench.output(n, dtype, n % 3)}}));
        ISOBAR_RUN(bench.device(), fill, a);
        bench.check_equal("y", {a.y}, constant_values(n, dtype, 1.0 / 3));
      });
}

TEST_CASE("add takes operands of any dtypes") {
  for (DType a_dtype : kFloating)
    for (DType b_dtype : kFloating)
      for (DType y_dtype : kFloating)
        for (std::int64_t n : {0, 1, 9, 1000, 4099}) {
          Values a = random_values(n, a_dtype, 2);
          const Values b = random_values(n, b_dtype, 3);
          if (n > 900) a[500] = std::nan(""), a[501] = kInfinity;
          const auto [y] = expected(computed_in({a_dtype, b_dtype, y_dtype}),
                                    [&]<class Real>(Arithmetic<Real>) { return naive_add_row<Real>(a, b); });
          INFO(name_of(a_dtype) << " + " << name_of(b_dtype) << " -> " << name_of(y_dtype) << ", n = " << n);
          on_devices(kDevices, {a_dtype, b_dtype, y_dtype}, [&](Workbench& bench) {
            const AddArgs args = cases::add({.n = n, .a_dtype = a_dtype, .b_dtype = b_dtype, .y_dtype = y_dtype},
                                            bench.operands({{"a", a}, {"b", b, n % 2}}));
            ISOBAR_RUN(bench.device(), add, args);
            bench.check("y", {args.y}, y, Norm::ulps);
          });
        }
}

TEST_CASE("add may write over either operand") {
  for (DType dtype : kFloating)
    for (std::int64_t n : {33, 4099, 70001}) {
      const Values a = random_values(n, dtype, 4), b = random_values(n, DType::fp32, 5);
      const auto [y] =
          expected(computed_in({dtype}), [&]<class Real>(Arithmetic<Real>) { return naive_add_row<Real>(a, b); });
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        auto first = bench.in_out(a), second = bench.in_out(a);
        auto other = bench.input(b);
        const AddArgs over_a = cases::add({.n = n, .a_dtype = dtype, .b_dtype = DType::fp32, .y_dtype = dtype},
                                          bench.operands({{"a", first}, {"b", other}, {"y", first}}));
        ISOBAR_RUN(bench.device(), add, over_a);
        const AddArgs over_b = cases::add({.n = n, .a_dtype = DType::fp32, .b_dtype = dtype, .y_dtype = dtype},
                                          bench.operands({{"a", other}, {"b", second}, {"y", second}}));
        ISOBAR_RUN(bench.device(), add, over_b);
        bench.check("a over a", first, y, Norm::ulps);
        bench.check("b over b", second, y, Norm::ulps);
      });
    }
}

TEST_CASE("add_row adds one row to every group") {
  for (DType x_dtype : kFloating)
    for (DType row_dtype : kFloating)
      for (DType y_dtype : {x_dtype, DType::fp32})
        for (std::int64_t groups : {0, 1, 3, 17})
          for (std::int64_t n : {1, 33, 1000, 1031}) {
            const Values x = random_values(groups * n, x_dtype, 6), row = random_values(n, row_dtype, 7);
            const auto [y] = expected(computed_in({x_dtype, row_dtype, y_dtype}),
                                      [&]<class Real>(Arithmetic<Real>) { return naive_add_row<Real>(x, row); });
            INFO(name_of(x_dtype) << " + " << name_of(row_dtype) << ", " << groups << " x " << n);
            on_devices(kDevices, {x_dtype, row_dtype, y_dtype}, [&](Workbench& bench) {
              const bool in_place = x_dtype == y_dtype;
              auto from = in_place ? bench.in_out(x) : bench.input(x);
              auto out = in_place ? from : bench.output(groups * n, y_dtype);
              const AddRowArgs a = cases::add_row(
                  {.groups = groups, .n = n, .x_dtype = x_dtype, .row_dtype = row_dtype, .y_dtype = y_dtype},
                  bench.operands({{"x", from}, {"row", row}, {"y", out}}));
              ISOBAR_RUN(bench.device(), add_row, a);
              bench.check("y", out, y, Norm::ulps);
            });
          }
}

}  // namespace isobar::testing
