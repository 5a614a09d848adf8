// isobar-ladder: runs every rung of bench/ladder/ on one shape, compares it with fp64 and says how long it took.
//
// The rungs of a device are timed in turn, round after round, with the caches emptied before each call, so that
// whatever else the machine does slows all of them alike. On a machine that does nothing else the median and the least
// time of a rung agree; on a busy one the least is what the rung itself takes, so the ratios are made of it. The
// emulator's time says nothing about a GPU: its rungs are run under every schedule of the tests, on a few rows, and
// compared.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/ladder/ladder.h"
#include "bench/machine.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "kernels/emulator/schedule.h"
#include "kernels/layernorm.h"

namespace isobar::bench {
namespace {

constexpr std::int64_t kEmulatedRows = 64;
constexpr std::size_t kFlushBytes = std::size_t{1} << 27;  // a copy of so much leaves nothing else in the caches

struct Options {
  std::int64_t rows = 4050, cols = 384;
  double mean = 0;  // of x
  int rounds = 15;
};

// Something to time: a rung, or what it is compared with.
struct Candidate {
  std::string name;
  std::function<void()> run;
  Variance variance = Variance::two_pass;
  LadderError error = {};
  std::vector<double> seconds = {};

  double median() const { return timing_of(seconds).median; }
  double least() const { return timing_of(seconds).min; }
};

// x uniform within 1 of the mean.
LadderArgs problem(const Options& options, std::int64_t rows, Memory& memory) {
  const auto uniform = [&](std::int64_t n, double low, double high) {
    return static_cast<float*>(memory.uniform(n, DType::fp32, low, high));
  };
  const auto output = [&](std::int64_t n) {
    return static_cast<float*>(memory.allocate(sizeof(float) * static_cast<std::size_t>(n)));
  };
  return {.rows = rows,
          .cols = options.cols,
          .x = uniform(rows * options.cols, options.mean - 1, options.mean + 1),
          .weight = uniform(options.cols, 0.5, 1.5),
          .bias = uniform(options.cols, -1, 1),
          .y = output(rows * options.cols),
          .mean = output(rows),
          .rstd = output(rows)};
}

// The ladder's problem for the kernel in kernels/.
LayernormFwd kernel_arguments(const LadderArgs& a) {
  return {.rows = a.rows,
          .cols = a.cols,
          .eps = a.eps,
          .x = a.x,
          .weight = a.weight,
          .bias = a.bias,
          .y = a.y,
          .mean = a.mean,
          .rstd = a.rstd};
}

// The error of what the last call wrote on a device. Every rung is held to the bounds of a variance in two passes.
LadderError error_of(const LadderArgs& on_device, Device device, const LadderArgs& on_host) {
  if (device.kind != DeviceKind::cuda) return ladder_error(on_device, Variance::two_pass);
  const auto fetch = [device](float* to, const float* from, std::int64_t n) {
    gpu::copy(to, from, sizeof(float) * static_cast<std::size_t>(n), device, nullptr);
  };
  fetch(on_host.y, on_device.y, on_device.rows * on_device.cols);
  fetch(on_host.mean, on_device.mean, on_device.rows);
  fetch(on_host.rstd, on_device.rstd, on_device.rows);
  gpu::synchronize(device, nullptr);
  return ladder_error(on_host, Variance::two_pass);
}

bool is_right(const LadderError& error) {
  return error.of_bound <= 1;
}
const char* verdict(const LadderError& error) {
  return is_right(error) ? "right" : "WRONG";
}

std::vector<Candidate> candidates_of(const LadderArgs& a, Device device) {
  std::vector<Candidate> candidates;
  for (const Rung& rung : ladder_rungs()) {
    if (rung.device == device.kind)
      candidates.push_back({.name = rung.name, .run = [a, rung] { rung.run(a, nullptr); }, .variance = rung.variance});
  }
  const LayernormFwd arguments = kernel_arguments(a);
  candidates.push_back(
      {.name = "kernels/layernorm", .run = [arguments, device] { ISOBAR_RUN(device, layernorm_fwd, arguments); }});
  if (device.kind == DeviceKind::cpu) {
    candidates.push_back({.name = "  on one thread", .run = [arguments] {
                            const int threads = omp_get_max_threads();
                            omp_set_num_threads(1);
                            cpu::layernorm_fwd(arguments);
                            omp_set_num_threads(threads);
                          }});
  }
  return candidates;
}

// Times the rungs of a device, then prints them. Returns whether those that should be right are.
bool time_rungs(const Options& options, Device device) {
  Memory memory(device), host(Device{DeviceKind::cpu});
  const LadderArgs a = problem(options, options.rows, memory), on_host = problem(options, options.rows, host);
  void *const from = memory.allocate(kFlushBytes), *const to = memory.allocate(kFlushBytes);

  std::vector<Candidate> candidates = candidates_of(a, device);
  for (Candidate& candidate : candidates) {  // a first call, which is not timed
    candidate.run();
    candidate.error = error_of(a, device, on_host);
  }
  const std::size_t copied = sizeof(float) * static_cast<std::size_t>(a.rows * a.cols);
  candidates.push_back({.name = "copy of x to y", .run = [=] { copy_on_device(device, a.y, a.x, copied); }});
  for (int round = 0; round < options.rounds; ++round) {
    for (Candidate& candidate : candidates) {
      copy_on_device(device, to, from, kFlushBytes);
      candidate.seconds.push_back(seconds_of(device, candidate.run));
    }
  }

  const double bytes = layernorm_fwd_cost(kernel_arguments(a)).bytes;
  const auto kernel = std::find_if(candidates.begin(), candidates.end(),
                                   [](const Candidate& c) { return c.name == "kernels/layernorm"; });
  std::printf("\n%s, %d calls each: us is the median; GB/s and ratios are of the least\n", name_of(device.kind),
              options.rounds);
  std::printf("%-18s %9s %9s %7s %13s %13s   %s\n", "rung", "us", "least us", "GB/s", "/ rung before", "/ the kernel",
              "error of y");
  bool all_right = true;
  for (auto c = candidates.begin(); c != candidates.end(); ++c) {
    std::printf("%-18s %9.1f %9.1f %7.2f ", c->name.c_str(), c->median() * 1e6, c->least() * 1e6,
                bytes / c->least() * 1e-9);
    if (c == candidates.begin() || c >= kernel)
      std::printf("%13s ", "-");
    else
      std::printf("%13.2f ", c->least() / std::prev(c)->least());
    std::printf("%13.2f   ", c->least() / kernel->least());
    if (c == std::prev(candidates.end()))
      std::printf("-\n");
    else
      std::printf("%.1e, %s\n", c->error.y, verdict(c->error));
    all_right = all_right && (is_right(c->error) || c->variance == Variance::textbook);
  }
  return all_right;
}

// Runs the emulated rungs under every schedule of the tests. Returns whether all are right and give the
// same bits in every schedule.
bool emulate_rungs(const Options& options) {
  if constexpr (ISOBAR_HAS_EMULATOR) {
    Memory memory(Device{DeviceKind::emulator});
    const LadderArgs a = problem(options, std::min(options.rows, kEmulatedRows), memory);
    std::printf("\nCUDA in the emulator (no time: it says nothing about a GPU), %lld rows\n",
                static_cast<long long>(a.rows));
    std::printf("%-18s %s\n", "rung", "schedules, and the error of y");
    bool all_right = true;
    for (const Rung& rung : ladder_rungs()) {
      if (rung.device != DeviceKind::emulator) continue;
      std::vector<float> first;
      bool same_bits = true;
      LadderError worst;
      for (const emulator::Schedule& schedule : emulator::kTestSchedules) {
        emulator::set_schedule(schedule);
        rung.run(a, nullptr);
        const std::vector<float> y(a.y, a.y + a.rows * a.cols);
        if (first.empty()) first = y;
        same_bits = same_bits && y == first;
        const LadderError error = ladder_error(a, Variance::two_pass);
        if (!(error.of_bound <= worst.of_bound)) worst = error;
      }
      emulator::set_schedule({});
      std::printf("%-18s %zu schedules, %s; %.1e, %s\n", rung.name, std::size(emulator::kTestSchedules),
                  same_bits ? "the same bits" : "DIFFERENT bits", worst.y, verdict(worst));
      all_right = all_right && same_bits && is_right(worst);
    }
    return all_right;
  } else {
    std::printf("\nthis build has no emulator\n");
    return true;
  }
}

bool run(const Options& options) {
  const Machine machine = this_machine();
  std::printf("%s, %s, %d threads, commit %s\n", machine.cpu.c_str(), machine.instruction_set.c_str(), machine.threads,
              machine.commit.c_str());
  const Cost cost = layernorm_fwd_cost({.rows = options.rows, .cols = options.cols});
  std::printf("layer norm forward, %lld x %lld fp32: %.2f MB must move, %.1f Mflop\n",
              static_cast<long long>(options.rows), static_cast<long long>(options.cols), cost.bytes * 1e-6,
              cost.flops * 1e-6);
  bool right = time_rungs(options, {DeviceKind::cpu});
  if (gpu::device_count() > 0) right = time_rungs(options, {DeviceKind::cuda}) && right;
  return emulate_rungs(options) && right;
}

}  // namespace
}  // namespace isobar::bench

int main(int argc, char** argv) {
  isobar::bench::Options options;
  int threads = 0;
  CLI::App app("Runs one kernel from naive to fast: the rungs of bench/ladder/.", "isobar-ladder");
  app.add_option("--rows", options.rows, "Rows of x")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  app.add_option("--cols", options.cols, "Columns of x")
      ->check(CLI::Range(std::int64_t{1}, isobar::kLadderBlockCols))
      ->capture_default_str();
  app.add_option("--mean", options.mean, "The mean of x, whose elements lie within 1 of it")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Calls of each rung")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", threads, "CPU threads; default: all")->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
    if (threads > 0) omp_set_num_threads(threads);
    return isobar::bench::run(options) ? 0 : 1;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    std::cerr << "isobar-ladder: " << error.what() << '\n';
    return 1;
  }
}
