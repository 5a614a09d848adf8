// adam: Adam with L2 and AdamW over several steps, the decay boundary, the compute copy, the skipped step.
#include "kernels/cases/adam.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Case {
  std::int64_t n, decay_end;
  DType dtype;
  bool decoupled;
  double weight_decay;
  int step = 3;
  double lr = 5e-3, grad_scale = 0.5, average_rate = 0;
  DType compute_dtype = DType::bf16;
  Values grad = {}, weight = {}, m = {}, v = {};

  double bias1() const { return 1 - std::pow(0.9, step); }
  double bias2() const { return 1 - std::pow(0.95, step); }
};

Case filled(Case c) {
  c.grad = random_values(c.n, c.dtype, 1, 2);
  c.weight = random_values(c.n, c.dtype, 2);
  c.m = random_values(c.n, c.dtype, 3, 0.1);
  c.v = uniform_values(c.n, c.dtype, 4, 0, 0.1);
  for (std::int64_t i = 0; i < c.n; i += 5) c.grad[i] = c.m[i] = c.v[i] = 0;  // a weight no gradient reached yet
  return c;
}

// weight, m, v after one step
template <class Real>
std::array<std::vector<Real>, 3> naive_step(const Case& c) {
  const auto real = [](double value) { return static_cast<Real>(value); };
  const Real lr = real(c.lr), bias1 = real(c.bias1()), bias2 = real(c.bias2()), scale = real(c.grad_scale);
  const Real beta1 = real(0.9), beta2 = real(0.95), decay = real(c.weight_decay);
  std::array<std::vector<Real>, 3> out;
  for (std::int64_t i = 0; i < c.n; ++i) {
    Real w = real(c.weight[i]), g = real(c.grad[i]) * scale;
    if (i < c.decay_end && c.decoupled) w -= lr * decay * w;
    if (i < c.decay_end && !c.decoupled) g += decay * w;
    const Real m = beta1 * real(c.m[i]) + (1 - beta1) * g;
    const Real v = beta2 * real(c.v[i]) + (1 - beta2) * g * g;
    w -= lr / bias1 * m / (std::sqrt(v) / std::sqrt(bias2) + real(1e-8));
    out[0].push_back(w);
    out[1].push_back(m);
    out[2].push_back(v);
  }
  return out;
}

AdamArgs arguments(const Case& c, Workbench& bench, const std::vector<Given>& more = {}) {
  return cases::adam({.n = c.n,
                      .decay_end = c.decay_end,
                      .dtype = c.dtype,
                      .compute_dtype = c.compute_dtype,
                      .lr = c.lr,
                      .bias1 = c.bias1(),
                      .bias2 = c.bias2(),
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = c.weight_decay,
                      .decoupled = c.decoupled,
                      .average_rate = c.average_rate},
                     bench.operands({{"grad_scale", values_of({c.grad_scale}, DType::fp64)},
                                     {"grad", c.grad},
                                     {"weight", c.weight},
                                     {"m", c.m},
                                     {"v", c.v}},
                                    more));
}

}  // namespace

TEST_CASE("adam follows its formula") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (bool decoupled : {false, true})
      for (double weight_decay : {0.0, 0.1})
        for (std::int64_t n : {1, 7, 33, 4099, 70001})
          for (std::int64_t decay_end : {std::int64_t{0}, n / 3 + 1, n})
            for (int step : {1, 100}) {
              const Case c = filled({n, decay_end, dtype, decoupled, weight_decay, step});
              const auto [weight, m, v] =
                  expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_step<Real>(c); });
              INFO(name_of(dtype) << ", n = " << n << ", decay " << weight_decay << " below " << decay_end
                                  << ", decoupled " << decoupled << ", step " << step);
              on_devices(kDevices, {dtype}, [&](Workbench& bench) {
                const AdamArgs a = arguments(c, bench);
                ISOBAR_RUN(bench.device(), adam, a);
                bench.check("weight", {a.weight}, weight);
                bench.check("m", {a.m}, m, Norm::tensor);
                bench.check("v", {a.v}, v, Norm::tensor);
              });
            }
}

TEST_CASE("adam writes the weights once more in the compute type") {
  for (DType compute : {DType::bf16, DType::fp16})
    for (std::int64_t n : {0, 1, 33, 4099, 40001}) {
      Case c = filled({n, n / 2, DType::fp32, true, 0.1});
      c.compute_dtype = compute;
      INFO(name_of(compute) << ", n = " << n);
      on_devices(kDevices, {compute}, [&](Workbench& bench) {
        const AdamArgs a = arguments(c, bench, {{"compute"}});
        ISOBAR_RUN(bench.device(), adam, a);
        bench.check_equal("compute", {a.compute}, values_of(bench.read({a.weight}).v, compute));
      });
    }
}

TEST_CASE("adam lets an average follow the new weights, and gives the bits of a step without one") {
  for (DType dtype : {DType::fp32, DType::fp64})
    for (std::int64_t n : {0, 1, 33, 4099, 70001})
      for (const double rate : {9.0 / 11, 1e-4}) {
        const Case c = filled({n, n / 3, dtype, true, 0.1});
        const Values old = random_values(n, dtype, 7);
        Case averaged = c;
        averaged.average_rate = rate;
        INFO(name_of(dtype) << ", n = " << n << ", rate " << rate);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const AdamArgs without = arguments(c, bench);
          ISOBAR_RUN(bench.device(), adam, without);
          const Values alone = bench.read({without.weight});
          const AdamArgs a = arguments(averaged, bench, {{"average", old}});
          ISOBAR_RUN(bench.device(), adam, a);
          bench.check_equal("weight", {a.weight}, alone);
          const auto followed = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
            std::array<std::vector<Real>, 1> average;
            for (std::int64_t i = 0; i < n; ++i) {
              const auto before = static_cast<Real>(old[i]), weight = static_cast<Real>(alone[i]);
              average[0].push_back(before + static_cast<Real>(rate) * (weight - before));
            }
            return average;
          });
          bench.check("average", {a.average}, followed[0]);
        });
      }
}

TEST_CASE("adam with grad_scale 0 changes nothing, NaN gradients included") {
  Case c = filled({1000, 500, DType::fp32, true, 0.1});
  c.grad_scale = 0;
  c.average_rate = 0.5;
  c.grad[17] = std::nan("");
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const Values compute = random_values(1000, DType::bf16, 9), average = random_values(1000, DType::fp32, 10);
    const AdamArgs a = arguments(c, bench, {{"compute", bench.in_out(compute)}, {"average", average}});
    ISOBAR_RUN(bench.device(), adam, a);
    bench.check_equal("average", {a.average}, average);
    bench.check_equal("weight", {a.weight}, c.weight);
    bench.check_equal("m", {a.m}, c.m);
    bench.check_equal("v", {a.v}, c.v);
    bench.check_equal("compute", {a.compute}, compute);
  });
}

TEST_CASE("adam keeps a NaN gradient to its own weight") {
  Case c = filled({1000, 0, DType::fp32, false, 0});
  c.grad[17] = std::nan("");
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const AdamArgs a = arguments(c, bench);
    ISOBAR_RUN(bench.device(), adam, a);
    const Values weight = bench.read({a.weight});
    for (std::int64_t i = 0; i < c.n; ++i) REQUIRE(std::isnan(weight[i]) == (i == 17));
  });
}

}  // namespace isobar::testing
