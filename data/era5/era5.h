// ERA5 as the NERSC tutorial and FourCastNet store it: yearly HDF5 files, each with one dataset `fields` [T, C, H, W]
// of fp32, opened as one long row of steps.
//
// Steps are counted over the files in the order of their names. A pair of steps of one file, `dt` apart, is named by
// the number of its first step; data/era5/pairs.h makes samples of pairs. Files may have different numbers of steps;
// all are used. `lat`, `lon`, `channel`, `units` and `time` beside `fields` are believed where they are there
// (docs/data.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/era5/calendar.h"
#include "data/era5/field_labels.h"

namespace isobar {

class FieldCatalog;

using StepRange = std::array<std::int64_t, 2>;  // [first, end)

struct Era5Options {
  std::vector<std::string> paths = {};         // folders of *.h5 files, or files
  std::vector<std::string> channels = {};      // the names expected, in order; empty: whatever the files say
  std::int64_t height = 0, width = 0;          // the crop [:height, :width]; 0: all of it
  std::string grid_key = "";                   // the config key that the crop came from, for messages
  std::int64_t dt = 1;                         // steps between input and target
  std::optional<StepRange> range = {};         // only pairs that lie wholly within; none: all steps
  std::string range_key = "range";             // the config key that `range` came from, for messages
  std::int64_t cache_bytes = -1;               // decoded chunks kept in memory; -1: default_cache_bytes()
  int processes_on_host = 1;                   // that open data sets: they share that memory
  std::shared_ptr<FieldCatalog> catalog = {};  // knows files that need not be looked into, and learns of others
};

// The memory for decoded chunks of one of so many processes of this host: its share of 1 GiB, or of an eighth of the
// memory where that is less.
std::int64_t default_cache_bytes(int processes_on_host = 1);

// The .h5 files at `path` (itself, if it is a file), sorted by name; an error if there are none.
std::vector<std::string> find_h5_files(const std::string& path);

// Whether find_h5_files finds any there.
bool holds_h5_files(const std::string& path);

// A run of consecutive steps of one file, within the range.
struct Segment {
  std::int64_t first = 0, count = 0;
};

class FieldFile;

class Era5Dataset {
 public:
  explicit Era5Dataset(const Era5Options& options);
  ~Era5Dataset();
  Era5Dataset(Era5Dataset&&) noexcept;

  std::int64_t channels() const { return static_cast<std::int64_t>(channel_names_.size()); }
  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }
  std::int64_t values() const { return channels() * height_ * width_; }  // of one step
  std::int64_t dt() const { return dt_; }
  std::int64_t steps() const { return first_step_.back(); }  // of all files
  // From the files, else the names expected, else the tutorial's for twenty channels, else c0, c1, ...
  const std::vector<std::string>& channel_names() const { return channel_names_; }
  const std::vector<double>& latitudes() const { return latitudes_; }    // [height], degrees; empty: not in the files
  const std::vector<double>& longitudes() const { return longitudes_; }  // [width], degrees; empty: not in the files

  // What files and options say: names, units, and the time step that all files share. A made-up name is not said.
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
  void check_band(RowBand rows) const;  // Error where the cropped grid has no such rows

  // The cropped fields of one step, [C, H, W]. NaN and infinities are errors that name file and step. Thread-safe.
  void read_step(std::int64_t step, float* out) const { read_step(step, all_rows(), out); }
  // The same of a band of the cropped grid's rows, [C, rows.count, W]: the rest of the step is not read.
  void read_step(std::int64_t step, RowBand rows, float* out) const;
  // Both halves of the pair `step`.
  void read_pair(std::int64_t step, float* input, float* target) const { read_pair(step, all_rows(), input, target); }
  void read_pair(std::int64_t step, RowBand rows, float* input, float* target) const;

  // Whether `last` is last - first regular steps after `first`, of the same file; true where the file has no time axis.
  bool regular(std::int64_t first, std::int64_t last) const;
  // The steps of a segment that a hole in time follows, within it.
  std::vector<std::int64_t> holes(const Segment& segment) const;
  // Hours since 1970-01-01T00 of a step; none where its file has no time axis.
  std::optional<double> hours_since_1970(std::int64_t step) const;
  // The first file whose name and number of steps are not those of a year, where it has no `time` either
  // (FieldFile::tells_time); none: all tell when their steps are.
  const FieldFile* file_without_time() const;
  // When a step is; an error if neither `time` nor the file's name tells.
  StepTime time_of(std::int64_t step) const;

 private:
  void check(const FieldFile& file, const Era5Options& options) const;
  void set_range(const Era5Options& options);
  void set_labels(const Era5Options& options);

  std::vector<std::unique_ptr<FieldFile>> files_;
  std::vector<std::int64_t> first_step_;  // of every file, and the total at the end
  std::vector<std::string> channel_names_;
  FieldLabels labels_;
  std::vector<double> latitudes_, longitudes_;
  std::int64_t full_height_ = 0, full_width_ = 0, height_ = 0, width_ = 0, dt_ = 1;
  StepRange range_{};
};

}  // namespace isobar
