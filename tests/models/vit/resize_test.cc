// Patches and grids of other sizes: bilinear maps and their pseudo-inverses, places that rise, fall and go round.
#include "models/vit/resize.h"

#include <cmath>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using Values = std::vector<double>;

double largest_difference(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, Values(static_cast<std::size_t>(a.rows * b.columns))};
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.columns; ++j)
      for (std::int64_t k = 0; k < a.columns; ++k)
        c.values[static_cast<std::size_t>(i * b.columns + j)] += a.at(i, k) * b.at(k, j);
  return c;
}

}  // namespace

TEST_CASE("resize: the bilinear matrix is PyTorch's interpolate without align_corners") {
  CHECK(bilinear_matrix(2, 3).values == Values{1, 0, 0.5, 0.5, 0, 1});
  CHECK(bilinear_matrix(2, 4).values == Values{1, 0, 0.75, 0.25, 0.25, 0.75, 0, 1});
  CHECK(bilinear_matrix(4, 2).values == Values{0.5, 0.5, 0, 0, 0, 0, 0.5, 0.5});
  CHECK(bilinear_matrix(1, 3).values == Values{1, 1, 1});
  CHECK(is_identity(bilinear_matrix(5, 5)));
  CHECK_FALSE(is_identity(bilinear_matrix(2, 3)));
  // Ones on the diagonal alone are no identity of two sizes.
  CHECK_FALSE(is_identity({2, 3, {1, 0, 0, 0, 1, 0}}));
  CHECK_FALSE(is_identity({3, 2, {1, 0, 0, 1, 0, 0}}));
  CHECK_FALSE(is_identity({2, 2, {1, 0, 0, 0}}));
  CHECK_FALSE(is_identity({2, 2, {1, 0, 1e-6, 1}}));
  CHECK(is_identity({2, 2, {1, 1e-12, 0, 1 - 1e-12}}));
}

// numpy.linalg.pinv of the same matrices.
TEST_CASE("resize: the pseudo-inverse is numpy's, and has the four properties of Moore and Penrose") {
  CHECK(largest_difference(pseudo_inverse_of_bilinear(2, 3).values,
                           {5.0 / 6, 1.0 / 3, -1.0 / 6, -1.0 / 6, 1.0 / 3, 5.0 / 6}) < 1e-14);
  const Matrix eight = pseudo_inverse_of_bilinear(4, 8);
  CHECK(largest_difference(
            {eight.values.begin(), eight.values.begin() + 16},
            {6.664634146341465e-01, 4.445121951219514e-01, 6.097560975611346e-04, -1.481707317073169e-01,
             -1.829268292682813e-03, 4.939024390243910e-02, 5.487804878048769e-03, -1.646341463414635e-02,
             -2.213414634146341e-01, 7.378048780487806e-02, 6.640243902439024e-01, 6.420731707317072e-01,
             7.926829268292752e-03, -2.140243902439023e-01, -2.378048780487796e-02, 7.134146341463424e-02}) < 1e-14);
  CHECK(largest_difference(pseudo_inverse_of_bilinear(4, 3).values,
                           {1.176923076923076, -0.2, 0.023076923076923, 0.115384615384615, 1, -0.115384615384615,
                            -0.115384615384615, 1, 0.115384615384615, 0.023076923076923, -0.2, 1.176923076923077}) <
        1e-14);
  for (std::int64_t from = 1; from <= 9; ++from)
    for (std::int64_t to = 1; to <= 17; ++to) {
      INFO(from << " to " << to);
      const Matrix b = bilinear_matrix(from, to), inverse = pseudo_inverse_of_bilinear(from, to);
      const Matrix on_new = product(b, inverse), on_old = product(inverse, b);
      CHECK(largest_difference(product(on_new, b).values, b.values) < 1e-12);
      CHECK(largest_difference(product(on_old, inverse).values, inverse.values) < 1e-12);
      CHECK(largest_difference(transposed(on_new).values, on_new.values) < 1e-12);
      CHECK(largest_difference(transposed(on_old).values, on_old.values) < 1e-12);
      if (to >= from) CHECK(is_identity(on_old));
    }
}

TEST_CASE("resize: both axes of an array are mapped, rows by the left matrix") {
  const Matrix left{1, 2, {1, 10}}, right{3, 2, {1, 0, 0, 1, 1, 1}};
  CHECK(on_both_axes(left, right, Values{1, 2, 3, 4}) == Values{31, 42, 73});
}

TEST_CASE("resize: places may rise or fall, stay beyond the ends, and go round") {
  CHECK(interpolation_matrix(Values{0, 10, 20}, Values{-5, 0, 2.5, 20, 25}).values ==
        Values{1, 0, 0, 1, 0, 0, 0.75, 0.25, 0, 0, 0, 1, 0, 0, 1});
  CHECK(interpolation_matrix(Values{80, 0, -80}, Values{85, 40, -60}).values ==
        Values{1, 0, 0, 0.5, 0.5, 0, 0, 0.25, 0.75});
  // 350 lies between 270 and 360, which is 0.
  CHECK(interpolation_matrix(Values{0, 90, 180, 270}, Values{315, -45, 675, 360, 45}, 360).values ==
        Values{0.5, 0, 0, 0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0, 0.5, 1, 0, 0, 0, 0.5, 0.5, 0, 0});
  CHECK(interpolation_matrix(Values{-180, -60, 60}, Values{180, 120, 0}, 360).values ==
        Values{1, 0, 0, 0.5, 0, 0.5, 0, 0.5, 0.5});
  CHECK(interpolation_matrix(Values{3}, Values{1, 5}, 360).values == Values{1, 1});
  // Falling places go round as rising ones do: 315 lies between 0 (as 360) and 270.
  CHECK(interpolation_matrix(Values{270, 180, 90, 0}, Values{315, 135, 0, 300}, 360).values[0] == 0.5);
  CHECK(interpolation_matrix(Values{270, 180, 90, 0}, Values{135}, 360).values == Values{0, 0.5, 0.5, 0});
  CHECK(interpolation_matrix(Values{10, 20}, Values{}).rows == 0);
  CHECK_THROWS_WITH(interpolation_matrix(Values{}, Values{1}), "nothing can be interpolated from no places");
}

}  // namespace isobar::testing
