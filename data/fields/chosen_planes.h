// The planes of the channels that a user chooses by name: fields of files, computed planes and constants, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/computed_planes.h"
#include "data/fields/field_series.h"

namespace isobar {

// Whether missing points of the files are an Error, or read as NaN.
enum class Holes : std::uint8_t { refused, kept };

class ChosenPlanes {
 public:
  // sources: as FieldSeriesOptions::paths. channels: the name of a channel of the files, one of
  // computed_channel_names(), or a constant, "NAME=FILE:VARIABLE" (data/fields/constants.h). A name that can be
  // computed is computed even if the files have it. Error for a name that is there twice, and if no channel is of the
  // files; and those of FieldSeries, ComputedPlanes and read_constants.
  ChosenPlanes(std::vector<std::string> sources, const std::vector<std::string>& channels, Holes holes);

  const FieldSeries& series() const { return *series_; }
  std::int64_t channels() const { return static_cast<std::int64_t>(names_.size()); }
  std::int64_t values() const { return channels() * series_->height() * series_->width(); }  // of one step
  const std::vector<std::string>& names() const { return names_; }                           // [V]
  const std::vector<std::string>& units() const { return units_; }                           // [V], "": unknown
  const std::vector<std::string>& constant_files() const { return constant_files_; }

  // [V, LAT, LON] of a step, in the units of the files. Errors as of FieldSeries::read_step. Thread-safe.
  void read(std::int64_t step, float* out) const;

 private:
  // Consecutive channels of the files.
  struct Fields {
    std::size_t first = 0;                // place of the first one among all channels
    std::vector<std::int64_t> in_series;  // their numbers in the series
  };
  struct Computed {
    std::size_t channel = 0;
    ComputedPlanes plane;
  };
  struct Constant {
    std::size_t channel = 0;
    std::vector<float> values;  // [LAT, LON]
  };

  // A channel as a user gives it. place: of a constant; else empty.
  struct Choice {
    std::string name, place;
    bool is_field() const;
  };
  static Choice parse(const std::string& channel);

  void check_choices() const;
  void open_series(std::vector<std::string> sources, Holes holes);
  void add_field(std::size_t c, std::int64_t in_series);
  void add_computed(std::size_t c);
  void add_constant(std::size_t c);

  std::vector<Choice> choices_;  // [V]
  std::optional<FieldSeries> series_;
  std::vector<std::string> names_, units_, constant_files_;
  std::vector<Fields> fields_;
  std::vector<Computed> computed_;
  std::vector<Constant> constants_;
};

}  // namespace isobar
