// The rungs of bench/ladder/: each against fp64, within the bounds that bench/ladder/ladder.h states; and which of them
// can stand a mean that is large beside the deviation.
#include "bench/ladder/ladder.h"

#include <omp.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/emulator/schedule.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

// x normal with this mean and deviation. Outputs start as NaN, so that an element that is never written is found.
class Problem {
 public:
  Problem(std::int64_t rows, std::int64_t cols, double mean, double deviation)
      : rows_(rows), cols_(cols), random_(static_cast<std::uint32_t>(1000 * rows + cols)) {
    x_ = normal(rows * cols, mean, deviation);
    weight_ = normal(cols, 1, 0.5);
    bias_ = normal(cols, 0, 1);
  }

  LadderError run(const Rung& rung, Variance variance) {
    y_.assign(x_.size(), NAN);
    mean_.assign(static_cast<std::size_t>(rows_), NAN);
    rstd_.assign(static_cast<std::size_t>(rows_), NAN);
    const LadderArgs host = {.rows = rows_,
                             .cols = cols_,
                             .x = x_.data(),
                             .weight = weight_.data(),
                             .bias = bias_.data(),
                             .y = y_.data(),
                             .mean = mean_.data(),
                             .rstd = rstd_.data()};
    if (rung.device == DeviceKind::cuda)
      run_on_gpu(rung, host);
    else
      rung.run(host, nullptr);
    return ladder_error(host, variance);
  }

  const std::vector<float>& y() const { return y_; }

 private:
  std::vector<float> normal(std::int64_t n, double mean, double deviation) {
    std::normal_distribution<double> distribution(mean, deviation);
    std::vector<float> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(distribution(random_)));
    return values;
  }

  // With copies of all arrays in device memory, which are copied back.
  void run_on_gpu(const Rung& rung, const LadderArgs& host) {
    constexpr Device kGpu{DeviceKind::cuda};
    std::vector<void*> buffers;
    const auto to_device = [&](const std::vector<float>& values) {
      buffers.push_back(gpu::allocate(values.size() * sizeof(float), 0, nullptr));
      gpu::copy(buffers.back(), values.data(), values.size() * sizeof(float), kGpu, nullptr);
      return static_cast<float*>(buffers.back());
    };
    LadderArgs device = host;
    device.x = to_device(x_);
    device.weight = to_device(weight_);
    device.bias = to_device(bias_);
    device.y = to_device(y_);
    device.mean = to_device(mean_);
    device.rstd = to_device(rstd_);
    rung.run(device, nullptr);
    gpu::copy(host.y, device.y, y_.size() * sizeof(float), kGpu, nullptr);
    gpu::copy(host.mean, device.mean, mean_.size() * sizeof(float), kGpu, nullptr);
    gpu::copy(host.rstd, device.rstd, rstd_.size() * sizeof(float), kGpu, nullptr);
    gpu::synchronize(kGpu, nullptr);
    for (void* buffer : buffers) gpu::free(buffer, nullptr);
  }

  std::int64_t rows_, cols_;
  std::mt19937 random_;
  std::vector<float> x_, weight_, bias_, y_, mean_, rstd_;
};

// Calls f for every rung that can run here: in the emulator once for each schedule, on a GPU where there is one.
template <class F>
void for_each_rung(const F& f) {
  for (const Rung& rung : ladder_rungs()) {
    INFO(name_of(rung.device) << " " << rung.name);
    if (rung.device == DeviceKind::cpu || (rung.device == DeviceKind::cuda && gpu::device_count() > 0)) f(rung);
    if constexpr (ISOBAR_HAS_EMULATOR) {
      if (rung.device != DeviceKind::emulator) continue;
      const emulator::Schedule before = emulator::current_schedule();
      for (const emulator::Schedule& schedule : emulator::kTestSchedules) {
        INFO("schedule " << emulator::name_of(schedule));
        emulator::set_schedule(schedule);
        f(rung);
      }
      emulator::set_schedule(before);
    }
  }
}

}  // namespace

TEST_CASE("ladder: every rung is layer norm, on ragged shapes") {
  for (const std::int64_t rows : {1, 7})
    for (const std::int64_t cols : {1, 31, 33, 384, 1000}) {
      Problem problem(rows, cols, 0, 1);
      for_each_rung([&](const Rung& rung) {
        INFO(rows << " x " << cols);
        const LadderError error = problem.run(rung, rung.variance);
        CHECK(error.of_bound <= 1);
      });
    }
}

TEST_CASE("ladder: rows go to several threads and blocks") {
  Problem problem(300, 384, 0, 1);
  for_each_rung([&](const Rung& rung) { CHECK(problem.run(rung, rung.variance).of_bound <= 1); });

  const Rung threaded = {"threaded", DeviceKind::cpu, cpu::ladder_threaded};
  const int threads = omp_get_max_threads();
  std::vector<std::vector<float>> results;
  for (const int count : {1, 3}) {
    omp_set_num_threads(count);
    problem.run(threaded, Variance::two_pass);
    results.push_back(problem.y());
  }
  omp_set_num_threads(threads);
  CHECK(results[0] == results[1]);
}

TEST_CASE("ladder: a variance in two passes stands a large mean, the textbook's formula does not") {
  for (const std::int64_t cols : {31, 384, 1000}) {
    Problem problem(7, cols, 1e4, 1);
    for_each_rung([&](const Rung& rung) {
      INFO("7 x " << cols);
      const LadderError error = problem.run(rung, Variance::two_pass);
      if (rung.variance == Variance::two_pass)
        CHECK(error.of_bound <= 1);
      else
        CHECK(!(error.of_bound <= 3));
    });
  }
}

}  // namespace isobar::testing
