// sum_of_squares and clip_coefficient: sums of any length and range, overflow, NaN, and every branch of the clip.
#include "kernels/cases/grad_norm.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const double kInfinity = std::numeric_limits<double>::infinity();

double sum_on(Workbench& bench, const Values& x, double factor = 1) {
  const SumOfSquaresArgs a = cases::sum_of_squares({.n = x.size(), .dtype = x.dtype, .factor = factor},
                                                   bench.operands({{"x", x, x.size() % 3}}));
  ISOBAR_RUN(bench.device(), sum_of_squares, a);
  return bench.read({a.sum})[0];
}

}  // namespace

TEST_CASE("sum_of_squares adds in fp64") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (std::int64_t n : {0, 1, 31, 33, 1000, 8191, 8193, 70001, 270001}) {  // the last: over 256 blocks of a GPU
      const Values x = random_values(n, dtype, 1);
      const auto [sum_of_squares] = expected(DType::fp64, [&]<class Real>(Arithmetic<Real>) {
        Real sum = 0;
        for (std::int64_t i = 0; i < n; ++i) sum += static_cast<Real>(x[i]) * static_cast<Real>(x[i]);
        return std::array<std::vector<Real>, 1>{{{sum}}};
      });
      INFO(name_of(dtype) << ", n = " << n);
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const Verdict verdict = compare("sum", {DType::fp64, {sum_on(bench, x)}}, sum_of_squares);
        INFO(verdict.text);
        CHECK(verdict.ok);
      });
    }
}

TEST_CASE("sum_of_squares of large fp32 numbers does not overflow, of NaN and infinity is not finite") {
  const std::int64_t n = 20000;
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    CHECK(sum_on(bench, constant_values(n, DType::fp32, 0x1p100)) == 0x1p200 * static_cast<double>(n));
    for (std::int64_t where : {std::int64_t{0}, n / 2, n - 1})
      for (double bad : {kInfinity, -kInfinity, std::nan("")}) {
        Values x = random_values(n, DType::fp32, 2);
        x[where] = bad;
        CHECK(!std::isfinite(sum_on(bench, x)));
      }
  });
}

TEST_CASE("the factor of a sum of squares multiplies the sum, and hides nothing that is not finite") {
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    Values x = random_values(9001, DType::fp32, 4);
    const double sum = sum_on(bench, x);
    CHECK(sum_on(bench, x, 0.25) == 0.25 * sum);
    CHECK(sum_on(bench, x, 1.0 / 3) == 1.0 / 3 * sum);
    x[4000] = kInfinity;
    CHECK(!std::isfinite(sum_on(bench, x, 0.25)));
  });
}

TEST_CASE("sums of squares of ranges add up to that of the whole") {
  for (DType dtype : {DType::fp32, DType::fp64}) {
    const Values x = random_values(70001, dtype, 3);
    on_devices(kDevices, {dtype}, [&](Workbench& bench) {
      double added = 0;
      std::int64_t first = 0;
      for (const std::int64_t end : {1, 1, 64, 8257, 40003, 70001}) {
        added += sum_on(bench, {dtype, {x.v.begin() + first, x.v.begin() + end}});
        first = end;
      }
      const double whole = sum_on(bench, x);
      CHECK(std::fabs(added - whole) <= 1e-14 * whole);
    });
  }
}

TEST_CASE("clip_coefficient unscales, clips and marks a step to skip") {
  struct Known {
    std::vector<double> sums;  // of squares
    double unscale, max_norm, norm, grad_scale;
  };
  const double nan = std::nan("");
  const std::vector<Known> known = {
      {{4}, 1, 0, 2, 1},                                                   // no clip
      {{4}, 1, 5, 2, 1},                                                   // below the bound
      {{400}, 1, 5, 20, 5.0 / (20.0 + 1e-6)},                              // above it
      {{256, 0, 144}, 1, 5, 20, 5.0 / (20.0 + 1e-6)},                      // the root of the sum of all
      {{0x190p20}, 1.0 / 1024, 5, 20 * 1024, 5.0 / (20.0 + 1e-6) / 1024},  // of scaled gradients
      {{0x100p20, 0x90p20}, 1.0 / 1024, 5, 20 * 1024, 5.0 / (20.0 + 1e-6) / 1024},
      {{0x190p20}, 1.0 / 1024, 0, 20 * 1024, 1.0 / 1024},
      {{0}, 1, 5, 0, 1},
      {{}, 1, 5, 0, 1},  // of no gradients
      {{kInfinity}, 1, 5, kInfinity, 0},
      {{1, kInfinity}, 1.0 / 1024, 0, kInfinity, 0},
      {{nan, 1}, 1.0 / 1024, 0, nan, 0},
  };
  for (const Known& k : known)
    on_devices(kDevices, {}, [&](Workbench& bench) {
      const ClipCoefficientArgs a =
          cases::clip_coefficient({.count = std::ssize(k.sums), .unscale = k.unscale, .max_norm = k.max_norm},
                                  bench.operands({{"sums", values_of(k.sums, DType::fp64)}}));
      ISOBAR_RUN(bench.device(), clip_coefficient, a);
      const double actual = bench.read({a.grad_scale})[0];
      INFO("norm " << k.norm << ", unscale " << k.unscale << ", max_norm " << k.max_norm << ": " << actual);
      CHECK(std::fabs(actual - k.grad_scale) <= 4e-16 * k.grad_scale);
      bench.check_equal("norm", {a.norm}, values_of({k.norm}, DType::fp64));
    });
}

}  // namespace isobar::testing
