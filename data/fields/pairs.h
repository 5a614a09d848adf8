// Pairs of steps as samples: the fields of a step, and the fields dt steps later, which are the target of a forecast.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/fields/field_series.h"
#include "data/fields/windows.h"

namespace isobar {

// all_pairs: every pair of the range, once.
// tutorial: the NERSC tutorial's index rule. A file of n steps gives n samples; index i starts at
//   j = i mod (n - dt), or at j + dt if j < dt. For dt = 1, step 0 is never an input and step 1 is one three times.
enum class SamplerKind : std::uint8_t { all_pairs, tutorial };

// The first steps of an epoch's pairs in file order; `limit` > 0 keeps the first `limit`. A pair over a hole in time,
// whose steps are not dt regular steps apart, is left out, and so is one whose earlier inputs do not exist. Throws
// Error if none remains.
std::vector<std::int64_t> list_samples(const Windows& windows, SamplerKind kind, std::int64_t limit = 0);
inline std::vector<std::int64_t> list_samples(const FieldSeries& dataset, SamplerKind kind, std::int64_t limit = 0) {
  return list_samples(Windows(dataset), kind, limit);
}

// "3 pairs left out: 1 hole in time in 2018.h5": what list_samples leaves out, before the limit; empty if nothing is.
std::string describe_left_out(const FieldSeries& dataset, SamplerKind kind);

struct PairOptions {
  SamplerKind kind = SamplerKind::all_pairs;
  std::int64_t limit = 0;            // keeps the first `limit` pairs; 0: all
  bool time_features = false;        // adds the tensor "time"
  std::optional<RowBand> rows = {};  // rows of the grid in the samples; none: all
  WindowOptions windows = {};        // the planes of input and target
  bool counts_points = false;        // adds the tensor "points"
  bool diagnostics_before = false;   // adds the tensor "before", if there are diagnostics
};

// The tensors of a sample of PairDataset: [planes, LAT, LON] of input and target.
std::vector<TensorSpec> pair_layout(const Shape& input, const Shape& target, bool time_features,
                                    bool counts_points = false);

// The pairs of list_samples. Tensors of a sample, with the values of the files:
//   "input", "target"   the planes of data/fields/windows.h [planes, LAT, LON] fp32; LAT counts PairOptions::rows
//   "time"              [kTimeFeatures] fp64, StepTime::features of the input step; only with time_features
//   "points"            [planes of the target] i32, the points of each plane that are not missing (NaN), in these rows;
//                       only with counts_points
//   "before"            the diagnostics at the time of the input; only with diagnostics_before
class PairDataset : public Dataset {
 public:
  // `steps` must outlive it. Throws Error if it does not have these rows.
  explicit PairDataset(const FieldSeries& steps, const PairOptions& options = {});

  std::string name() const override;
  std::int64_t samples() const override { return static_cast<std::int64_t>(first_steps_.size()); }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;
  // Rows are counted within this data set's rows.
  std::unique_ptr<Dataset> band(RowBand rows) const override;

  RowBand rows() const { return rows_; }  // of the grid
  const Windows& windows() const { return windows_; }
  const FieldSeries& steps() const { return windows_.series(); }
  // The input step of a sample; Error if there is no such sample.
  std::int64_t step_of(std::int64_t sample) const;

 private:
  Windows windows_;
  bool time_features_, counts_points_, diagnostics_before_;
  RowBand rows_;
  std::vector<std::int64_t> first_steps_;  // [samples]
};

}  // namespace isobar
