// ERA5 in the format of the NERSC tutorial and FourCastNet: yearly HDF5 files, each with one dataset `fields`
// [steps, V, LAT, LON] of fp32, opened as one sequence of steps.
//
// Steps are numbered over the files in the order of their names. A pair of steps, `dt` apart in one file, is named by
// the number of its first step; data/fields/pairs.h makes samples of pairs. Files may have different numbers of steps;
// all steps are used. If `lat`, `lon`, `channel`, `units` and `time` exist beside `fields`, they are used
// (docs/data.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/fields/calendar.h"
#include "data/fields/field_labels.h"

namespace isobar {

class FieldCatalog;

using StepRange = std::array<std::int64_t, 2>;  // [first, end)

struct FieldSeriesOptions {
  std::vector<std::string> paths = {};         // folders of *.h5 files, or files
  std::vector<std::string> channels = {};      // the expected names, in order; empty: those of the files
  std::int64_t height = 0, width = 0;          // the crop [:height, :width]; 0: all of it
  std::string grid_key = "";                   // the config key of the crop, for messages
  std::int64_t dt = 1;                         // steps between input and target
  std::optional<StepRange> range = {};         // only pairs that lie within it; none: all steps
  std::string range_key = "range";             // the config key of `range`, for messages
  std::int64_t cache_bytes = -1;               // memory for decoded chunks; -1: default_cache_bytes()
  int processes_on_host = 1;                   // processes that open data sets and share the memory
  std::shared_ptr<FieldCatalog> catalog = {};  // its files need no inspection; other files are added
};

// The memory for decoded chunks of one process: its share of 1 GiB, or of an eighth of the memory if that is less.
std::int64_t default_cache_bytes(int processes_on_host = 1);

// The .h5 files at `path` (itself if it is a file), sorted by name; Error if there are none.
std::vector<std::string> find_h5_files(const std::string& path);

// Whether find_h5_files finds any file.
bool has_h5_files(const std::string& path);

// A range of consecutive steps of one file, within FieldSeriesOptions::range.
struct Segment {
  std::int64_t first = 0, count = 0;
};

class FieldFile;

class FieldSeries {
 public:
  explicit FieldSeries(const FieldSeriesOptions& options);
  ~FieldSeries();
  FieldSeries(FieldSeries&&) noexcept;

  std::int64_t channels() const { return static_cast<std::int64_t>(channel_names_.size()); }
  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }
  std::int64_t values() const { return channels() * height_ * width_; }  // of one step
  std::int64_t dt() const { return dt_; }
  std::int64_t steps() const { return first_step_.back(); }  // of all files
  // Those of the files, else the expected names, else the tutorial's for 20 channels, else c0, c1, ...
  const std::vector<std::string>& channel_names() const { return channel_names_; }
  const std::vector<double>& latitudes() const { return latitudes_; }    // [LAT], degrees; empty: not in the files
  const std::vector<double>& longitudes() const { return longitudes_; }  // [LON], degrees; empty: not in the files

  // Names, units and time step given by files and options. Default names are not included.
  const FieldLabels& labels() const { return labels_; }

  std::size_t file_count() const { return files_.size(); }
  const FieldFile& file(std::size_t file) const;
  const std::string& file_name(std::size_t file) const;
  std::int64_t file_steps(std::size_t file) const { return first_step_[file + 1] - first_step_[file]; }
  std::int64_t first_step_of(std::size_t file) const { return first_step_[file]; }
  std::size_t file_of(std::int64_t step) const;

  // Each file's part of the range, in order; empty parts are left out.
  std::vector<Segment> segments() const;

  RowBand all_rows() const { return {0, height_}; }
  void check_band(RowBand rows) const;  // Error if the cropped grid does not have these rows

  // The cropped fields of one step, [V, LAT, LON]. Error naming file and step for NaN and infinities. Thread-safe.
  void read_step(std::int64_t step, float* out) const { read_step(step, all_rows(), out); }
  // The same for a band of rows of the cropped grid, [V, rows.count, LON]; other rows are not read.
  void read_step(std::int64_t step, RowBand rows, float* out) const;
  // Input and target of the pair `step`.
  void read_pair(std::int64_t step, float* input, float* target) const { read_pair(step, all_rows(), input, target); }
  void read_pair(std::int64_t step, RowBand rows, float* input, float* target) const;

  // Whether `last` is last - first regular steps after `first`, in the same file; true if the file has no time axis.
  bool regular(std::int64_t first, std::int64_t last) const;
  // The steps of a segment that are followed by a hole in time within the segment.
  std::vector<std::int64_t> holes(const Segment& segment) const;
  // Hours since 1970-01-01T00 of a step; none if its file has no time axis.
  std::optional<double> hours_since_1970(std::int64_t step) const;
  // The first file that has neither a `time` nor the name and number of steps of a year (FieldFile::has_times); null:
  // all steps have known times.
  const FieldFile* file_without_times() const;
  // The time of a step; Error if neither `time` nor the file's name gives it.
  StepTime time_of(std::int64_t step) const;

 private:
  void check(const FieldFile& file, const FieldSeriesOptions& options) const;
  void set_range(const FieldSeriesOptions& options);
  void set_labels(const FieldSeriesOptions& options);

  std::vector<std::unique_ptr<FieldFile>> files_;
  std::vector<std::int64_t> first_step_;  // [files + 1]; the last entry is the total
  std::vector<std::string> channel_names_;
  FieldLabels labels_;
  std::vector<double> latitudes_, longitudes_;
  std::int64_t full_height_ = 0, full_width_ = 0, height_ = 0, width_ = 0, dt_ = 1;
  StepRange range_{};
};

}  // namespace isobar
