#include "bench/ladder/ladder.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace isobar {

std::vector<Rung> ladder_rungs() {
  std::vector<Rung> rungs = {{"naive", DeviceKind::cpu, cpu::ladder_naive},
                             {"vector", DeviceKind::cpu, cpu::ladder_vector},
                             {"one_pass", DeviceKind::cpu, cpu::ladder_one_pass, Variance::textbook},
                             {"blocked", DeviceKind::cpu, cpu::ladder_blocked},
                             {"threaded", DeviceKind::cpu, cpu::ladder_threaded}};
  if constexpr (ISOBAR_HAS_EMULATOR) {
    rungs.push_back({"thread_per_row", DeviceKind::emulator, emulator::ladder_thread_per_row});
    rungs.push_back({"warp_per_row", DeviceKind::emulator, emulator::ladder_warp_per_row});
    rungs.push_back({"block_per_row", DeviceKind::emulator, emulator::ladder_block_per_row});
  }
  if constexpr (ISOBAR_HAS_CUDA) {
    rungs.push_back({"thread_per_row", DeviceKind::cuda, cuda::ladder_thread_per_row});
    rungs.push_back({"warp_per_row", DeviceKind::cuda, cuda::ladder_warp_per_row});
    rungs.push_back({"block_per_row", DeviceKind::cuda, cuda::ladder_block_per_row});
  }
  return rungs;
}

namespace {

// |value - exact| / bound, infinite for NaN.
double part_of_bound(double value, double exact, double bound) {
  const double error = std::abs(value - exact);
  if (error == 0) return 0;
  return error <= std::numeric_limits<double>::max() ? error / bound : std::numeric_limits<double>::infinity();
}

}  // namespace

LadderError ladder_error(const LadderArgs& a, Variance variance) {
  constexpr double kHalfLastPlace = 0x1p-24;
  const double n = static_cast<double>(a.cols);
  const double growth = (2 * std::sqrt(n) + 8) * kHalfLastPlace;
  LadderError worst;
  const auto judge = [&](double value, double exact, double bound) {
    worst.of_bound = std::max(worst.of_bound, part_of_bound(value, exact, bound));
  };
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.cols;
    double sum = 0, squares = 0, largest = 0;
    for (std::int64_t c = 0; c < a.cols; ++c) sum += x[c];
    const double mean = sum / n;
    for (std::int64_t c = 0; c < a.cols; ++c) {
      squares += (x[c] - mean) * (x[c] - mean);
      largest = std::max(largest, std::abs(static_cast<double>(x[c])));
    }
    const double rstd = 1 / std::sqrt(squares / n + a.eps);

    const double k = largest * rstd;
    const double drstd = growth + (variance == Variance::two_pass ? growth * k * growth * k : growth * k * k);
    judge(a.mean[row], mean, growth * largest);
    judge(a.rstd[row], rstd, rstd * drstd);
    for (std::int64_t c = 0; c < a.cols; ++c) {
      const double weight = a.weight[c], bias = a.bias[c], h = (x[c] - mean) * rstd;
      const double y = h * weight + bias, found = a.y[row * a.cols + c];
      judge(found, y, std::abs(weight) * (growth * k + std::abs(h) * drstd) + growth * std::abs(bias));
      const double error = std::abs(found - y);
      if (!(error <= worst.y)) worst.y = std::isnan(worst.y) ? worst.y : error;  // a NaN stays
    }
  }
  return worst;
}

}  // namespace isobar
