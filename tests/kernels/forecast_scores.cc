// forecast_scores: the weighted sums of every sample and channel, with and without a climatology, whole and with
// missing points.
#include "kernels/cases/forecast_scores.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Case {
  std::int64_t batch, channels, height, width;
  DType dtype;
  bool has_climatology, masked;
  Values pred = {}, target = {}, climatology = {}, weights = {};

  std::int64_t pixels() const { return height * width; }
  std::int64_t planes() const { return batch * channels; }
  bool is_missing(std::int64_t i) const { return masked && std::isnan(target.v[static_cast<std::size_t>(i)]); }
};

const std::array<double, 4> kJunk = {std::nan(""), std::numeric_limits<double>::infinity(), 17, -3e4};

Case filled(Case c) {
  const DType acc = accumulator_of(c.dtype);
  c.target = random_values(c.planes() * c.pixels(), acc, 1);
  c.climatology = random_values(c.channels * c.pixels(), acc, 2);
  c.pred = random_values(c.planes() * c.pixels(), c.dtype, 3);
  c.weights = uniform_values(c.height, acc, 4, 0.1, 2);
  return c;
}

// With missing points, whose forecasts are `junk`, from the k-th on: in the first field of three at random, in the
// second all, in the third none.
Case with_missing(Case c, std::size_t k = 0) {
  const Values drawn = uniform_values(c.target.size(), DType::fp64, 5, 0, 1);
  for (std::int64_t i = 0; i < c.target.size(); ++i) {
    const std::int64_t manner = i / c.pixels() % 3;
    if (manner == 0 ? drawn[i] > 0.4 : manner == 2) continue;
    c.target[i] = std::nan("");
    c.pred[i] = round_to(kJunk[k++ % kJunk.size()], c.dtype);
  }
  return c;
}

// The sums of every field: four, masked six.
template <class Real>
std::array<std::vector<Real>, 1> naive(const Case& c) {
  std::array<std::vector<Real>, 1> sums;
  for (std::int64_t plane = 0; plane < c.planes(); ++plane) {
    std::array<Real, 6> total{};
    for (std::int64_t i = 0; i < c.pixels(); ++i) {
      const std::int64_t at = plane * c.pixels() + i;
      const Real w = static_cast<Real>(c.weights[i / c.width]);
      total[c.is_missing(at) ? 5 : 4] += w;
      if (c.is_missing(at)) continue;
      const Real p = static_cast<Real>(c.pred[at]), t = static_cast<Real>(c.target[at]);
      const Real mean =
          c.has_climatology ? static_cast<Real>(c.climatology[plane % c.channels * c.pixels() + i]) : Real(0);
      const std::array<Real, 4> terms = {(p - t) * (p - t), (p - mean) * (t - mean), (p - mean) * (p - mean),
                                         (t - mean) * (t - mean)};
      for (std::size_t k = 0; k < 4; ++k) total[k] += w * terms[k];
    }
    sums[0].insert(sums[0].end(), total.begin(), total.begin() + forecast_scores_of(c.masked));
  }
  return sums;
}

ForecastScoresArgs run(const Case& c, Workbench& bench) {
  const ForecastScoresArgs a =
      cases::forecast_scores({.batch = c.batch,
                              .channels = c.channels,
                              .height = c.height,
                              .width = c.width,
                              .masked = c.masked,
                              .dtype = c.dtype},
                             bench.operands({{"pred", c.pred},
                                             {"target", c.target},
                                             {"row_weights", c.weights},
                                             {"climatology", c.has_climatology ? &c.climatology : nullptr}}));
  ISOBAR_RUN(bench.device(), forecast_scores, a);
  return a;
}

// `few`: of the larger sizes some types only, with a climatology or without.
template <class F>
void for_each_case(bool masked, bool few, const F& f) {
  for (DType dtype : kFloating)
    for (bool has_climatology : {false, true})
      for (const Case& c : std::vector<Case>{{1, 1, 1, 1, dtype, has_climatology, masked},
                                             {0, 2, 3, 3, dtype, has_climatology, masked},
                                             {2, 3, 5, 33, dtype, has_climatology, masked},
                                             {3, 20, 13, 52, dtype, has_climatology, masked},
                                             {1, 2, 150, 131, dtype, has_climatology, masked}}) {
        if (few && c.pixels() > 200 && (dtype != DType::fp32 || masked == has_climatology)) continue;
        INFO(name_of(dtype) << ", " << c.batch << " x " << c.channels << " x " << c.height << " x " << c.width
                            << ", climatology " << has_climatology << ", masked " << masked);
        f(filled(c));
      }
}

}  // namespace

TEST_CASE("forecast_scores are the weighted sums behind RMSE and ACC") {
  const auto check = [](const Case& c) {
    const auto [out] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive<Real>(c); });
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) { bench.check("out", {run(c, bench).out}, out); });
  };
  for_each_case(false, testing::is_sanitized(), [&](Case c) {
    if (c.planes() > 5) c.pred[c.pixels() * 5 - 1] = std::nan("");
    check(c);
  });
  for_each_case(true, testing::is_sanitized(), [&](const Case& c) { check(with_missing(c)); });
}

TEST_CASE("forecast_scores with a mask and no missing point have the bits of those without") {
  for_each_case(false, true, [](const Case& c) {
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      Case with_mask = c;
      with_mask.masked = true;
      const Values plain = bench.read({run(c, bench).out}), masked = bench.read({run(with_mask, bench).out});
      for (std::int64_t plane = 0; plane < c.planes(); ++plane) {
        for (std::int64_t k = 0; k < 4; ++k) CHECK(masked[6 * plane + k] == plain[4 * plane + k]);
        CHECK(masked[6 * plane + 5] == 0);
      }
    });
  });
}

TEST_CASE("forecast_scores have the same bits for other forecasts and climatologies of missing points") {
  for_each_case(true, true, [](const Case& c) {
    const Case one = with_missing(c);
    Case two = with_missing(c, 1);
    if (c.batch == 1 && c.has_climatology)
      for (std::int64_t i = 0; i < one.target.size(); ++i)
        if (one.is_missing(i)) two.climatology[i] = std::nan("");
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const Values of_one = bench.read({run(one, bench).out}), of_two = bench.read({run(two, bench).out});
      for (std::int64_t i = 0; i < of_one.size(); ++i) CHECK(of_one[i] == of_two[i]);
    });
  });
}

}  // namespace isobar::testing
