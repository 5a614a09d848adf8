// grad_norm and clip_coefficient: the norm of any length, overflow, NaN, and every branch of the clip.
#include "kernels/grad_norm.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const double kInfinity = std::numeric_limits<double>::infinity();

double norm_on(Workbench& bench, const Values& x) {
  auto norm = bench.output(1, DType::fp64);
  ISOBAR_RUN(bench.device(), grad_norm,
             {.n = x.size(),
              .dtype = x.dtype,
              .x = bench.input(x, x.size() % 3),
              .norm = norm,
              .workspace = bench.workspace(kGradNormBlocks * sizeof(double))});
  return bench.read(norm)[0];
}

}  // namespace

TEST_CASE("grad_norm is the Euclidean norm, summed in fp64") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (std::int64_t n : {0, 1, 31, 33, 1000, 8191, 8193, 70001, 270001}) {  // the last: over 256 blocks of a GPU
      const Values x = random_values(n, dtype, 1);
      const auto [norm] = expected(DType::fp64, [&]<class Real>(Arithmetic<Real>) {
        Real sum = 0;
        for (std::int64_t i = 0; i < n; ++i) sum += static_cast<Real>(x[i]) * static_cast<Real>(x[i]);
        return std::array<std::vector<Real>, 1>{{{std::sqrt(sum)}}};
      });
      INFO(name_of(dtype) << ", n = " << n);
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const Verdict verdict = compare("norm", {DType::fp64, {norm_on(bench, x)}}, norm);
        INFO(verdict.text);
        CHECK(verdict.ok);
      });
    }
}

TEST_CASE("grad_norm of large fp32 numbers does not overflow, of NaN and infinity is not finite") {
  const std::int64_t n = 20000;
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const double norm = norm_on(bench, constant_values(n, DType::fp32, 0x1p100));
    CHECK(std::fabs(norm / (0x1p100 * std::sqrt(static_cast<double>(n))) - 1) < 1e-14);
    for (std::int64_t where : {std::int64_t{0}, n / 2, n - 1})
      for (double bad : {kInfinity, -kInfinity, std::nan("")}) {
        Values x = random_values(n, DType::fp32, 2);
        x[where] = bad;
        CHECK(!std::isfinite(norm_on(bench, x)));
      }
  });
}

TEST_CASE("clip_coefficient unscales, clips and marks a step to skip") {
  struct Known {
    double norm, unscale, max_norm, grad_scale;
  };
  const std::vector<Known> known = {
      {2.0, 1.0, 0.0, 1.0},                                        // no clip
      {2.0, 1.0, 5.0, 1.0},                                        // below the bound
      {20.0, 1.0, 5.0, 5.0 / (20.0 + 1e-6)},                       // above it
      {20.0 * 1024, 1.0 / 1024, 5.0, 5.0 / (20.0 + 1e-6) / 1024},  // of scaled gradients
      {20.0 * 1024, 1.0 / 1024, 0.0, 1.0 / 1024},
      {0.0, 1.0, 5.0, 1.0},
      {kInfinity, 1.0, 5.0, 0.0},
      {kInfinity, 1.0 / 1024, 0.0, 0.0},
      {std::nan(""), 1.0 / 1024, 0.0, 0.0},
  };
  for (const Known& k : known)
    on_devices(kDevices, {}, [&](Workbench& bench) {
      auto grad_scale = bench.output(1, DType::fp64);
      ISOBAR_RUN(bench.device(), clip_coefficient,
                 {.norm = bench.input(values_of({k.norm}, DType::fp64)),
                  .unscale = k.unscale,
                  .max_norm = k.max_norm,
                  .grad_scale = grad_scale});
      const double actual = bench.read(grad_scale)[0];
      INFO("norm " << k.norm << ", unscale " << k.unscale << ", max_norm " << k.max_norm << ": " << actual);
      CHECK(std::fabs(actual - k.grad_scale) <= 4e-16 * k.grad_scale);
    });
}

}  // namespace isobar::testing
