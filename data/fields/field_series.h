// The fields of many files as one sequence of steps: yearly files of the NERSC tutorial and of FourCastNet, or files of
// named variables, of any format that data/fields/field_reader.h reads.
//
// Steps are numbered over the files in the order of their times, or of their names if they have no times. A pair of
// steps, `dt` apart, is named by the number of its first step; data/fields/pairs.h makes samples of pairs. Files may
// have different numbers of steps. Files with different variables are joined where their times meet
// (data/fields/timeline.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/fields/calendar.h"
#include "data/fields/field_file.h"
#include "data/fields/field_labels.h"
#include "data/fields/timeline.h"
#include "engine/keys.h"

namespace isobar {

class FieldCatalog;

using StepRange = std::array<std::int64_t, 2>;  // [first, end)

struct FieldSeriesOptions {
  std::vector<std::string> paths = {};            // folders of *.h5 files, or files
  std::vector<std::string> channels = {};         // the expected names, in order; empty: those of the files
  std::string channels_from = "the config";       // what names `channels`, for messages
  bool choose = false;                            // `channels` are chosen by name from those of the files
  std::vector<std::string> other_names = {};      // that may have been meant by an unknown channel, for messages
  std::vector<std::string> missing = {};          // the channels whose points may be missing: they are NaN then
  std::vector<std::string> filled_chunks = {};    // the channels of MissingPoints::refused_but_chunks
  std::vector<std::string> sums = {};             // the channels that are read as sums over the dt steps up to the step
  std::map<std::string, double> log_scales = {};  // the channels that are read in a log scale (log_scale.h), with s
  std::int64_t height = 0, width = 0;             // the crop [:height, :width]; 0: all of it
  std::string grid_key = "";                      // the config key of the crop, for messages
  std::int64_t dt = 1;                            // steps between input and target
  bool spans_files = true;                        // pairs may lie in two files, if all files have times
  std::optional<RangeValue> range = {};           // only pairs that lie within it, steps or dates; none: all steps
  std::string range_key = "range";                // the config key of `range`, for messages
  std::int64_t cache_bytes = -1;                  // memory for decoded chunks; -1: default_cache_bytes()
  int processes_on_host = 1;                      // processes that open data sets and share the memory
  std::shared_ptr<FieldCatalog> catalog = {};     // its files need no inspection; other files are added
};

// The memory for decoded chunks of one process: its share of 1 GiB, or of an eighth of the memory if that is less.
std::int64_t default_cache_bytes(int processes_on_host = 1);

// The files of fields at `path`, sorted by name: itself if it is a file or a store; the .h5 files of a folder, or, if
// it has none, the files and stores that data/files/stored_arrays.h knows by their first bytes. Error if there are
// none.
std::vector<std::string> find_field_files(const std::string& path);

// Whether a path is a pattern of the shell, "DIR/era5_20*.nc", and no file of this name exists; find_field_files gives
// the files that match.
bool is_pattern(const std::string& path);

// Whether find_field_files finds any file in a folder.
bool has_field_files(const std::string& folder);
// "; X.grib is a GRIB file, ...": the first thing in a folder that isobar does not read and has advice on; else "".
std::string advice_on_files_in(const std::string& folder);

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
  std::int64_t steps() const { return timeline_->steps(); }  // of all files
  // Those of the files, else the expected names, else the tutorial's for 20 channels, else c0, c1, ...
  const std::vector<std::string>& channel_names() const { return channel_names_; }
  const std::vector<double>& latitudes() const { return latitudes_; }    // [LAT], degrees; empty: not in the files
  const std::vector<double>& longitudes() const { return longitudes_; }  // [LON], degrees; empty: not in the files

  // Whether points of a channel may be missing, by its number.
  bool may_be_missing(std::int64_t channel) const {
    return missing_[static_cast<std::size_t>(channel)] == MissingPoints::kept;
  }
  // Names, units and time step given by files and options. Default names are not included.
  const FieldLabels& labels() const { return labels_; }

  std::size_t file_count() const { return files_.size(); }
  const FieldFile& file(std::size_t file) const { return *files_[file]; }
  const std::string& file_name(std::size_t file) const { return files_[file]->path(); }
  const Timeline& timeline() const { return *timeline_; }
  // The file of a step, of the first track; Error if there is no such step.
  Place place(std::int64_t step) const;
  const std::string& file_name_of(std::int64_t step) const { return file_name(place(step).file); }

  // The parts of the range that lie in one file each, in order.
  std::vector<Segment> segments() const;
  const StepRange& range() const { return range_; }
  // The steps [first, end) that a range means. Dates [first, last] are in UTC and both belong to it: a day ends with
  // its last step. Error naming `key` if it is empty or leaves the data.
  StepRange steps_of(const RangeValue& range, const std::string& key) const;

  RowBand all_rows() const { return {0, height_}; }
  void check_band(RowBand rows) const;  // Error if the cropped grid does not have these rows

  // The cropped fields of one step, [V, LAT, LON], after sums and log scales. Error naming file and step for NaN and
  // infinities. Thread-safe.
  void read_step(std::int64_t step, float* out) const { read_step(step, all_rows(), out); }
  // The same for a band of rows of the cropped grid, [V, rows.count, LON]; other rows are not read.
  void read_step(std::int64_t step, RowBand rows, float* out) const;
  // Some of the channels, by their numbers, in this order.
  void read_channels(std::int64_t step, std::span<const std::int64_t> channels, RowBand rows, float* out) const;

  // Whether the pair (first, first + dt) exists: both steps are in the range, `dt` regular steps apart, and in one file
  // or in files with times that pairs may span.
  bool has_pair(std::int64_t first) const;
  bool regular(std::int64_t first, std::int64_t last) const { return timeline_->regular(first, last); }
  // Whether the steps that the sums of `step` need are in the range, and without a hole in time. True without sums.
  bool has_sums(std::int64_t step) const;
  // The steps of a segment that are followed by a hole in time within the segment.
  std::vector<std::int64_t> holes(const Segment& segment) const {
    return timeline_->holes(segment.first, segment.first + segment.count);
  }
  // Hours since 1970-01-01T00 of a step; none if its file has no time axis.
  std::optional<double> hours_since_1970(std::int64_t step) const { return timeline_->hours_since_1970(step); }
  // The channels whose files have no step at this time, in hours since 1970-01-01T00; all if none is missing in a file
  // that others have.
  std::vector<std::string> channels_without(double hours) const;
  // The first file that has neither a `time` nor the name and number of steps of a year (FieldFile::has_times); null:
  // all steps have known times.
  const FieldFile* file_without_times() const;
  // The time of a step; Error if neither `time` nor the file's name gives it.
  StepTime time_of(std::int64_t step) const { return timeline_->time_of(step); }

 private:
  // A channel of a file, and its number in the series.
  struct HeldChannel {
    std::int64_t in_file = 0, in_series = 0;
  };
  using Tracks = std::vector<std::vector<std::size_t>>;

  void open_files(const FieldSeriesOptions& options);
  Tracks take_all_channels(const FieldSeriesOptions& options);
  void add_channel_names(const FieldFile& file, const FieldSeriesOptions& options);
  void compare_names(std::size_t file, const std::vector<std::string>& expected, const std::string& whose) const;
  Tracks choose_channels(const FieldSeriesOptions& options);
  std::vector<HeldChannel> held_by(const FieldFile& file) const;
  void refuse_part(const FieldFile& file, const std::vector<HeldChannel>& held, const FieldFile& other,
                   const std::vector<HeldChannel>& others) const;
  void check_grid(const FieldFile& file, const FieldSeriesOptions& options) const;
  void check_size() const;
  void set_channel_options(const FieldSeriesOptions& options);
  void read_stored(std::int64_t step, std::span<const std::int64_t> channels, RowBand rows, float* out) const;
  void add_earlier_steps(std::int64_t step, std::span<const std::int64_t> channels, RowBand rows, float* out) const;
  void set_range(const FieldSeriesOptions& options);
  void check_order_of_years(const std::string& text) const;
  StepRange steps_between(const std::array<std::string, 2>& dates, const std::string& key) const;
  void set_labels(const FieldSeriesOptions& options);

  std::string data_path_;  // the first of the options, for messages
  std::vector<std::unique_ptr<FieldFile>> files_;
  std::vector<std::vector<HeldChannel>> held_;  // [files], by in_series
  std::vector<std::int64_t> all_channels_;      // 0, 1, ...
  std::vector<MissingPoints> missing_;          // [channels]
  std::vector<bool> is_sum_;                    // [channels]
  std::vector<double> log_scales_;              // [channels], 0: as they are
  std::unique_ptr<const Timeline> timeline_;    // refers to files_
  std::vector<std::string> channel_names_;
  FieldLabels labels_;
  std::vector<double> latitudes_, longitudes_;
  std::int64_t full_height_ = 0, full_width_ = 0, height_ = 0, width_ = 0, dt_ = 1;
  StepRange range_{};
};

}  // namespace isobar
