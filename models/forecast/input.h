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

// Batches have the tensors of data/fields/pairs.h: "input" and "target" [B, V, LAT, LON] fp32 with the values of the
// files and, with time features, "time" [B, 4] fp64.
class FieldInput {
 public:
  // dtype: of the normalised fields; fp32 or fp64. rows: the rows of the grid in batches and forecasts.
  // fill: [V] in the data's units, what missing points of an input are taken for; empty: they stay NaN, as those of a
  // target do. Error if it has another number of values.
  FieldInput(const ForecastOptions& options, const Statistics& statistics, RowBand rows, DType dtype, Device device,
             const std::vector<double>& fill = {});

  std::int64_t planes() const;  // channels of an input, including time planes

  // (x - mean) / std of every channel: [B, planes(), LAT, LON] and [B, n_out, LAT, LON]. Error naming a tensor that the
  // batch does not have, or whose shape is not the model's.
  Tensor input_of(const Batch& batch) const;
  Tensor target_of(const Batch& batch) const;
  // The input of the next step of a rollout, from a normalised forecast of every channel. time_features: [B, 4] of that
  // step; unused by a model without them. The forecast must not be recorded on a tape: no gradient passes through here.
  Tensor input_after(const Tensor& forecast, std::span<const double> time_features) const;

  // The persistence forecast (no change): the first n_out channels of the input, [B, n_out, LAT, LON].
  Tensor persistence_of(const Tensor& input) const;
  // The normalised climatology for scores, [n_out, LAT, LON], from time_means [V, LAT, LON] of the whole grid in the
  // data's units.
  Tensor climatology_of(std::span<const double> time_means) const;
  // A normalised [B, n_out, LAT, LON] in the data's units, on the host.
  std::vector<float> to_physical(const Tensor& forecast) const;

 private:
  Tensor normalised(const Batch& batch, const char* name, const Tensor& time, const Tensor& fill) const;

  ForecastOptions options_;
  Statistics statistics_;
  RowBand rows_;
  DType dtype_;
  Device device_;
  Tensor means_, stds_;  // [V] fp64
  Tensor fill_;          // the same, or undefined
};

// `values` as a tensor [n].
Tensor vector_on(Device device, const std::vector<double>& values, DType dtype);

}  // namespace isobar
