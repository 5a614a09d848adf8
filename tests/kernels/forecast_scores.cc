// forecast_scores: the four weighted sums of every sample and channel, with and without a climatology.
#include "kernels/cases/forecast_scores.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {

static const std::vector<DeviceKind> kDevices = all_devices();

TEST_CASE("forecast_scores are the weighted sums behind RMSE and ACC") {
  struct Shape {
    std::int64_t batch, channels, height, width;
  };
  for (DType dtype : kFloating)
    for (Shape s : std::vector<Shape>{{1, 1, 1, 1}, {0, 2, 3, 3}, {2, 3, 5, 33}, {3, 20, 13, 52}, {1, 2, 150, 131}})
      for (bool has_climatology : {false, true}) {
        const DType acc = accumulator_of(dtype);
        const std::int64_t pixels = s.height * s.width, planes = s.batch * s.channels;
        const Values target = random_values(planes * pixels, acc, 1),
                     climatology = random_values(s.channels * pixels, acc, 2);
        Values pred = random_values(planes * pixels, dtype, 3);
        if (planes > 5) pred[pixels * 5 - 1] = std::nan("");
        const Values weights = uniform_values(s.height, acc, 4, 0.1, 2);
        const auto [out] = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
          std::array<std::vector<Real>, 1> sums;
          for (std::int64_t plane = 0; plane < planes; ++plane) {
            std::array<Real, 4> total{};
            for (std::int64_t i = 0; i < pixels; ++i) {
              const Real w = static_cast<Real>(weights[i / s.width]);
              const Real p = static_cast<Real>(pred[plane * pixels + i]),
                         t = static_cast<Real>(target[plane * pixels + i]);
              const Real mean =
                  has_climatology ? static_cast<Real>(climatology[plane % s.channels * pixels + i]) : Real(0);
              const std::array<Real, 4> terms = {(p - t) * (p - t), (p - mean) * (t - mean), (p - mean) * (p - mean),
                                                 (t - mean) * (t - mean)};
              for (std::size_t k = 0; k < 4; ++k) total[k] += w * terms[k];
            }
            sums[0].insert(sums[0].end(), total.begin(), total.end());
          }
          return sums;
        });
        INFO(name_of(dtype) << ", " << s.batch << " x " << s.channels << " x " << s.height << " x " << s.width
                            << ", climatology " << has_climatology);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const ForecastScoresArgs a = cases::forecast_scores(
              {.batch = s.batch, .channels = s.channels, .height = s.height, .width = s.width, .dtype = dtype},
              bench.operands({{"pred", pred},
                              {"target", target},
                              {"row_weights", weights},
                              {"climatology", has_climatology ? &climatology : nullptr}}));
          ISOBAR_RUN(bench.device(), forecast_scores, a);
          bench.check("out", {a.out}, out);
        });
      }
}

}  // namespace isobar::testing
