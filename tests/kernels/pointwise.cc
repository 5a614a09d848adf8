// pointwise: relu, leaky_relu and tanh, forward and backward, against their formulas; finite differences.
#include "kernels/cases/pointwise.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const std::vector<Pointwise> kKinds = {Pointwise::relu, Pointwise::leaky_relu, Pointwise::tanh};

template <class Real>
Real naive_value(Pointwise kind, Real x) {
  if (kind == Pointwise::tanh) return std::tanh(x);
  if (std::isnan(x)) return x;
  return x > 0 ? x : kind == Pointwise::relu ? Real(0) : static_cast<Real>(0.01L) * x;
}

template <class Real>
Real naive_slope(Pointwise kind, Real y) {
  if (kind == Pointwise::tanh) return Real(1) - y * y;
  return y > 0 ? Real(1) : kind == Pointwise::relu ? Real(0) : static_cast<Real>(0.01L);
}

template <class Real>
std::array<std::vector<Real>, 1> naive_fwd(Pointwise kind, const Values& x) {
  std::array<std::vector<Real>, 1> y;
  for (std::int64_t i = 0; i < x.size(); ++i) y[0].push_back(naive_value(kind, static_cast<Real>(x[i])));
  return y;
}

template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(Pointwise kind, const Values& dy, const Values& y) {
  std::array<std::vector<Real>, 1> dx;
  for (std::int64_t i = 0; i < y.size(); ++i)
    dx[0].push_back(static_cast<Real>(dy[i]) * naive_slope(kind, static_cast<Real>(y[i])));
  return dx;
}

// Both signs, zeros, what tanh makes of large and of small numbers, infinities and a NaN.
Values inputs(std::int64_t n, DType dtype) {
  Values x = random_values(n, dtype, 1, 2);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> special = {0.0, -0.0, 1e-6, -1e-6, 0.6, -0.6, 9.5, -40, infinity, -infinity, std::nan("")};
  for (std::size_t i = 0; i < special.size() && n > 500; ++i) x.v[i * 31] = round_to(special[i], dtype);
  return x;
}

}  // namespace

TEST_CASE("pointwise_fwd follows its formula") {
  for (const Pointwise kind : kKinds)
    for (const DType dtype : kFloating)
      for (const std::int64_t n : kRaggedLengths) {
        const Values x = inputs(n, dtype);
        const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(kind, x); });
        INFO(name_of(kind) << ", " << name_of(dtype) << ", n = " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const PointwiseFwdArgs sizes = {.n = n, .dtype = dtype, .kind = kind};
          const PointwiseFwdArgs a = cases::pointwise_fwd(sizes, bench.operands({{"x", x, n % 2}}));
          ISOBAR_RUN(bench.device(), pointwise_fwd, a);
          bench.check("y", {a.y}, y);
          const Pointer over = bench.in_out(x);
          const PointwiseFwdArgs in_place = cases::pointwise_fwd(sizes, bench.operands({{"x", over}, {"y", over}}));
          ISOBAR_RUN(bench.device(), pointwise_fwd, in_place);
          bench.check("y over x", over, y);
        });
      }
}

TEST_CASE("pointwise_bwd follows its formula") {
  for (const Pointwise kind : kKinds)
    for (const DType dtype : kFloating)
      for (const std::int64_t n : kRaggedLengths) {
        const Values y = uniform_values(n, dtype, 1, -1, 1), dy = random_values(n, dtype, 2);
        const auto [dx] = expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(kind, dy, y); });
        INFO(name_of(kind) << ", " << name_of(dtype) << ", n = " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const PointwiseBwdArgs sizes = {.n = n, .dtype = dtype, .kind = kind};
          const PointwiseBwdArgs a = cases::pointwise_bwd(sizes, bench.operands({{"dy", dy, n % 2}, {"y", y}}));
          ISOBAR_RUN(bench.device(), pointwise_bwd, a);
          bench.check("dx", {a.dx}, dx);
          const Pointer over = bench.in_out(dy);
          const PointwiseBwdArgs in_place =
              cases::pointwise_bwd(sizes, bench.operands({{"dy", over}, {"y", y}, {"dx", over}}));
          ISOBAR_RUN(bench.device(), pointwise_bwd, in_place);
          bench.check("dx over dy", over, dx);
        });
      }
}

TEST_CASE("pointwise_bwd is the gradient of pointwise_fwd, made of its output") {
  const std::int64_t n = 41;
  const Values x = random_values(n, DType::fp64, 3), dy = random_values(n, DType::fp64, 4);
  for (const Pointwise kind : kKinds) {
    Workbench bench({});
    const PointwiseFwdArgs a =
        cases::pointwise_fwd({.n = n, .dtype = DType::fp64, .kind = kind}, bench.operands({{"x", x}}));
    cpu::pointwise_fwd(a);
    const Values y = bench.read({a.y});
    const PointwiseBwdArgs back =
        cases::pointwise_bwd({.n = n, .dtype = DType::fp64, .kind = kind}, bench.operands({{"dy", dy}, {"y", y}}));
    cpu::pointwise_bwd(back);
    check_gradient(name_of(kind), x, bench.read({back.dx}), [&](const Values& moved) {
      Workbench forward({});
      const PointwiseFwdArgs again =
          cases::pointwise_fwd({.n = n, .dtype = DType::fp64, .kind = kind}, forward.operands({{"x", moved}}));
      cpu::pointwise_fwd(again);
      return dot(forward.read({again.y}), dy);
    });
  }
}

}  // namespace isobar::testing
