// Between the fields of the files and the numbers that the network sees: normalisation, time planes, and back. Where
// ranks hold bands of rows, H counts the rows of this one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"

namespace isobar {

// Batches have the tensors of data/era5/pairs.h: "input" and "target" [B, C, H, W] fp32 as the files hold them and,
// with time features, "time" [B, 4] fp64.
class FieldInput {
 public:
  // dtype: of the normalised fields; fp32 or fp64. rows: of the grid, those that batches and forecasts hold.
  FieldInput(const ForecastOptions& options, const Statistics& statistics, RowBand rows, DType dtype, Device device);

  std::int64_t planes() const;  // channels of an input, time planes included

  // (x - mean) / std of every channel: [B, planes(), H, W] and [B, n_out, H, W]. Error naming the tensor that the batch
  // lacks, or whose shape is not the model's.
  Tensor input_of(const Batch& batch) const;
  Tensor target_of(const Batch& batch) const;
  // The input of the next step of a rollout, from a normalised forecast of every channel. time_features: [B, 4] of that
  // step; unused by a model without them. The forecast must not be recorded: no gradient passes here.
  Tensor input_after(const Tensor& forecast, std::span<const double> time_features) const;

  // The forecast that nothing changes: an input's leading n_out channels, [B, n_out, H, W].
  Tensor persistence_of(const Tensor& input) const;
  // time_means [C, LAT, W] of the whole grid in the data's units as the normalised climatology of scores,
  // [n_out, H, W].
  Tensor climatology_of(std::span<const double> time_means) const;
  // A normalised [B, n_out, H, W] in the data's units, on the host.
  std::vector<float> to_physical(const Tensor& forecast) const;

 private:
  const Tensor& checked(const Batch& batch, const char* name, Shape sample) const;
  Tensor normalised(const Batch& batch, const char* name, const Tensor& time) const;

  ForecastOptions options_;
  Statistics statistics_;
  RowBand rows_;
  DType dtype_;
  Device device_;
  Tensor means_, stds_;  // [C] fp64
};

// `values` as a tensor [n].
Tensor vector_on(Device device, const std::vector<double>& values, DType dtype);

}  // namespace isobar
