// normalize and denormalize: every channel with its own statistics, the extra planes, fp32 and fp64.
#include "kernels/cases/normalize.h"

#include <limits>

#include "kernels/common/check.h"
#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Shape {
  std::int64_t batch, channels, extra, height, width;
  std::int64_t pixels() const { return height * width; }
};
const std::vector<Shape> kShapes = {
    {1, 1, 0, 1, 1}, {2, 3, 2, 5, 7}, {3, 20, 4, 24, 52}, {0, 2, 1, 4, 4}, {1, 2, 1, 150, 211}};

Values fields(Shape s) {
  Values x = random_values(s.batch * s.channels * s.pixels(), DType::fp32, 1, 20, 280);
  if (x.size() > 100) x[50] = std::nan(""), x[51] = std::numeric_limits<double>::infinity();
  return x;
}
Values means(Shape s) {
  return random_values(s.channels, DType::fp64, 2, 30, 280);
}
Values stds(Shape s) {
  return uniform_values(s.channels, DType::fp64, 3, 0.5, 30);
}

// A statistic as the kernel sees it.
template <class Real>
Real statistic(const Values& values, std::int64_t c, DType dtype) {
  return static_cast<Real>(round_to(values[c], dtype));
}

std::string name_of_shape(Shape s) {
  return std::to_string(s.batch) + " x (" + std::to_string(s.channels) + " + " + std::to_string(s.extra) + ") x " +
         std::to_string(s.height) + " x " + std::to_string(s.width);
}

}  // namespace

TEST_CASE("normalize uses each channel's statistics and appends the planes") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (Shape s : kShapes) {
      const Values x = fields(s), mean = means(s), std = stds(s);
      const Values planes = random_values(s.batch * s.extra, DType::fp64, 4);
      const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
        std::array<std::vector<Real>, 1> out;
        for (std::int64_t b = 0; b < s.batch; ++b)
          for (std::int64_t c = 0; c < s.channels + s.extra; ++c)
            for (std::int64_t i = 0; i < s.pixels(); ++i)
              out[0].push_back(c < s.channels ? (static_cast<Real>(x[(b * s.channels + c) * s.pixels() + i]) -
                                                 statistic<Real>(mean, c, dtype)) /
                                                    statistic<Real>(std, c, dtype)
                                              : statistic<Real>(planes, b * s.extra + c - s.channels, dtype));
        return out;
      });
      INFO(name_of(dtype) << ", " << name_of_shape(s));
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const NormalizeArgs a =
            cases::normalize({.batch = s.batch,
                              .channels = s.channels,
                              .extra = s.extra,
                              .height = s.height,
                              .width = s.width,
                              .dtype = dtype},
                             bench.operands({{"x", x}, {"mean", mean}, {"std", std}, {"planes", planes}}));
        ISOBAR_RUN(bench.device(), normalize, a);
        bench.check("y", {a.y}, y);
      });
    }
}

TEST_CASE("denormalize is the way back") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (Shape s : kShapes) {
      const Values x = random_values(s.batch * s.channels * s.pixels(), dtype, 5), mean = means(s), std = stds(s);
      const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
        std::array<std::vector<Real>, 1> out;
        for (std::int64_t i = 0; i < x.size(); ++i) {
          const std::int64_t c = i / s.pixels() % s.channels;
          out[0].push_back(static_cast<Real>(x[i]) * statistic<Real>(std, c, dtype) + statistic<Real>(mean, c, dtype));
        }
        return out;
      });
      INFO(name_of(dtype) << ", " << name_of_shape(s));
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const DenormalizeArgs a = cases::denormalize(
            {.batch = s.batch, .channels = s.channels, .height = s.height, .width = s.width, .dtype = dtype},
            bench.operands({{"x", x}, {"mean", mean}, {"std", std}}));
        ISOBAR_RUN(bench.device(), denormalize, a);
        bench.check("y", {a.y}, y);
      });
    }
}

TEST_CASE("normalize and denormalize refuse 16 bits, on every device") {
  for (DType dtype : {DType::bf16, DType::fp16})
    on_devices(kDevices, {dtype}, [&](Workbench& bench) {
      const Values one = constant_values(1, DType::fp64, 1), x = constant_values(8, DType::fp32, 1);
      const NormalizeArgs there = cases::normalize({.batch = 1, .channels = 1, .height = 1, .width = 8, .dtype = dtype},
                                                   bench.operands({{"x", x}, {"mean", one}, {"std", one}}));
      const auto normalized = [&] { ISOBAR_RUN(bench.device(), normalize, there); };
      const Pointer narrow = bench.in_out(constant_values(8, dtype, 1));
      const DenormalizeArgs back =
          cases::denormalize({.batch = 1, .channels = 1, .height = 1, .width = 8, .dtype = dtype},
                             bench.operands({{"x", narrow}, {"mean", one}, {"std", one}}));
      const auto denormalized = [&] { ISOBAR_RUN(bench.device(), denormalize, back); };
      CHECK_THROWS_AS(normalized(), Error);
      CHECK_THROWS_AS(denormalized(), Error);
    });
}

}  // namespace isobar::testing
