// What each element of a convolution's result reads: where the taps of its window lie in the source, in the order in
// which a product takes them as terms. fwd has one window; bwd_data has one for each class of elements of x that see
// the same taps (kernels/conv/conv.h), and reads dy through it; bwd_weight reads x through that of fwd.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"

namespace isobar {

// Always inline, as kernels/common/math.h tells why.
#define ISOBAR_CONV_FUNCTION ISOBAR_HD inline __attribute__((always_inline)) constexpr

// Taps first .. first + count - 1 of a window. Tap t lies at offset + (t - first) from the window's place in the source
// and is element kernel + (t - first)·kernel_step of the kernel.
struct ConvRun {
  std::int64_t first = 0, count = 0, offset = 0, kernel = 0, kernel_step = 0;
};

// One axis. Result j, of `results`, stands at first_result + j·result_step in its tensor, and at j·step in the source.
struct ConvWindowAxis {
  std::int64_t results = 1, first_result = 0, result_step = 1, step = 1, extent = 1;
  Edge edge = Edge::zeros;  // beyond the source's ends
  std::int64_t taps = 0;
  std::int64_t runs = 0;
  ConvRun run[3] = {};

  ISOBAR_CONV_FUNCTION const ConvRun& run_of(std::int64_t tap) const {
    int r = 0;
    while (tap >= run[r].first + run[r].count) ++r;
    return run[r];
  }
  // Where a tap of result j lies in the source; -1: outside.
  ISOBAR_CONV_FUNCTION std::int64_t position(std::int64_t j, std::int64_t tap) const {
    const ConvRun& r = run_of(tap);
    const std::int64_t at = j * step + r.offset + (tap - r.first);
    if (at >= 0 && at < extent) return at;
    if (edge == Edge::zeros) return -1;
    return at < 0 ? at + extent : at - extent;  // an axis reaches at most its own length beyond either end
  }
  ISOBAR_CONV_FUNCTION std::int64_t kernel_of(std::int64_t tap) const {
    const ConvRun& r = run_of(tap);
    return r.kernel + (tap - r.first) * r.kernel_step;
  }
  ISOBAR_CONV_FUNCTION std::int64_t result_at(std::int64_t j) const { return first_result + j * result_step; }
};

struct ConvWindow {
  ConvWindowAxis axes[3];

  ISOBAR_CONV_FUNCTION std::int64_t results() const { return axes[0].results * axes[1].results * axes[2].results; }
  ISOBAR_CONV_FUNCTION std::int64_t taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
  ISOBAR_CONV_FUNCTION std::int64_t points() const { return axes[0].extent * axes[1].extent * axes[2].extent; }
};

// These three are compiled once, not once an instruction set.
ConvWindow conv_fwd_window(const ConvShape& shape);
// Elements i = s·j + residue of x, along one axis, 0 <= residue < s.
ConvWindowAxis conv_bwd_data_axis(const ConvAxis& axis, std::int64_t residue);
// The classes are numbered over the residues of the three axes, the last one fastest.
ISOBAR_CONV_FUNCTION std::int64_t conv_classes(const ConvShape& shape) {
  return shape.axes[0].stride * shape.axes[1].stride * shape.axes[2].stride;
}
ConvWindow conv_bwd_data_window(const ConvShape& shape, std::int64_t c);

#undef ISOBAR_CONV_FUNCTION

}  // namespace isobar
