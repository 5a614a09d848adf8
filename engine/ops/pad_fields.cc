// pad_fields and crop_fields: copies of equally spaced runs. Each step works on one axis of a tensor seen as
// [outer, n, inner].
#include <algorithm>

#include "engine/field_ops.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

// An axis, and its length when it is lengthened.
struct PaddedAxis {
  std::int64_t outer = 1, n = 1, padded = 1, inner = 1;
  Behind behind = Behind::last_point;
};

// Calls copy(source, place, count): points [place, place + count) of the padded axis are copies of [source, source +
// count). The first call is for the axis itself.
template <class Copy>
void for_each_copy(const PaddedAxis& axis, const Copy& copy) {
  copy(0, 0, axis.n);
  const bool wraps = axis.behind == Behind::first_points;
  const std::int64_t source = wraps ? 0 : axis.n - 1, period = wraps ? axis.n : 1;
  for (std::int64_t place = axis.n; place < axis.padded; place += period)
    copy(source, place, std::min(period, axis.padded - place));
}

// Points [first, first + count) of an axis of n points.
StridedBlocks points_of(const PaddedAxis& axis, std::int64_t n, std::int64_t first) {
  return {first * axis.inner, n * axis.inner};
}

// x: [outer, n, inner]. Returns [outer, padded, inner].
Tensor lengthened(const Tensor& x, const PaddedAxis& axis) {
  if (axis.padded == axis.n) return x;
  const Tensor y = Tensor::empty({axis.outer, axis.padded, axis.inner}, x.dtype(), x.device());
  for_each_copy(axis, [&](std::int64_t source, std::int64_t place, std::int64_t count) {
    copy_strided(y, points_of(axis, axis.padded, place), x, points_of(axis, axis.n, source), axis.outer,
                 count * axis.inner);
  });
  return y;
}

// dy: [outer, padded, inner]. Returns [outer, n, inner]: the gradient of a point is the sum of those of its copies.
Tensor lengthened_bwd(const Tensor& dy, const PaddedAxis& axis) {
  if (axis.padded == axis.n) return dy;
  const MemoryScope scope("gradients");
  const Tensor dx = Tensor::empty({axis.outer, axis.n, axis.inner}, dy.dtype(), dy.device());
  for_each_copy(axis, [&](std::int64_t source, std::int64_t place, std::int64_t count) {
    const std::int64_t run = count * axis.inner;
    const StridedBlocks of_copy = points_of(axis, axis.padded, place), of_source = points_of(axis, axis.n, source);
    if (place == 0) return copy_strided(dx, of_source, dy, of_copy, axis.outer, run);
    const Tensor given = Tensor::empty({axis.outer, run}, dy.dtype(), dy.device());
    const Tensor before = Tensor::empty({axis.outer, run}, dy.dtype(), dy.device());
    copy_strided(given, {0, run}, dy, of_copy, axis.outer, run);
    copy_strided(before, {0, run}, dx, of_source, axis.outer, run);
    copy_strided(dx, of_source, add(before, given), {0, run}, axis.outer, run);
  });
  return dx;
}

// The first n points of an axis: [outer, padded, inner] to [outer, n, inner].
Tensor shortened(const Tensor& x, const PaddedAxis& axis) {
  if (axis.padded == axis.n) return x;
  const Tensor y = Tensor::empty({axis.outer, axis.n, axis.inner}, x.dtype(), x.device());
  copy_strided(y, points_of(axis, axis.n, 0), x, points_of(axis, axis.padded, 0), axis.outer, axis.n * axis.inner);
  return y;
}

Tensor shortened_bwd(const Tensor& dy, const PaddedAxis& axis) {
  if (axis.padded == axis.n) return dy;
  const MemoryScope scope("gradients");
  const Tensor dx = Tensor::zeros({axis.outer, axis.padded, axis.inner}, dy.dtype(), dy.device());
  copy_strided(dx, points_of(axis, axis.padded, 0), dy, points_of(axis, axis.n, 0), axis.outer, axis.n * axis.inner);
  return dx;
}

// The two axes of fields [B, V, LAT, LON], which become `rows` and `columns` or were that before. The columns are those
// of the shorter fields while they are lengthened, so that fewer points are copied twice.
struct PaddedGrid {
  PaddedAxis columns, rows;

  PaddedGrid(const Shape& small, const Shape& large, Behind behind_columns)
      : columns{.outer = small[0] * small[1] * small[2], .n = small[3], .padded = large[3], .behind = behind_columns},
        rows{.outer = small[0] * small[1], .n = small[2], .padded = large[2], .inner = large[3]} {}
};

Shape with_grid(const Shape& fields, std::int64_t rows, std::int64_t columns) {
  return {fields[0], fields[1], rows, columns};
}

}  // namespace

Tensor pad_fields(const Tensor& x, std::int64_t rows, std::int64_t columns, Behind behind_columns) {
  check_operands("pad_fields", {{"the batch of fields", x, 4}});
  ISOBAR_CHECK(x.numel() > 0 && rows >= x.size(2) && columns >= x.size(3), "pad_fields: ", to_string(x.shape()),
               " cannot be lengthened to ", rows, " rows and ", columns, " columns");
  if (rows == x.size(2) && columns == x.size(3)) return x;
  const Shape shape = with_grid(x.shape(), rows, columns);
  const PaddedGrid grid(x.shape(), shape, behind_columns);
  Tensor y = lengthened(lengthened(x.detach(), grid.columns), grid.rows).view(shape);
  Tape::record("pad_fields", {&x}, {}, {&y},
               [x = Target(x), grid](Gradients& gradients, const std::vector<Tensor>& dy) {
                 gradients.give(x, lengthened_bwd(lengthened_bwd(dy[0], grid.rows), grid.columns).view(x.shape));
               });
  return y;
}

Tensor crop_fields(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  check_operands("crop_fields", {{"the batch of fields", x, 4}});
  ISOBAR_CHECK(rows >= 1 && rows <= x.size(2) && columns >= 1 && columns <= x.size(3),
               "crop_fields: ", to_string(x.shape()), " has no first ", rows, " rows and ", columns, " columns");
  if (rows == x.size(2) && columns == x.size(3)) return x;
  const Shape shape = with_grid(x.shape(), rows, columns);
  const PaddedGrid grid(shape, x.shape(), Behind::last_point);
  Tensor y = shortened(shortened(x.detach(), grid.rows), grid.columns).view(shape);
  Tape::record("crop_fields", {&x}, {}, {&y},
               [x = Target(x), grid](Gradients& gradients, const std::vector<Tensor>& dy) {
                 gradients.give(x, shortened_bwd(shortened_bwd(dy[0], grid.columns), grid.rows).view(x.shape));
               });
  return y;
}

}  // namespace isobar
