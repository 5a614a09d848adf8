// forecast_loss: the three losses and their gradients against the formulas, with and without weights.
#include "kernels/forecast_loss.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const std::vector<LossKind> kKinds = {LossKind::relative_l2, LossKind::weighted_mse, LossKind::relative_l2_weighted};

struct Case {
  std::int64_t batch, channels, height, width;
  LossKind kind;
  DType dtype;
  bool has_rows, has_channels;
  Values pred = {}, target = {}, rows = {}, cols = {};

  std::int64_t sample() const { return channels * height * width; }
  std::int64_t size() const { return batch * sample(); }
  DType acc() const { return accumulator_of(dtype); }

  template <class Real>
  Real weight(std::int64_t i) const {
    if (kind == LossKind::relative_l2) return Real(1);
    return (has_rows ? static_cast<Real>(rows[i / width % height]) : Real(1)) *
           (has_channels ? static_cast<Real>(cols[i / width / height % channels]) : Real(1));
  }
};

Case filled(Case c) {
  c.target = random_values(c.size(), c.acc(), 1, 1, 0.3);
  c.pred = random_values(c.size(), c.dtype, 2);
  for (std::int64_t i = 0; i < c.size(); ++i) c.pred[i] = round_to(c.target[i] + 0.3 * c.pred[i], c.dtype);
  c.rows = uniform_values(c.height, c.acc(), 3, 0.1, 2);
  c.cols = uniform_values(c.channels, c.acc(), 4, 0.2, 3);
  return c;
}

std::string name_of_case(const Case& c) {
  const char* kind = c.kind == LossKind::relative_l2    ? "relative_l2"
                     : c.kind == LossKind::weighted_mse ? "weighted_mse"
                                                        : "relative_l2_weighted";
  return std::string(kind) + ", " + name_of(c.dtype) + ", " + std::to_string(c.batch) + " x " +
         std::to_string(c.channels) + " x " + std::to_string(c.height) + " x " + std::to_string(c.width) +
         ", row weights " + std::to_string(c.has_rows) + ", channel weights " + std::to_string(c.has_channels);
}

// (E, T) of every sample, and the loss
template <class Real>
std::array<std::vector<Real>, 2> naive_fwd(const Case& c) {
  std::vector<Real> sums;
  Real loss = 0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    Real error = 0, square = 0;
    for (std::int64_t i = b * c.sample(); i < (b + 1) * c.sample(); ++i) {
      const Real e = static_cast<Real>(c.pred[i]) - static_cast<Real>(c.target[i]);
      error += c.weight<Real>(i) * e * e;
      square += c.weight<Real>(i) * static_cast<Real>(c.target[i]) * static_cast<Real>(c.target[i]);
    }
    sums.push_back(error);
    sums.push_back(square);
    loss +=
        c.kind == LossKind::weighted_mse ? error / static_cast<Real>(c.sample()) : std::sqrt(error) / std::sqrt(square);
  }
  return {sums, {loss / static_cast<Real>(c.batch)}};
}

template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(const Case& c, const Values& sums, Real upstream) {
  std::array<std::vector<Real>, 1> dpred;
  for (std::int64_t i = 0; i < c.size(); ++i) {
    const std::int64_t b = i / c.sample();
    const Real error = static_cast<Real>(sums[2 * b]), square = static_cast<Real>(sums[2 * b + 1]);
    const Real e = static_cast<Real>(c.pred[i]) - static_cast<Real>(c.target[i]);
    Real slope = 2 / static_cast<Real>(c.size());
    if (c.kind != LossKind::weighted_mse)
      slope = error == 0 ? Real(0) : 1 / (static_cast<Real>(c.batch) * std::sqrt(error) * std::sqrt(square));
    dpred[0].push_back(upstream * slope * c.weight<Real>(i) * e);
  }
  return dpred;
}

ForecastLossFwd forward_arguments(const Case& c, Workbench& bench) {
  return {.kind = c.kind,
          .batch = c.batch,
          .channels = c.channels,
          .height = c.height,
          .width = c.width,
          .dtype = c.dtype,
          .pred = bench.input(c.pred),
          .target = bench.input(c.target),
          .row_weights = c.has_rows ? bench.input(c.rows) : Pointer{},
          .channel_weights = c.has_channels ? bench.input(c.cols) : Pointer{},
          .sums = bench.output(2 * c.batch, c.acc()),
          .loss = bench.output(1, c.acc()),
          .workspace = bench.workspace(forecast_loss_workspace(c.batch))};
}

ForecastLossBwd backward_arguments(const Case& c, const Values& sums, Workbench& bench) {
  return {.kind = c.kind,
          .batch = c.batch,
          .channels = c.channels,
          .height = c.height,
          .width = c.width,
          .dtype = c.dtype,
          .pred = bench.input(c.pred),
          .target = bench.input(c.target),
          .row_weights = c.has_rows ? bench.input(c.rows) : Pointer{},
          .channel_weights = c.has_channels ? bench.input(c.cols) : Pointer{},
          .sums = bench.input(sums),
          .dpred = bench.output(c.size(), c.dtype)};
}

template <class F>
void for_each_case(const F& f) {
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating)
      for (bool weighted : {false, true}) {
        f(filled({1, 1, 1, 1, kind, dtype, weighted, weighted}));
        f(filled({3, 5, 7, 33, kind, dtype, weighted, true}));
        f(filled({2, 20, 13, 52, kind, dtype, true, weighted}));
        // More samples than a block has warps or the emulator's grids have blocks; rows for over 32 blocks of a GPU.
        f(filled({13, 1, 31, 1, kind, dtype, weighted, weighted}));
        f(filled({1, 43, 31, 3, kind, dtype, weighted, true}));
      }
}

}  // namespace

TEST_CASE("forecast_loss_fwd follows its formula") {
  for_each_case([](const Case& c) {
    const auto [sums, loss] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c); });
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const ForecastLossFwd a = forward_arguments(c, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_fwd, a);
      bench.check("sums", {a.sums}, sums);
      bench.check("loss", {a.loss}, loss);
    });
  });
}

TEST_CASE("forecast_loss_bwd follows its formula") {
  for_each_case([](const Case& c) {
    const auto exact = naive_fwd<long double>(c)[0];
    const Values sums = values_of({exact.begin(), exact.end()}, c.acc()), factor = values_of({83.2}, c.acc());
    for (bool has_upstream : {false, true}) {
      const auto [dpred] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) {
        return naive_bwd<Real>(c, sums, has_upstream ? static_cast<Real>(factor[0]) : Real(1));
      });
      INFO(name_of_case(c) << ", upstream given " << has_upstream);
      on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
        ForecastLossBwd a = backward_arguments(c, sums, bench);
        if (has_upstream) a.upstream = bench.input(factor);
        ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
        bench.check("dpred", {a.dpred}, dpred);
      });
    }
  });
}

TEST_CASE("forecast_loss_bwd gives zeros, not NaN, for a perfect sample") {
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating) {
      Case c = filled({2, 3, 4, 5, kind, dtype, true, true});
      c.target = values_of(c.target.v, dtype);
      c.target.dtype = c.acc();
      for (std::int64_t i = 0; i < c.sample(); ++i) c.pred[i] = c.target[i];
      const auto exact = naive_fwd<long double>(c)[0];
      const Values sums = values_of({exact.begin(), exact.end()}, c.acc());
      REQUIRE(sums[0] == 0);
      const auto [dpred] =
          expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, sums, Real(1)); });
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const ForecastLossBwd a = backward_arguments(c, sums, bench);
        ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
        bench.check("dpred", {a.dpred}, dpred);
      });
    }
}

TEST_CASE("forecast_loss carries NaN and infinity into the loss") {
  for (LossKind kind : kKinds)
    for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      Case c = filled({2, 3, 4, 5, kind, DType::fp32, true, true});
      c.pred[c.size() - 1] = bad;
      on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
        const ForecastLossFwd a = forward_arguments(c, bench);
        ISOBAR_RUN(bench.device(), forecast_loss_fwd, a);
        CHECK(!std::isfinite(bench.read({a.loss})[0]));
        CHECK(std::isfinite(bench.read({a.sums})[0]));
        CHECK(!std::isfinite(bench.read({a.sums})[2]));
      });
    }
}

TEST_CASE("forecast_loss_bwd is the gradient of forecast_loss_fwd") {
  for (LossKind kind : kKinds) {
    const Case c = filled({2, 3, 2, 5, kind, DType::fp64, true, true});
    Workbench bench({});
    const ForecastLossFwd forward = forward_arguments(c, bench);
    cpu::forecast_loss_fwd(forward);
    ForecastLossBwd backward = backward_arguments(c, bench.read({forward.sums}), bench);
    backward.upstream = bench.input(values_of({1.7}, DType::fp64));
    cpu::forecast_loss_bwd(backward);
    check_gradient(name_of_case(c), c.pred, bench.read({backward.dpred}), [&](const Values& moved) {
      Case other = c;
      other.pred = moved;
      Workbench inner({});
      const ForecastLossFwd a = forward_arguments(other, inner);
      cpu::forecast_loss_fwd(a);
      return 1.7 * inner.read({a.loss})[0];
    });
  }
}

}  // namespace isobar::testing
