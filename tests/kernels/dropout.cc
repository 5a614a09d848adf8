// dropout and drop_path: the mask of the contract, element by element; its rate; the same mask again on dy.
#include "kernels/dropout.h"

#include <limits>

#include "kernels/common/rng.h"
#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
constexpr std::uint64_t kSeed = 0x123456789abcdef0ull, kStream = 0xfedcba9800000003ull;

// y[i] = keep(i / group) ? x[i]/(1-p) : 0
template <class Real>
std::array<std::vector<Real>, 1> naive(const Values& x, float p, std::int64_t group) {
  std::array<std::vector<Real>, 1> y;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const bool keep = random_bits(kSeed, kStream, static_cast<std::uint64_t>(i / group)) >= drop_threshold(p);
    y[0].push_back(keep ? static_cast<Real>(x[i]) / (1 - static_cast<Real>(p)) : Real(0));
  }
  return y;
}

Values inputs(std::int64_t n, DType dtype) {
  Values x = random_values(n, dtype, 1);
  for (std::int64_t i = 10; i < n; i += 97) x[i] = i % 2 == 0 ? std::nan("") : -std::numeric_limits<double>::infinity();
  return x;
}

}  // namespace

TEST_CASE("dropout keeps what the mask says and scales it") {
  for (DType dtype : kFloating)
    for (float p : {0.0f, 0.1f, 0.5f, 0.95f})
      for (std::int64_t n : kRaggedLengths) {
        const Values x = inputs(n, dtype);
        const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive<Real>(x, p, 1); });
        INFO(name_of(dtype) << ", p = " << p << ", n = " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          auto in = bench.input(x, n % 2);
          auto out = bench.output(n, dtype), over = bench.in_out(x);
          ISOBAR_RUN(bench.device(), dropout,
                     {.n = n, .dtype = dtype, .p = p, .seed = kSeed, .stream = kStream, .x = in, .y = out});
          ISOBAR_RUN(bench.device(), dropout,
                     {.n = n, .dtype = dtype, .p = p, .seed = kSeed, .stream = kStream, .x = over, .y = over});
          bench.check("y", out, y, Norm::ulps);
          bench.check("y over x", over, y, Norm::ulps);
        });
      }
}

TEST_CASE("drop_path keeps or drops whole samples") {
  for (DType dtype : kFloating)
    for (std::int64_t batch : {0, 1, 2, 67})
      for (std::int64_t n : {0, 1, 33, 1031}) {
        const Values x = inputs(batch * n, dtype);
        const auto [y] = expected(
            dtype, [&]<class Real>(Arithmetic<Real>) { return naive<Real>(x, 0.4f, std::max<std::int64_t>(n, 1)); });
        INFO(name_of(dtype) << ", " << batch << " x " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          auto out = bench.output(batch * n, dtype), over = bench.in_out(x);
          ISOBAR_RUN(bench.device(), drop_path,
                     {.batch = batch,
                      .n = n,
                      .dtype = dtype,
                      .p = 0.4f,
                      .seed = kSeed,
                      .stream = kStream,
                      .x = bench.input(x, n % 2),
                      .y = out});
          ISOBAR_RUN(bench.device(), drop_path,
                     {.batch = batch,
                      .n = n,
                      .dtype = dtype,
                      .p = 0.4f,
                      .seed = kSeed,
                      .stream = kStream,
                      .x = over,
                      .y = over});
          bench.check("y", out, y, Norm::ulps);
          bench.check("y over x", over, y, Norm::ulps);
        });
      }
}

TEST_CASE("dropout drops the share that was asked for, differently for every stream") {
  const std::int64_t n = 100000;
  const Values ones = constant_values(n, DType::fp32, 1);
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    std::int64_t dropped = 0, both = 0;
    auto first = bench.output(n, DType::fp32), second = bench.output(n, DType::fp32);
    auto in = bench.input(ones);
    ISOBAR_RUN(bench.device(), dropout, {.n = n, .p = 0.3f, .seed = 1, .stream = 5, .x = in, .y = first});
    ISOBAR_RUN(bench.device(), dropout, {.n = n, .p = 0.3f, .seed = 1, .stream = 6, .x = in, .y = second});
    const Values a = bench.read(first), b = bench.read(second);
    for (std::int64_t i = 0; i < n; ++i) dropped += a[i] == 0, both += a[i] == 0 && b[i] == 0;
    CHECK(std::fabs(static_cast<double>(dropped) / n - 0.3) <
          5 * std::sqrt(0.3 * 0.7 / n));  // five standard deviations
    CHECK(std::fabs(static_cast<double>(both) / n - 0.09) < 5 * std::sqrt(0.09 * 0.91 / n));
  });
}

}  // namespace isobar::testing
