// The time axis of a file: the times of its steps, the step length, and missing steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/fields/calendar.h"

namespace isobar {

class TimeAxis {
 public:
  // values [steps], finite, in `units`; single_precision: they were stored as fp32 and have that precision. Error
  // beginning with `where` for a time that repeats the one before it or goes back.
  TimeAxis(std::vector<double> values, const TimeUnits& units, bool single_precision, const std::string& where);
  // Of the steps of several files: hours since 1970-01-01T00, and the largest rounding_hours() of the files.
  TimeAxis(std::vector<double> hours, double rounding_hours, const std::string& where);

  StepTime at(std::int64_t step) const { return units_.at(values_[static_cast<std::size_t>(step)]); }
  double hours_since_1970(std::int64_t step) const {
    return units_.hours_since_1970(values_[static_cast<std::size_t>(step)]);
  }

  // The most common difference of adjacent steps, the smallest one of a tie; 0 for a single step.
  double step_hours() const { return step_hours_; }
  // Whether step `last` is last - first times step_hours after step `first`. Tolerance: 1 % of step_hours per step, at
  // most 25 %.
  bool regular(std::int64_t first, std::int64_t last) const;
  // The steps, in order, whose next one is not step_hours later: they are followed by a hole.
  const std::vector<std::int64_t>& holes() const { return holes_; }
  // Max error of a difference of two times, from the rounding of stored values.
  double rounding_hours() const { return rounding_hours_; }
  std::int64_t steps() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  void check_order(const std::string& where) const;
  void find_step_and_holes();

  std::vector<double> values_;  // [steps]
  TimeUnits units_;
  double rounding_hours_ = 0;
  double step_hours_ = 0;
  std::vector<std::int64_t> holes_;
};

}  // namespace isobar
