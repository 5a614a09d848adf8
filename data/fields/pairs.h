// Pairs of steps as samples: the fields of a step, and the fields dt steps later, which are the target of a forecast.
// A window is a longer sample: the targets of several steps, each dt after the one before, and what only the data give
// of the inputs between them.
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
//   Of windows of K steps: mod (n - K dt).
enum class SamplerKind : std::uint8_t { all_pairs, tutorial };

// The first steps of an epoch's pairs in file order; `limit` > 0 keeps the first `limit`. A pair over a hole in time,
// whose steps are not dt regular steps apart, is left out, and so is one whose earlier inputs do not exist. The same of
// windows of `steps` pairs, each of which begins where the one before ends. Throws Error if none remains.
std::vector<std::int64_t> list_samples(const Windows& windows, SamplerKind kind, std::int64_t limit = 0,
                                       std::int64_t steps = 1);
inline std::vector<std::int64_t> list_samples(const FieldSeries& dataset, SamplerKind kind, std::int64_t limit = 0) {
  return list_samples(Windows(dataset), kind, limit);
}

// "3 pairs left out: 1 hole in time in 2018.h5", "5 windows of 4 steps left out: ...": what list_samples leaves out,
// before the limit; empty if nothing is.
std::string describe_left_out(const FieldSeries& dataset, SamplerKind kind, std::int64_t steps = 1);

struct PairOptions {
  SamplerKind kind = SamplerKind::all_pairs;
  std::int64_t limit = 0;            // keeps the first `limit` pairs; 0: all
  bool time_features = false;        // adds the tensor "time"
  std::optional<RowBand> rows = {};  // rows of the grid in the samples; none: all
  WindowOptions windows = {};        // the planes of input and target
  bool counts_points = false;        // adds the tensor "points"
  bool diagnostics_before = false;   // adds the tensor "before", if there are diagnostics
  std::int64_t steps = 1;            // K: a sample is a window of so many steps
};

// The name of a tensor at step k of a window, from 0: "target", "target.2", "target.3". Step k of a window of K is the
// forecast from t + k dt to t + (k + 1) dt.
std::string at_step(const std::string& name, std::int64_t k);

// Sizes and choices that decide which tensors a sample of PairDataset has.
struct PairLayout {
  Shape input, target;  // [planes, LAT, LON]
  bool time_features = false, counts_points = false;
  std::int64_t steps = 1;         // K, of a window
  std::int64_t given_planes = 0;  // of the inputs at later steps
};
std::vector<TensorSpec> pair_layout(const PairLayout& of);

// The pairs of list_samples. Tensors of a sample, with the values of the files:
//   "input", "target"   the planes of data/fields/windows.h [planes, LAT, LON] fp32; LAT counts PairOptions::rows
//   "time"              [kTimeFeatures] fp64, StepTime::features of the input step; only with time_features
//   "points"            [planes of the target] i32, the points of each plane that are not missing (NaN), in these rows;
//                       only with counts_points
//   "before"            the diagnostics at the time of the input; only with diagnostics_before
// and of every later step k of a window, from 1, under the names of at_step():
//   "target.2" ...      the target of the step
//   "given.2" ...       [given_planes, LAT, LON], forcings and computed planes of its input; only if there are some
//   "time.2" ...        of its input; only with time_features
//   "points.2" ...      of its target; only with counts_points
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

  // The same samples as windows of fewer steps. Error if `steps` is not between 1 and this data set's.
  PairDataset shortened(std::int64_t steps) const;

  // `count` of the samples, spread over all of them and over the hours of the day (data/fields/spread_steps.h); all of
  // them if there are no more.
  PairDataset spread(std::int64_t count) const;

  RowBand rows() const { return rows_; }  // of the grid
  std::int64_t window_steps() const { return window_steps_; }
  const Windows& windows() const { return windows_; }
  const FieldSeries& steps() const { return windows_.series(); }
  // The input step of a sample; Error if there is no such sample.
  std::int64_t step_of(std::int64_t sample) const;

 private:
  Windows windows_;
  bool time_features_, counts_points_, diagnostics_before_;
  std::int64_t window_steps_;
  RowBand rows_;
  std::vector<std::int64_t> first_steps_;  // [samples]
};

}  // namespace isobar
