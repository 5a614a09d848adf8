// The list of the convolution's rungs, and their bounds: a sum of products may err by the rounding of such a sum.
#include "bench/ladder/conv.h"

#include <cmath>

#include "bench/ladder/ladder.h"
#include "kernels/common/check.h"
#include "kernels/conv/conv.h"

namespace isobar {
namespace {

class ConvLadder : public Ladder {
 public:
  ConvLadder(std::int64_t batch, std::int64_t side, std::int64_t in, std::int64_t out)
      : sizes_{.batch = batch, .side = side, .in = in, .out = out} {}

  std::string title() const override {
    return concat("convolution 3 x 3, ", sizes_.batch, " x ", sizes_.side, " x ", sizes_.side, ", ", sizes_.in, " -> ",
                  sizes_.out, " channels fp32");
  }
  Cost cost() const override { return conv_fwd_cost({.shape = shape()}); }
  std::vector<LadderArray> arrays() const override {
    const ConvShape s = shape();
    return {{s.x()}, {s.weight()}, {.size = s.y(), .is_output = true}};
  }
  std::vector<Rung> rungs() const override {
    const std::vector<RungOf<ConvRungArgs>> rungs = {{"naive", DeviceKind::cpu, cpu::conv_naive},
                                                     {"tiled", DeviceKind::cpu, cpu::conv_tiled},
                                                     {"threaded", DeviceKind::cpu, cpu::conv_threaded},
                                                     {"im2col", DeviceKind::cpu, cpu::conv_im2col},
                                                     {"gathered", DeviceKind::cpu, cpu::conv_gathered}};
    return bound_rungs(rungs, [ladder = *this](const LadderPointers& arrays) { return ladder.bind(arrays); });
  }

  std::string kernel_name() const override { return "kernels/conv"; }
  void run_kernel(Device device, const LadderPointers& arrays) const override {
    const ConvFwdArgs kernel = {.shape = shape(), .x = arrays[0], .weight = arrays[1], .y = arrays[2]};
    ISOBAR_CHECK(device.kind == DeviceKind::cpu, "the ladder of the convolution is one of a CPU");
    cpu::conv_fwd(kernel);
  }

  std::vector<std::vector<Expected>> expected(const LadderPointers& arrays, Accuracy) const override {
    const ConvRungArgs a = bind(arrays);
    const double of_term = sum_rounding(a.terms());
    std::vector<Expected> y(static_cast<std::size_t>(a.points() * a.out));
    for (std::int64_t point = 0; point < a.points(); ++point) {
      const std::int64_t i = point / a.side % a.side, j = point % a.side;
      for (std::int64_t tap = 0; tap < 9; ++tap) {
        const std::int64_t down = tap / 3 - 1, right = tap % 3 - 1;
        if (i + down < 0 || i + down >= a.side || j + right < 0 || j + right >= a.side) continue;
        const float* const x = a.x + (point + down * a.side + right) * a.in;
        for (std::int64_t co = 0; co < a.out; ++co) {
          const float* const weight = a.weight + (co * 9 + tap) * a.in;
          Expected& e = y[static_cast<std::size_t>(point * a.out + co)];
          for (std::int64_t ci = 0; ci < a.in; ++ci) {
            const double term = static_cast<double>(weight[ci]) * x[ci];
            e.value += term;
            e.bound += std::abs(term) * of_term;
          }
        }
      }
    }
    return {y};
  }

 private:
  ConvShape shape() const {
    const ConvAxis axis{.in = sizes_.side, .out = sizes_.side, .kernel = 3, .stride = 1, .pad = 1};
    return {sizes_.batch, sizes_.in, sizes_.out, {{}, axis, axis}};
  }
  ConvRungArgs bind(const LadderPointers& arrays) const {
    ConvRungArgs a = sizes_;
    a.x = arrays[0], a.weight = arrays[1], a.y = arrays[2];
    return a;
  }

  ConvRungArgs sizes_;  // without arrays
};

}  // namespace

std::unique_ptr<Ladder> conv_ladder(std::int64_t batch, std::int64_t side, std::int64_t in, std::int64_t out) {
  return std::make_unique<ConvLadder>(batch, side, in, out);
}

}  // namespace isobar
