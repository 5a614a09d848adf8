// The index of differentiable operations on fields, [B,C,H,W]: a second part of engine/ops.h, for what is cut into
// patches and forecast.
#pragma once

#include <cstdint>

#include "engine/add_up.h"
#include "engine/tensor.h"
#include "kernels/forecast_loss.h"
#include "kernels/patchify.h"

namespace isobar {

struct LossInputs {
  LossKind kind = LossKind::relative_l2;
  Tensor row_weights = {}, channel_weights = {};  // [H] of the rows given, [C]; may be undefined
  std::int64_t whole_height = 0;  // of the picture that the fields are a band of rows of; 0: they are all of it
  AddUp add_up = {};              // of the sums [B, 2] of the bands; empty: there is one
  std::int64_t patch = 0;         // of a forecast in rows of patches, PatchOrder::channels_last; 0: it is fields
};

// [B,C,H,W] -> [B·N,C·p·p], N = H/p · W/p.
Tensor patchify(const Tensor& image, std::int64_t patch, PatchOrder order, DType out_dtype);
// [B·N,C·p·p] -> [B,C,H,W].
Tensor unpatchify(const Tensor& tokens, Shape image_shape, std::int64_t patch, PatchOrder order);
// [B,C,H,W] + [B,C+k,H,W](:, :C); no gradient to fields.
Tensor add_leading_channels(const Tensor& x, const Tensor& fields);
// [B,C,H,W] or [B·N,p·p·C], [B,C,H,W] -> [1]; no gradient to target.
Tensor forecast_loss(const Tensor& pred, const Tensor& target, const LossInputs& inputs);

}  // namespace isobar
