// normalize and denormalize: every channel with its own statistics, missing points and their masks, the extra planes,
// fp32 and fp64.
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

namespace {

// What missing points are filled with; those of the second channel, if there is one, stay missing.
Values fills(Shape s) {
  Values fill = random_values(s.channels, DType::fp64, 6, 30, 280);
  if (s.channels > 1) fill[1] = std::nan("");
  return fill;
}

// About a third of the points is missing; of the first channel all.
Values with_holes(Values x, Shape s) {
  const Values drawn = uniform_values(x.size(), DType::fp64, 7, 0, 1);
  for (std::int64_t i = 0; i < x.size(); ++i)
    if (drawn[i] < 0.3 || (i < s.pixels() && s.channels > 2)) x[i] = std::nan("");
  return x;
}

// Channels, not in their order, one of them twice.
std::vector<std::int64_t> masked_channels(Shape s) {
  return s.channels > 2 ? std::vector<std::int64_t>{s.channels - 1, 0, s.channels - 1} : std::vector<std::int64_t>{0};
}

}  // namespace

TEST_CASE("normalize fills missing points, and appends the masks before the planes") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (Shape s : kShapes)
      for (const bool fills_them : {false, true})
        for (const bool has_masks : {false, true}) {
          const Values x = with_holes(fields(s), s), mean = means(s), std = stds(s), fill = fills(s);
          const Values planes = random_values(s.batch * s.extra, DType::fp64, 4);
          const std::vector<std::int64_t> masks = has_masks ? masked_channels(s) : std::vector<std::int64_t>{};
          const Values channels = values_of({masks.begin(), masks.end()}, DType::i32);
          const auto count = static_cast<std::int64_t>(masks.size());
          const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
            std::array<std::vector<Real>, 1> out;
            const auto is_missing = [&](std::int64_t b, std::int64_t c, std::int64_t i) {
              return std::isnan(x.v[static_cast<std::size_t>((b * s.channels + c) * s.pixels() + i)]);
            };
            const auto value = [&](std::int64_t b, std::int64_t c, std::int64_t i) {
              if (c >= s.channels + count) return statistic<Real>(planes, b * s.extra + c - s.channels - count, dtype);
              if (c >= s.channels)
                return is_missing(b, masks[static_cast<std::size_t>(c - s.channels)], i) ? Real(0) : Real(1);
              const Real here = is_missing(b, c, i) && fills_them
                                    ? statistic<Real>(fill, c, dtype)
                                    : static_cast<Real>(x[(b * s.channels + c) * s.pixels() + i]);
              return (here - statistic<Real>(mean, c, dtype)) / statistic<Real>(std, c, dtype);
            };
            for (std::int64_t b = 0; b < s.batch; ++b)
              for (std::int64_t c = 0; c < s.channels + count + s.extra; ++c)
                for (std::int64_t i = 0; i < s.pixels(); ++i) out[0].push_back(value(b, c, i));
            return out;
          });
          INFO(name_of(dtype) << ", " << name_of_shape(s) << ", fills " << fills_them << ", masks " << count);
          on_devices(kDevices, {dtype}, [&](Workbench& bench) {
            std::vector<Given> given = {{"x", x}, {"mean", mean}, {"std", std}, {"planes", planes}};
            if (fills_them) given.push_back({"fill", fill});
            if (has_masks) given.push_back({"masks", channels});
            const NormalizeArgs a = cases::normalize({.batch = s.batch,
                                                      .channels = s.channels,
                                                      .mask_count = count,
                                                      .extra = s.extra,
                                                      .height = s.height,
                                                      .width = s.width,
                                                      .dtype = dtype},
                                                     bench.operands(given));
            ISOBAR_RUN(bench.device(), normalize, a);
            bench.check("y", {a.y}, y, Norm::ulps);
          });
        }
}

TEST_CASE("normalize gives other points the same bits, whether missing ones are filled or not") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (Shape s : kShapes) {
      const Values x = with_holes(fields(s), s), mean = means(s), std = stds(s);
      const Values fill = constant_values(s.channels, DType::fp64, std::nan(""));
      INFO(name_of(dtype) << ", " << name_of_shape(s));
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const auto run = [&](const Values* filled_with) {
          const NormalizeArgs a = cases::normalize(
              {.batch = s.batch, .channels = s.channels, .height = s.height, .width = s.width, .dtype = dtype},
              bench.operands({{"x", x}, {"mean", mean}, {"std", std}, {"fill", filled_with}}));
          ISOBAR_RUN(bench.device(), normalize, a);
          return a.y;
        };
        bench.check_equal("y", {run(&fill)}, bench.read({run(nullptr)}));
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
