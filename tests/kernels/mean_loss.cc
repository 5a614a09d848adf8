// mean_loss: its losses and their gradients against the formulas, by finite differences, and at equality.
#include "kernels/cases/mean_loss.h"

#include <limits>
#include <stdexcept>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Case {
  std::int64_t points, channels;
  ErrorKind kind;
  double density_weight;
  DType dtype;
  std::int64_t pred_stride = channels, target_stride = channels;
  DType dpred_dtype = dtype;
  Values pred = {}, target = {};

  DType acc() const { return accumulator_of(dtype); }
};

// As outputs of tanh: exp(14·x) is far from overflow.
Case filled(Case c) {
  c.pred = uniform_values(c.points * c.pred_stride, c.dtype, 1, -0.9, 0.4);
  c.target = uniform_values(c.points * c.target_stride, c.acc(), 2, -0.8, 0.4);
  return c;
}

template <class Real>
Real density(Real x) {
  return std::exp(static_cast<Real>(kDensityScale) * x);
}

template <class Real>
Real sign(Real x) {
  return x > 0 ? Real(1) : x < 0 ? Real(-1) : Real(0);
}

// The sums, and the loss.
template <class Real>
std::array<std::vector<Real>, 2> naive_fwd(const Case& c) {
  std::vector<Real> sums(static_cast<std::size_t>(c.channels + 1), Real(0));
  Real errors = 0;
  for (std::int64_t p = 0; p < c.points; ++p) {
    const Real first = static_cast<Real>(c.pred[p * c.pred_stride]);
    const Real first_target = static_cast<Real>(c.target[p * c.target_stride]);
    if (c.density_weight != 0) sums.back() += std::abs(density(first) - density(first_target));
    for (std::int64_t i = 0; i < c.channels; ++i) {
      const Real e =
          static_cast<Real>(c.pred[p * c.pred_stride + i]) - static_cast<Real>(c.target[p * c.target_stride + i]);
      const Real term = c.kind == ErrorKind::squared ? e * e : std::abs(e);
      sums[static_cast<std::size_t>(i)] += term;
      errors += term;
    }
  }
  const Real loss = errors / static_cast<Real>(c.points * c.channels) +
                    static_cast<Real>(c.density_weight) * sums.back() / static_cast<Real>(c.points);
  return {sums, {loss}};
}

template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(const Case& c, Real upstream) {
  std::vector<Real> dpred;
  for (std::int64_t i = 0; i < c.points * c.channels; ++i) {
    const Real x = static_cast<Real>(c.pred[i]), e = x - static_cast<Real>(c.target[i]);
    Real slope = (c.kind == ErrorKind::squared ? 2 * e : sign(e)) / static_cast<Real>(c.points * c.channels);
    if (c.density_weight != 0 && i % c.channels == 0)
      slope += static_cast<Real>(c.density_weight * kDensityScale) * density(x) * sign(e) / static_cast<Real>(c.points);
    dpred.push_back(upstream * slope);
  }
  return {dpred};
}

MeanLossSumsArgs sums_arguments(const Case& c, Workbench& bench) {
  return cases::mean_loss_sums({.kind = c.kind,
                                .with_density = c.density_weight != 0,
                                .points = c.points,
                                .channels = c.channels,
                                .pred_stride = c.pred_stride,
                                .target_stride = c.target_stride,
                                .dtype = c.dtype},
                               bench.operands({{"pred", c.pred}, {"target", c.target}}));
}

MeanLossFinishArgs finish_arguments(const Case& c, const Values& sums, Workbench& bench) {
  return cases::mean_loss_finish(
      {.points = c.points, .channels = c.channels, .density_weight = c.density_weight, .dtype = c.dtype},
      bench.operands({{"sums", sums}}));
}

MeanLossBwdArgs backward_arguments(const Case& c, Workbench& bench, const Values* upstream = nullptr) {
  return cases::mean_loss_bwd({.kind = c.kind,
                               .points = c.points,
                               .channels = c.channels,
                               .density_weight = c.density_weight,
                               .dtype = c.dtype,
                               .dpred_dtype = c.dpred_dtype},
                              bench.operands({{"pred", c.pred}, {"target", c.target}, {"upstream", upstream}}));
}

Values exact_sums(const Case& c) {
  const auto exact = naive_fwd<long double>(c)[0];
  return values_of({exact.begin(), exact.end()}, DType::fp64);
}

std::string name_of_case(const Case& c) {
  return std::string(c.kind == ErrorKind::squared ? "squared, " : "absolute, ") + name_of(c.dtype) + ", " +
         std::to_string(c.points) + " points of " + std::to_string(c.channels) + ", density weight " +
         std::to_string(c.density_weight) + ", gradient in " + name_of(c.dpred_dtype);
}

template <class F>
void for_each_case(const F& f) {
  for (const ErrorKind kind : {ErrorKind::squared, ErrorKind::absolute})
    for (const double weight : {0.0, 0.3})
      for (const DType dtype : kFloating) {
        f(filled({1, 1, kind, weight, dtype}));
        f(filled({67, 5, kind, weight, dtype}));
        f(filled({4099, 5, kind, weight, dtype}));
        f(filled({31, 128, kind, weight, dtype}));  // two points a block of the GPU at a time
        f(filled({20011, 1, kind, weight, dtype}));
      }
}

}  // namespace

TEST_CASE("mean_loss_sums and mean_loss_finish follow their formulas") {
  const auto check = [](const Case& c) {
    const auto [sums, loss] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c); });
    const Values whole = exact_sums(c);
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const MeanLossSumsArgs a = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), mean_loss_sums, a);
      bench.check("sums", {a.sums}, sums);
      const MeanLossFinishArgs b = finish_arguments(c, whole, bench);
      ISOBAR_RUN(bench.device(), mean_loss_finish, b);
      bench.check("loss", {b.loss}, loss);
    });
  };
  for_each_case(check);
  // The first channels of rows that have more.
  for (const DType dtype : kFloating) check(filled({501, 4, ErrorKind::absolute, 0.2, dtype, 7, 5}));
}

TEST_CASE("mean_loss_sums of no point are zero") {
  const Case c = filled({0, 5, ErrorKind::absolute, 1, DType::fp32});
  on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
    const MeanLossSumsArgs a = sums_arguments(c, bench);
    ISOBAR_RUN(bench.device(), mean_loss_sums, a);
    bench.check_equal("sums", {a.sums}, constant_values(6, DType::fp64, 0));
    ISOBAR_RUN(bench.device(), mean_loss_bwd, backward_arguments(c, bench));
  });
}

TEST_CASE("mean_loss_bwd follows its formula, rounded for products too") {
  const Values factor = values_of({83.2}, DType::fp32), factor64 = values_of({83.2}, DType::fp64);
  const auto check = [&](const Case& c) {
    const Values& upstream = c.acc() == DType::fp64 ? factor64 : factor;
    for (const bool is_given : {false, true}) {
      const auto [dpred] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) {
        return naive_bwd<Real>(c, is_given ? static_cast<Real>(upstream[0]) : Real(1));
      });
      INFO(name_of_case(c) << ", upstream given " << is_given);
      on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
        const MeanLossBwdArgs a = backward_arguments(c, bench, is_given ? &upstream : nullptr);
        ISOBAR_RUN(bench.device(), mean_loss_bwd, a);
        bench.check("dpred", {a.dpred}, dpred);
      });
    }
  };
  for_each_case(check);
  for (const DType dpred_dtype : {DType::bf16, DType::fp16}) {
    Case c = filled({67, 5, ErrorKind::squared, 0, DType::fp32});
    c.dpred_dtype = dpred_dtype;
    check(c);
    c.dtype = c.pred.dtype = dpred_dtype;
    c.pred = values_of(c.pred.v, dpred_dtype);
    c.dpred_dtype = DType::fp32;
    on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
      const MeanLossBwdArgs a = backward_arguments(c, bench);
      CHECK_THROWS_AS(([&] { ISOBAR_RUN(bench.device(), mean_loss_bwd, a); }()), std::runtime_error);
    });
  }
}

TEST_CASE("mean_loss_bwd is the gradient of the loss, and 0 where both are equal") {
  for (const ErrorKind kind : {ErrorKind::squared, ErrorKind::absolute})
    for (const double weight : {0.0, 0.01}) {
      const Case c = filled({7, 3, kind, weight, DType::fp64});
      const Values upstream = values_of({1.7}, DType::fp64);
      Workbench bench({});
      const MeanLossBwdArgs backward = backward_arguments(c, bench, &upstream);
      cpu::mean_loss_bwd(backward);
      check_gradient(name_of_case(c), c.pred, bench.read({backward.dpred}), [&](const Values& moved) {
        Case other = c;
        other.pred = moved;
        Workbench inner({});
        const MeanLossSumsArgs a = sums_arguments(other, inner);
        cpu::mean_loss_sums(a);
        const MeanLossFinishArgs b = finish_arguments(other, inner.read({a.sums}), inner);
        cpu::mean_loss_finish(b);
        return 1.7 * inner.read({b.loss})[0];
      });
      for (const DType dtype : {DType::fp32, DType::fp64}) {
        Case same = filled({7, 3, kind, weight, dtype});
        same.target = same.pred;
        on_devices(kDevices, {dtype}, [&](Workbench& on) {
          const MeanLossBwdArgs a = backward_arguments(same, on);
          ISOBAR_RUN(on.device(), mean_loss_bwd, a);
          on.check_equal("dpred", {a.dpred}, constant_values(21, dtype, 0));
        });
      }
    }
}

TEST_CASE("mean_loss carries a NaN into the loss and its gradient") {
  for (const ErrorKind kind : {ErrorKind::squared, ErrorKind::absolute}) {
    Case c = filled({67, 5, kind, 0, DType::fp32});
    c.pred[66 * 5 + 4] = std::nan("");
    on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
      const MeanLossSumsArgs a = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), mean_loss_sums, a);
      CHECK(std::isnan(bench.read({a.sums})[4]));
      CHECK(std::isfinite(bench.read({a.sums})[3]));
      const MeanLossBwdArgs b = backward_arguments(c, bench);
      ISOBAR_RUN(bench.device(), mean_loss_bwd, b);
      CHECK(std::isnan(bench.read({b.dpred})[66 * 5 + 4]));
    });
  }
}

}  // namespace isobar::testing
