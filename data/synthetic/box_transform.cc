#include "data/synthetic/box_transform.h"

#include <bit>
#include <numbers>
#include <utility>

#include "data/parallel_tasks.h"
#include "kernels/common/check.h"

namespace isobar {

BoxTransform::BoxTransform(std::int64_t n, int threads) : n_(n), threads_(threads) {
  ISOBAR_CHECK(n >= 2 && std::has_single_bit(static_cast<std::uint64_t>(n)), "a box of ", n,
               " points along each axis is no power of two");
  for (std::int64_t j = 0; j < n / 2; ++j)
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(n)));
  for (std::int64_t place = 0; place < n; ++place) {
    std::int64_t reversed = 0;
    for (std::int64_t bit = 1; bit < n; bit *= 2) reversed = 2 * reversed + ((place & bit) != 0 ? 1 : 0);
    reversed_places_.push_back(reversed);
  }
}

double BoxTransform::wave_number(std::int64_t place) const {
  const std::int64_t q = place < n_ / 2 ? place : place - n_;
  return 2 * std::numbers::pi * static_cast<double>(q) / static_cast<double>(n_);
}

// Cooley and Tukey: places are exchanged by reversed bits, then pairs of halves are joined, twice as long each time.
void BoxTransform::transform_line(std::complex<double>* line, bool is_inverse) const {
  for (std::int64_t place = 0; place < n_; ++place)
    if (const std::int64_t other = reversed_places_[static_cast<std::size_t>(place)]; place < other)
      std::swap(line[place], line[other]);
  for (std::int64_t half = 1; half < n_; half *= 2)
    for (std::int64_t first = 0; first < n_; first += 2 * half)
      for (std::int64_t j = 0; j < half; ++j) {
        const std::complex<double> root = roots_[static_cast<std::size_t>(j * (n_ / (2 * half)))];
        const std::complex<double> low = line[first + j];
        const std::complex<double> high = line[first + j + half] * (is_inverse ? std::conj(root) : root);
        line[first + j] = low + high;
        line[first + j + half] = low - high;
      }
  if (is_inverse)
    for (std::int64_t place = 0; place < n_; ++place) line[place] /= static_cast<double>(n_);
}

// The lines of one axis after the other.
void BoxTransform::transform(ComplexBox& box, bool is_inverse) const {
  const std::int64_t strides[] = {n_ * n_, n_, 1};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t along = strides[axis], outer = strides[axis == 0 ? 1 : 0], inner = strides[axis == 2 ? 1 : 2];
    parallel_tasks(n_, threads_, [&](std::int64_t plane) {
      std::vector<std::complex<double>> line(static_cast<std::size_t>(n_));
      for (std::int64_t other = 0; other < n_; ++other) {
        const std::int64_t first = plane * outer + other * inner;
        for (std::int64_t i = 0; i < n_; ++i)
          line[static_cast<std::size_t>(i)] = box[static_cast<std::size_t>(first + i * along)];
        transform_line(line.data(), is_inverse);
        for (std::int64_t i = 0; i < n_; ++i)
          box[static_cast<std::size_t>(first + i * along)] = line[static_cast<std::size_t>(i)];
      }
    });
  }
}

}  // namespace isobar
