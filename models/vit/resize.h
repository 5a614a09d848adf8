// Weights of a vision transformer for other patches and another grid, in fp64.
//
// B [P', P] is linear interpolation of P points of an interval to P' points of the same interval: point i of n lies at
// (i + 1/2)/n, and beyond the first and the last one the value stays (PyTorch's interpolate without align_corners).
// B^+ is its pseudo-inverse. Patches of P x P points, x:
//
//   embedding  w' = w (B x B)^+    so that w'·resized(x) = w·x for P' >= P, and the nearest to it for P' < P
//                                  (Beyer et al. 2023, FlexiViT, section 3.4)
//   head       W' = (B x B) W      the output of the new head is the output of the old one, resized
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isobar {

// A matrix [rows, columns], row by row.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

Matrix transposed(const Matrix& matrix);

Matrix bilinear_matrix(std::int64_t from, std::int64_t to);             // B [to, from]
Matrix pseudo_inverse_of_bilinear(std::int64_t from, std::int64_t to);  // B^+ [from, to]

// left · x · rightᵀ, of x [left.columns, right.columns].
std::vector<double> on_both_axes(const Matrix& left, const Matrix& right, std::span<const double> x);

// Linear interpolation at places `to` of values at places `from`, as a matrix [to, from]. Places rise or fall. Outside
// the first and the last one the value stays. period > 0: the places lie on a circle of this length, and between the
// last one and the first one values are interpolated too.
Matrix interpolation_matrix(std::span<const double> from, std::span<const double> to, double period = 0);

bool is_identity(const Matrix& matrix);

}  // namespace isobar
