// What the kernels of a convolution on a GPU do in parts: the batch, so that elements are counted in 32 bits; and the
// terms of a product, each part by blocks of its own.
#pragma once

#include <algorithm>

#include "kernels/conv/operands.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// Samples whose tensors have less than 2^31 elements, so that rows and terms are counted in 32 bits. The emulator takes
// few, so that small tests divide their batches.
inline std::int64_t samples_at_a_time(const ConvShape& s) {
#if defined(ISOBAR_EMULATE)
  constexpr std::int64_t kElements = 1 << 12;
#else
  constexpr std::int64_t kElements = (std::int64_t{1} << 31) - 1;
#endif
  const std::int64_t sample = std::max(s.in_points() * s.in_channels, s.out_points() * s.out_channels);
  return std::max<std::int64_t>(kElements / sample, 1);
}

// Calls f(shape, first) for the parts of the batch, where `shape` is that of samples [first, first + shape.batch).
template <class F>
void for_each_part(const ConvShape& whole, const F& f) {
  const std::int64_t samples = samples_at_a_time(whole);
  for (std::int64_t first = 0; first < whole.batch; first += samples) {
    ConvShape part = whole;
    part.batch = std::min(samples, whole.batch - first);
    f(part, first);
  }
}

// Calls f(window, product) for the classes of elements of x that bwd_data computes (kernels/conv/window.h), but for
// those that are empty.
template <class F>
void for_each_class(const ConvShape& s, const F& f) {
  for (std::int64_t c = 0; c < conv_classes(s); ++c) {
    const ConvWindow window = conv_bwd_data_window(s, c);
    const ConvProduct product{s.batch * window.results(), s.in_channels, window.taps() * s.out_channels};
    if (product.m > 0) f(window, product);
  }
}

// The tensor from an element on.
inline const void* from_element(const void* data, DType dtype, std::int64_t first) {
  return static_cast<const char*>(data) + first * static_cast<std::int64_t>(size_of(dtype));
}
inline void* from_element(void* data, DType dtype, std::int64_t first) {
  return static_cast<char*>(data) + first * static_cast<std::int64_t>(size_of(dtype));
}

// Of so many terms; `split` is that of the whole batch and of the largest class.
inline int parts_of(std::int64_t terms, const ConvSplit& split) {
  return split.parts > 1 && terms > split.terms ? static_cast<int>(ceil_div(terms, split.terms)) : 1;
}

// The sums of parts of the terms, [parts, m, n], of rows [first_row, first_row + m) of a result.
struct PartsOfTerms {
  const float* sums;
  int parts, first_row, m, n;
};

// Adds the parts in their order (parts.cu).
void add_parts(const PartsOfTerms& terms, const ResultRows& rows, const ConvResult& result, Stream stream);

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
