// gelu: both kinds, forward and backward, against libm; finite differences.
#include "kernels/cases/gelu.h"

#include <algorithm>
#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const std::vector<Activation> kKinds = {Activation::gelu_erf, Activation::gelu_tanh};

const char* name_of_kind(Activation kind) {
  return kind == Activation::gelu_erf ? "erf" : "tanh";
}

template <class Real>
Real naive_tanh_argument(Real x) {
  return std::sqrt(Real(2) / static_cast<Real>(3.14159265358979323846264338327950288L)) *
         (x + static_cast<Real>(0.044715L) * x * x * x);
}

template <class Real>
std::array<std::vector<Real>, 1> naive_fwd(Activation kind, const Values& values) {
  std::array<std::vector<Real>, 1> y;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const Real x = static_cast<Real>(values[i]);
    y[0].push_back(kind == Activation::gelu_erf ? x * (Real(0.5) * (Real(1) + std::erf(x / std::sqrt(Real(2)))))
                                                : Real(0.5) * x * (Real(1) + std::tanh(naive_tanh_argument(x))));
  }
  return y;
}

template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(Activation kind, const Values& dy, const Values& values) {
  const Real pi = static_cast<Real>(3.14159265358979323846264338327950288L);
  std::array<std::vector<Real>, 1> dx;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const Real x = static_cast<Real>(values[i]);
    Real slope;
    if (kind == Activation::gelu_erf) {
      slope = Real(0.5) * (Real(1) + std::erf(x / std::sqrt(Real(2)))) + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
    } else {
      const Real t = std::tanh(naive_tanh_argument(x));
      const Real inner = std::sqrt(Real(2) / pi) * (Real(1) + 3 * static_cast<Real>(0.044715L) * x * x);
      slope = Real(0.5) * (Real(1) + t) + Real(0.5) * x * (Real(1) - t * t) * inner;
    }
    dx[0].push_back(static_cast<Real>(dy[i]) * slope);
  }
  return dx;
}

// Every magnitude: the bulk, both tails, zeros, infinities and a NaN.
Values inputs(std::int64_t n, DType dtype) {
  Values x = random_values(n, dtype, 1, 3);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> special = {0.0, -0.0, 1e-7, -1e-7, 20.0, -20.0, -13.0, -9.5, infinity, std::nan("")};
  for (std::size_t i = 0; i < special.size() && n > 500; ++i) x.v[i * 31] = round_to(special[i], dtype);
  return x;
}

}  // namespace

TEST_CASE("gelu_fwd follows its formula") {
  for (Activation kind : kKinds)
    for (DType dtype : kFloating)
      for (std::int64_t n : kRaggedLengths) {
        const Values x = inputs(n, dtype);
        const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(kind, x); });
        INFO(name_of_kind(kind) << ", " << name_of(dtype) << ", n = " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const GeluFwdArgs sizes = {.n = n, .dtype = dtype, .kind = kind};
          const GeluFwdArgs a = cases::gelu_fwd(sizes, bench.operands({{"x", x, n % 2}}));
          ISOBAR_RUN(bench.device(), gelu_fwd, a);
          bench.check("y", {a.y}, y);
          const Pointer over = bench.in_out(x);
          const GeluFwdArgs in_place = cases::gelu_fwd(sizes, bench.operands({{"x", over}, {"y", over}}));
          ISOBAR_RUN(bench.device(), gelu_fwd, in_place);
          bench.check("y over x", over, y);
        });
      }
}

TEST_CASE("gelu_fwd in fp32 keeps its relative accuracy in the bulk and in the negative tail") {
  std::vector<double> points;
  for (double x = -9; x < 9; x += 1.0 / 512) points.push_back(x);
  const Values x = values_of(points, DType::fp32);
  for (Activation kind : kKinds)
    on_devices(cpu_only(), {DType::fp32}, [&](Workbench& bench) {  // CUDA's erff is accurate to absolute ulps only
      const GeluFwdArgs a = cases::gelu_fwd({.n = x.size(), .kind = kind}, bench.operands({{"x", x}}));
      ISOBAR_RUN(bench.device(), gelu_fwd, a);
      const Values y = bench.read({a.y});
      double worst = 0, where = 0;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double exponent = kind == Activation::gelu_erf ? x[i] * x[i] / 2 : -2 * naive_tanh_argument(x[i]);
        const double exact = kind == Activation::gelu_erf ? x[i] * 0.5 * std::erfc(-x[i] / std::sqrt(2.0))
                                                          : x[i] / (1 + std::exp(exponent));
        // Four ulp, and what the rounding of the exponent costs any implementation in fp32; nothing below the normals.
        const double budget = (2 + std::max(exponent, 0.0)) * 0x1p-22 * std::fabs(exact) + 0x1p-126;
        const double share = std::fabs(y[i] - exact) / budget;
        if (!(share <= worst)) {
          worst = share;
          where = x[i];
        }
      }
      INFO(name_of_kind(kind) << ": " << worst << " times the bound at x = " << where);
      CHECK(worst <= 1);
    });
}

TEST_CASE("gelu_fwd is the identity far above zero and vanishes far below") {
  for (Activation kind : kKinds)
    for (DType dtype : kFloating) {
      const Values x = values_of({60000, 1000, 30, -30, -1000, -60000}, dtype);
      const Values y = values_of({60000, 1000, 30, 0, 0, 0}, dtype);
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const GeluFwdArgs a = cases::gelu_fwd({.n = 6, .dtype = dtype, .kind = kind}, bench.operands({{"x", x}}));
        ISOBAR_RUN(bench.device(), gelu_fwd, a);
        const Values actual = bench.read({a.y});
        for (std::int64_t i = 0; i < 6; ++i) CHECK(std::fabs(actual[i] - y[i]) <= 1e-150);
      });
    }
}

TEST_CASE("gelu_bwd follows its formula") {
  for (Activation kind : kKinds)
    for (DType dtype : kFloating)
      for (std::int64_t n : kRaggedLengths) {
        const Values x = inputs(n, dtype), dy = random_values(n, dtype, 2);
        const auto [dx] = expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(kind, dy, x); });
        INFO(name_of_kind(kind) << ", " << name_of(dtype) << ", n = " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const GeluBwdArgs sizes = {.n = n, .dtype = dtype, .kind = kind};
          const GeluBwdArgs a = cases::gelu_bwd(sizes, bench.operands({{"dy", dy, n % 2}, {"x", x}}));
          ISOBAR_RUN(bench.device(), gelu_bwd, a);
          bench.check("dx", {a.dx}, dx);
          const Pointer over = bench.in_out(dy);
          const GeluBwdArgs in_place = cases::gelu_bwd(sizes, bench.operands({{"dy", over}, {"x", x}, {"dx", over}}));
          ISOBAR_RUN(bench.device(), gelu_bwd, in_place);
          bench.check("dx over dy", over, dx);
        });
      }
}

TEST_CASE("gelu_bwd is the gradient of gelu_fwd") {
  const std::int64_t n = 41;
  const Values x = random_values(n, DType::fp64, 3, 2), dy = random_values(n, DType::fp64, 4);
  for (Activation kind : kKinds) {
    Workbench bench({});
    const GeluBwdArgs back =
        cases::gelu_bwd({.n = n, .dtype = DType::fp64, .kind = kind}, bench.operands({{"dy", dy}, {"x", x}}));
    cpu::gelu_bwd(back);
    check_gradient(name_of_kind(kind), x, bench.read({back.dx}), [&](const Values& moved) {
      Workbench forward({});
      const GeluFwdArgs a =
          cases::gelu_fwd({.n = n, .dtype = DType::fp64, .kind = kind}, forward.operands({{"x", moved}}));
      cpu::gelu_fwd(a);
      return dot(forward.read({a.y}), dy);
    });
  }
}

}  // namespace isobar::testing
