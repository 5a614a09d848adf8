// The time axis of a file: when its steps are, how far apart they are, and where some are missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/era5/calendar.h"

namespace isobar {

class TimeAxis {
 public:
  // values [T], finite, in `units`; single_precision: they were stored as fp32, and are only as exact as that.
  // A time that repeats the one before it, or goes back, is an error that begins with `where`.
  TimeAxis(std::vector<double> values, const TimeUnits& units, bool single_precision, const std::string& where);

  StepTime at(std::int64_t step) const { return units_.at(values_[static_cast<std::size_t>(step)]); }
  double hours_since_1970(std::int64_t step) const {
    return units_.hours_since_1970(values_[static_cast<std::size_t>(step)]);
  }

  // The most common difference of neighbouring steps, the smallest of equals; 0 where there is one step only.
  double step_hours() const { return step_hours_; }
  // Whether from step `first` to step `last` it takes last - first times step_hours, give or take 1 % of it.
  bool regular(std::int64_t first, std::int64_t last) const;
  // The steps whose next one is not step_hours later, in order: a hole follows them.
  const std::vector<std::int64_t>& holes() const { return holes_; }

 private:
  void check_order(const std::string& where) const;

  std::vector<double> values_;  // [T]
  TimeUnits units_;
  double rounding_hours_;  // how far a difference of two values may be off because of how they are stored
  double step_hours_ = 0;
  std::vector<std::int64_t> holes_;
};

}  // namespace isobar
