// The index of differentiable operations on fields [B, V, LAT, LON]: they lengthen them, cut them into patches, and
// compare forecasts. All others are in engine/ops.h.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sum_over_ranks.h"
#include "engine/tensor.h"
#include "kernels/forecast_loss.h"
#include "kernels/patchify.h"

namespace isobar {

struct LossInputs {
  LossKind kind = LossKind::relative_l2;
  // Whether a NaN of the target is a missing point, which has no weight and whose gradient is 0. The loss is then the
  // mean over the samples of this batch that have a point (kernels/forecast_loss.h).
  bool masked = false;
  Tensor row_weights = {}, channel_weights = {};  // [LAT] of the rows given, [V]; may be undefined
  // LAT of the whole picture, if the fields are a band of its rows; 0: the fields are the whole picture.
  std::int64_t whole_height = 0;
  // Adds the sums [B, 2], masked [B, 4], of all bands; empty: there is one band.
  SumOverRanks add_up = {};
  // P, if the forecast is rows of patches (PatchOrder::channels_last); 0: the forecast is fields.
  std::int64_t patch = 0;
};

// What lies behind the last column of fields: copies of that column, or the columns from the first on, as on a globe.
enum class Behind : std::uint8_t { last_point, first_points };

// Channels [first, first + count) of fields [B, V, LAT, LON].
struct Planes {
  Tensor fields;
  std::int64_t first = 0, count = 0;
};

// [B, V, LAT, LON] -> [B, V, rows, columns], rows >= LAT, columns >= LON. Added rows are copies of the last row.
// Returns x itself where nothing is added.
Tensor pad_fields(const Tensor& x, std::int64_t rows, std::int64_t columns, Behind behind_columns);
// The first rows and columns: [B, V, LAT, LON] -> [B, V, rows, columns]. The gradient of the others is 0. Returns x
// itself where nothing is cut.
Tensor crop_fields(const Tensor& x, std::int64_t rows, std::int64_t columns);
// [B, V, LAT, LON] -> [B·T, V·P·P], T = LAT/P · LON/P.
Tensor patchify(const Tensor& image, std::int64_t patch, PatchOrder order, DType out_dtype);
// [B·T, V·P·P] -> [B, V, LAT, LON].
Tensor unpatchify(const Tensor& tokens, Shape image_shape, std::int64_t patch, PatchOrder order);
// x [B, V, LAT, LON], to whose first `channels` channels (0: to all) those of fields [B, as many or more, LAT, LON] are
// added.
Tensor add_leading_channels(const Tensor& x, const Tensor& fields, std::int64_t channels = 0);
// Some of the channels of each tensor, one tensor behind the other: [B, V0, LAT, LON], [B, V1, LAT, LON], ... ->
// [B, sum of the counts, LAT, LON]. The gradient of the channels that are left out is 0.
Tensor join_planes(const std::vector<Planes>& parts);
// x [B, V, LAT, LON] with other values at the points whose flag is not 0: those of `with`, [B, V, LAT, LON], or
// [V, LAT, LON] for every sample. flags: [V, LAT, LON] i32. No gradient to the values that are replaced, nor to `with`.
Tensor replace_points(const Tensor& x, const Tensor& with, const Tensor& flags);
// [B, V, LAT, LON] or [B·T, P·P·V], [B, V, LAT, LON] -> [1]; no gradient to target.
Tensor forecast_loss(const Tensor& pred, const Tensor& target, const LossInputs& inputs);

}  // namespace isobar
