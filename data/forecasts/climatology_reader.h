// Reads a climatology: ours, or one of WeatherBench 2: variables on the axes hour, calendar_day or dayofyear, latitude,
// longitude and maybe level, in any order.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/field_reader.h"
#include "data/forecasts/climatology.h"
#include "data/forecasts/grid_match.h"

namespace isobar {

class ClimatologyReader {
 public:
  // Error naming the file if it has no variable on days of the year.
  explicit ClimatologyReader(const std::string& path);
  ~ClimatologyReader();

  const std::string& path() const { return grid_.source; }
  DayNumbers day_numbers() const { return numbers_; }
  const std::vector<std::string>& channels() const { return channels_; }
  const std::vector<std::string>& units() const { return units_; }  // [channels], "" if one is not given
  const FieldGrid& grid() const { return grid_; }
  // Hours since 1970 of the first and the last time that the means are of; none: the file does not say.
  const std::optional<std::array<double, 2>>& times() const { return times_; }

  // The field of a channel at a time, [LAT, LON]; missing points are NaN. Error naming the file, the day and the hour
  // if it has none, or no value of this channel. Thread-safe.
  void read(const StepTime& time, std::size_t channel, float* out) const;

 private:
  std::unique_ptr<FieldReader> reader_;
  std::vector<std::string> channels_, units_;
  std::vector<double> days_, hours_;  // as stored; hours empty: the climatology is of days
  DayNumbers numbers_ = DayNumbers::calendar;
  FieldGrid grid_;
  std::optional<std::array<double, 2>> times_;
};

}  // namespace isobar
