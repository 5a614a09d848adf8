// Conversion between the fields of the files and the numbers of the network: normalisation, time planes, and back. If
// ranks hold bands of rows, LAT counts the rows of this rank. A missing point is NaN in the fields.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"

namespace isobar {

// Batches have the tensors of data/fields/pairs.h: "input" [B, planes, LAT, LON] and "target" [B, n_out, LAT, LON]
// fp32 with the values of the files and, with time features, "time" [B, 4] fp64; those of windows also have the tensors
// of later steps. Steps of a window are counted from 0.
class FieldInput {
 public:
  // dtype: of the normalised fields; fp32 or fp64. rows: the rows of the grid in batches and forecasts. fill:
  // [variables] in the data's units, what missing points of an input are taken for; empty: they stay NaN, as those of a
  // target do. Error if it has another number of values.
  FieldInput(const ForecastOptions& options, const FieldsInfo& info, RowBand rows, DType dtype, Device device,
             const std::vector<double>& fill = {});

  std::int64_t planes() const;  // channels of an input, including time planes

  // (x - mean) / std of every channel: [B, planes(), LAT, LON] and [B, n_out, LAT, LON]. Error naming a tensor that the
  // batch does not have, or whose shape is not the model's.
  Tensor input_of(const Batch& batch) const;
  Tensor target_of(const Batch& batch, std::int64_t step = 0) const;
  // The number of steps of the batch's windows.
  static std::int64_t steps_of(const Batch& batch);
  // The input of step `step` >= 1 of a window. `forecast` is that of the step before, and `before` its input; gradients
  // pass to both. Of the forecast come the channels, but for points that the data never have, which are filled, and for
  // the edges (boundary_width), which are the batch's. Of `before` come older states. Forcings, planes and masks are
  // the batch's at the time of the step.
  Tensor continued(const Tensor& before, const Tensor& forecast, const Batch& batch, std::int64_t step) const;

  // A forecast [B, n_out, LAT, LON] with NaN where the data never have a value, and with what such points of an input
  // are taken for. The forecast itself if there are no such points.
  Tensor without_never_there(const Tensor& forecast) const { return with_never_there(forecast, /*filled=*/false); }
  Tensor with_never_there_filled(const Tensor& forecast) const { return with_never_there(forecast, /*filled=*/true); }

  // The persistence forecast (no change), [B, n_out, LAT, LON]: the channels of the input, and the diagnostics of the
  // batch's tensor "before", which only such a batch has.
  Tensor persistence_of(const Tensor& input, const Batch& batch) const;
  // The normalised climatology for scores, [n_out, LAT, LON], from time_means [V, LAT, LON] of the whole grid in the
  // data's units.
  Tensor climatology_of(std::span<const double> time_means) const;
  // [B, n_out, LAT, LON] on the host, from the logarithms that the data set reads to the values of the files.
  void undo_transforms(std::span<float> fields, std::int64_t batch) const;
  // A normalised [B, n_out, LAT, LON] in the data's units, on the host, without transforms.
  std::vector<float> to_physical(const Tensor& forecast) const;

 private:
  // How a tensor of a batch is normalised; all [planes] fp64.
  struct Scale {
    Tensor means, stds, fill = {}, masks = {};  // fill and masks may be undefined
    std::int64_t planes() const { return means.size(0); }
  };
  Tensor with_never_there(const Tensor& forecast, bool filled) const;
  Tensor mask_planes(const ForecastOptions& options, const FieldsInfo& info) const;
  Scale later_scale(const FieldsInfo& info, const std::vector<double>& fill) const;
  void set_replaced_points(const FieldsInfo& info);
  Tensor given_at(const Batch& batch, std::int64_t step) const;
  Tensor normalised(const Tensor& fields, const Scale& scale, const Tensor& time) const;

  ForecastOptions options_;
  Statistics statistics_;
  RowBand rows_;
  DType dtype_;
  Device device_;
  Scale input_, target_, before_;
  Scale later_;  // of what the data give of a later input: channels, forcings and planes, without older states
  std::vector<double> log_scales_;   // [n_out], 0: the channel is read as it is
  std::vector<double> fills_;        // [n_out], normalised; empty: no points are missing
  std::vector<std::uint8_t> never_;  // [n_out, LAT, LON] of these rows: 1 where the data never have a value; or empty
  // Which points of a forecast's channels are not its own in the next input, [channels, LAT, LON] i32, and what points
  // that the data never have are taken for there, in the dtype of the fields. Undefined if there are none.
  Tensor never_flags_, never_values_, edge_flags_;
};

// `values` as a tensor [n].
Tensor vector_on(Device device, const std::vector<double>& values, DType dtype);

}  // namespace isobar
