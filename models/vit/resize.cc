#include "models/vit/resize.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kRounding = 1e-9;

Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {rows, columns, std::vector<double>(static_cast<std::size_t>(rows * columns))};
}

double& element(Matrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.values[static_cast<std::size_t>(row * matrix.columns + column)];
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = zeros(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) element(c, i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

// x of a·x = b, with a symmetric and positive definite [n, n]: by the Cholesky factor L, a = L·Lᵀ.
Matrix solved(Matrix a, Matrix b) {
  const std::int64_t n = a.rows;
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t k = 0; k < j; ++k)
      for (std::int64_t i = j; i < n; ++i) element(a, i, j) -= a.at(i, k) * a.at(j, k);
    const double pivot = std::sqrt(a.at(j, j));
    for (std::int64_t i = j; i < n; ++i) element(a, i, j) /= pivot;
  }
  for (std::int64_t c = 0; c < b.columns; ++c) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < i; ++k) element(b, i, c) -= a.at(i, k) * b.at(k, c);
      element(b, i, c) /= a.at(i, i);
    }
    for (std::int64_t i = n - 1; i >= 0; --i) {
      for (std::int64_t k = i + 1; k < n; ++k) element(b, i, c) -= a.at(k, i) * b.at(k, c);
      element(b, i, c) /= a.at(i, i);
    }
  }
  return b;
}

// The middles of n equal parts of [0, 1].
std::vector<double> middles(std::int64_t n) {
  std::vector<double> places;
  for (std::int64_t i = 0; i < n; ++i) places.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(n));
  return places;
}

// Sets row `row` of the matrix for a place between two neighbours, of which the second may be the first one again.
void set_between(Matrix& matrix, std::int64_t row, std::int64_t before, std::int64_t behind, double share) {
  element(matrix, row, before) += 1 - share;
  element(matrix, row, behind) += share;
}

}  // namespace

Matrix transposed(const Matrix& a) {
  Matrix t = zeros(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) element(t, j, i) = a.at(i, j);
  return t;
}

Matrix interpolation_matrix(std::span<const double> from, std::span<const double> to, double period) {
  const std::int64_t n = std::ssize(from);
  ISOBAR_CHECK(n > 0, "nothing can be interpolated from no places");
  Matrix matrix = zeros(std::ssize(to), n);
  const double sign = n > 1 && from[1] < from[0] ? -1 : 1;  // falling places rise with it
  const auto place = [&](std::int64_t i) { return sign * from[static_cast<std::size_t>(i)]; };
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    double at = sign * to[static_cast<std::size_t>(row)];
    if (period > 0) at -= period * std::floor((at - place(0)) / period);  // in [place(0), place(0) + period)
    std::int64_t behind = 0;
    while (behind < n && place(behind) <= at) ++behind;
    if (behind > 0 && behind < n) {
      set_between(matrix, row, behind - 1, behind, (at - place(behind - 1)) / (place(behind) - place(behind - 1)));
    } else if (period > 0 && n > 1) {
      set_between(matrix, row, n - 1, 0, (at - place(n - 1)) / (place(0) + period - place(n - 1)));
    } else {
      element(matrix, row, behind == 0 ? 0 : n - 1) = 1;
    }
  }
  return matrix;
}

Matrix bilinear_matrix(std::int64_t from, std::int64_t to) {
  return interpolation_matrix(middles(from), middles(to));
}

// B has full rank: for to >= from (Bᵀ·B)⁻¹·Bᵀ, else Bᵀ·(B·Bᵀ)⁻¹.
Matrix pseudo_inverse_of_bilinear(std::int64_t from, std::int64_t to) {
  const Matrix b = bilinear_matrix(from, to), t = transposed(b);
  return to >= from ? solved(product(t, b), t) : transposed(solved(product(b, t), b));
}

std::vector<double> on_both_axes(const Matrix& left, const Matrix& right, std::span<const double> x) {
  const Matrix middle{left.columns, right.columns, {x.begin(), x.end()}};
  return product(product(left, middle), transposed(right)).values;
}

bool is_identity(const Matrix& matrix) {
  if (matrix.rows != matrix.columns) return false;
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.columns; ++j)
      if (std::abs(matrix.at(i, j) - (i == j ? 1 : 0)) > kRounding) return false;
  return true;
}

}  // namespace isobar
