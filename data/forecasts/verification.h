// What forecasts are scored against, on the forecasts' own grid and in the order of their channels: the truth, which is
// any series of fields, and a climatology.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/step_times.h"
#include "data/forecasts/climatology_reader.h"
#include "data/forecasts/grid_match.h"

namespace isobar {

// Channels by name, each with its unit ("": unknown).
struct ScoredChannels {
  std::vector<std::string> names, units;
  std::string source;  // the file that they are of, for messages
};

class TruthFields {
 public:
  // Opens files or folders, as FieldSeriesOptions::paths; missing points are kept. channels: the names of the channels
  // of files that name none, in order; may be empty.
  explicit TruthFields(const std::vector<std::string>& paths, const std::vector<std::string>& channels = {});

  const FieldSeries& series() const { return *series_; }
  // Whether the files have a channel of this name, in any spelling.
  bool has(const std::string& channel) const;
  // Chooses what read() gives. Error with both if a unit differs or the grid is not within the files' grid, and if
  // neither a file's `time` nor its name tells its dates.
  void choose(const ScoredChannels& channels, const FieldGrid& grid);

  std::size_t points() const { return static_cast<std::size_t>(points_); }  // of the chosen grid
  std::optional<std::int64_t> step_at(double hours_since_1970) const;       // within a minute
  double hours(std::int64_t step) const { return times_->hours(step); }     // since 1970-01-01T00
  // [channels, LAT, LON], NaN where missing.
  std::vector<float> read(std::int64_t step) const;

 private:
  std::unique_ptr<const FieldSeries> series_;
  std::unique_ptr<const StepTimes> times_;
  std::vector<std::int64_t> numbers_;
  std::optional<GridMatch> match_;
  std::int64_t points_ = 0;
};

class ClimatologyFields {
 public:
  // Error with both if a channel is not in the file, if a unit differs, or if the grid is not within the file's grid.
  ClimatologyFields(const std::string& path, const ScoredChannels& channels, const FieldGrid& grid);

  const std::string& path() const { return reader_.path(); }
  // Whether the means are known to be of this time too.
  bool holds(double hours_since_1970) const;
  // [channels, LAT, LON] at a time.
  std::vector<float> read(const StepTime& time) const;

 private:
  ClimatologyReader reader_;
  std::vector<std::size_t> numbers_;
  GridMatch match_;
  std::int64_t points_;
};

}  // namespace isobar
