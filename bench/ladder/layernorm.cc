// The list of layer norm's rungs, and their bounds. With u = 2^-24 (half a last place), g = (2·√cols + 8)·u for sums of
// cols rounded terms, and k = max|x|·rstd, how often the deviation fits into the largest element of the row:
//
//   mean   g · max|x|
//   rstd   rstd · d          with d = g + (g·k)²  for two passes,  g + g·k²  for the textbook's formula
//   y      |weight| · (rstd · g·max|x| + |h|·d) + g·|bias|,          h = (x - mean)·rstd
#include "bench/ladder/layernorm.h"

#include <algorithm>
#include <cmath>

#include "bench/ladder/ladder.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/layernorm.h"

namespace isobar {
namespace {

std::vector<RungOf<LayernormRungArgs>> layernorm_rungs() {
  std::vector<RungOf<LayernormRungArgs>> rungs = {
      {"naive", DeviceKind::cpu, cpu::ladder_naive},
      {"vector", DeviceKind::cpu, cpu::ladder_vector},
      {"one_pass", DeviceKind::cpu, cpu::ladder_one_pass, Accuracy::cancels},
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

class LayernormLadder : public Ladder {
 public:
  LayernormLadder(std::int64_t rows, std::int64_t cols, double mean, double spread)
      : rows_(rows), cols_(cols), mean_(mean), spread_(spread) {
    ISOBAR_CHECK(cols <= kLadderMaxCols, "the ladder of layer norm has rows of at most ", kLadderMaxCols, " columns");
  }

  std::string title() const override { return concat("layer norm forward, ", rows_, " x ", cols_, " fp32"); }
  Cost cost() const override { return layernorm_fwd_cost({.rows = rows_, .cols = cols_}); }

  std::vector<LadderArray> arrays() const override {
    return {{rows_ * cols_, mean_ - spread_, mean_ + spread_},  // x
            {cols_, 0.5, 1.5},                                  // weight
            {cols_, -1, 1},                                     // bias
            {.size = rows_ * cols_, .is_output = true},         // y
            {.size = rows_, .is_output = true},                 // mean
            {.size = rows_, .is_output = true}};                // rstd
  }

  std::vector<Rung> rungs() const override {
    return bound_rungs(layernorm_rungs(),
                       [ladder = *this](const LadderPointers& arrays) { return ladder.bind(arrays); });
  }

  std::string kernel_name() const override { return "kernels/layernorm"; }
  void run_kernel(Device device, const LadderPointers& arrays) const override {
    const LayernormRungArgs a = bind(arrays);
    const LayernormFwdArgs kernel = {.rows = a.rows,
                                     .cols = a.cols,
                                     .eps = a.eps,
                                     .x = a.x,
                                     .weight = a.weight,
                                     .bias = a.bias,
                                     .y = a.y,
                                     .mean = a.mean,
                                     .rstd = a.rstd};
    ISOBAR_RUN(device, layernorm_fwd, kernel);
  }

  std::vector<std::vector<Expected>> expected(const LadderPointers& arrays, Accuracy accuracy) const override {
    const LayernormRungArgs a = bind(arrays);
    const double n = static_cast<double>(cols_), growth = sum_rounding(cols_);
    std::vector<Expected> y, means, rstds;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const float* x = a.x + row * cols_;
      double sum = 0, squares = 0, largest = 0;
      for (std::int64_t c = 0; c < cols_; ++c) sum += x[c];
      const double mean = sum / n;
      for (std::int64_t c = 0; c < cols_; ++c) {
        squares += (x[c] - mean) * (x[c] - mean);
        largest = std::max(largest, std::abs(static_cast<double>(x[c])));
      }
      const double rstd = 1 / std::sqrt(squares / n + a.eps), k = largest * rstd;
      const double drstd = growth + (accuracy == Accuracy::cancels ? growth * k * k : growth * k * growth * k);
      means.push_back({mean, growth * largest});
      rstds.push_back({rstd, rstd * drstd});
      for (std::int64_t c = 0; c < cols_; ++c) {
        const double weight = a.weight[c], bias = a.bias[c], h = (x[c] - mean) * rstd;
        y.push_back(
            {h * weight + bias, std::abs(weight) * (growth * k + std::abs(h) * drstd) + growth * std::abs(bias)});
      }
    }
    return {y, means, rstds};
  }

 private:
  LayernormRungArgs bind(const LadderPointers& arrays) const {
    return {.rows = rows_,
            .cols = cols_,
            .x = arrays[0],
            .weight = arrays[1],
            .bias = arrays[2],
            .y = arrays[3],
            .mean = arrays[4],
            .rstd = arrays[5]};
  }

  std::int64_t rows_, cols_;
  double mean_, spread_;
};

}  // namespace

std::unique_ptr<Ladder> layernorm_ladder(std::int64_t rows, std::int64_t cols, double mean, double spread) {
  return std::make_unique<LayernormLadder>(rows, cols, mean, spread);
}

}  // namespace isobar
