#include "kernels/conv/window.h"

namespace isobar {
namespace {

void add_run(ConvWindowAxis& w, std::int64_t count, std::int64_t offset, std::int64_t kernel,
             std::int64_t kernel_step) {
  if (count <= 0) return;
  w.run[w.runs++] = {w.taps, count, offset, kernel, kernel_step};
  w.taps += count;
}

}  // namespace

ConvWindow conv_fwd_window(const ConvShape& shape) {
  ConvWindow window;
  for (int a = 0; a < 3; ++a) {
    const ConvAxis& axis = shape.axes[a];
    ConvWindowAxis& w = window.axes[a];
    w = {.results = axis.out, .step = axis.stride, .extent = axis.in, .edge = axis.edge};
    add_run(w, axis.kernel, -axis.pad, 0, 1);
  }
  return window;
}

// Of the taps one in s has s | i + p - k, and o = (i + p - k)/s grows by one as k falls by s: in this order the taps
// lie side by side in dy. A wrapped x is also read at i - I and at i + I. If s·O = I, that is the same as to wrap dy.
ConvWindowAxis conv_bwd_data_axis(const ConvAxis& axis, std::int64_t residue) {
  const std::int64_t s = axis.stride;
  ConvWindowAxis w = {.results = axis.in > residue ? ceil_div(axis.in - residue, s) : 0,
                      .first_result = residue,
                      .result_step = s,
                      .extent = axis.out,
                      .edge = axis.out * s == axis.in ? axis.edge : Edge::zeros};
  const std::int64_t images = axis.edge != w.edge ? 1 : 0;
  for (std::int64_t image = -images; image <= images; ++image) {
    // Of i + p, never negative: a wrapped x has at least one length before its first element.
    const std::int64_t place = residue + axis.pad + image * axis.in, shift = images * axis.in * s;
    const std::int64_t first_tap = (place + shift) % s, quotient = (place + shift) / s - images * axis.in;
    const std::int64_t count = axis.kernel > first_tap ? ceil_div(axis.kernel - first_tap, s) : 0;
    add_run(w, count, quotient - (count - 1), first_tap + (count - 1) * s, -s);
  }
  return w;
}

ConvWindow conv_bwd_data_window(const ConvShape& shape, std::int64_t c) {
  ConvWindow window;
  for (int a = 2; a >= 0; --a) {
    const ConvAxis& axis = shape.axes[a];
    window.axes[a] = conv_bwd_data_axis(axis, c % axis.stride);
    c /= axis.stride;
  }
  return window;
}

}  // namespace isobar
