// When the steps of a series are, and which step is at a time. The times are those of the files' `time`; where files
// have none, the years in their names, if their steps fit the year (FieldFile::has_times).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "data/fields/field_series.h"

namespace isobar {

class StepTimes {
 public:
  // `series` must outlive it.
  explicit StepTimes(const FieldSeries& series);

  // Whether the times of all steps are known, and how far apart steps are.
  bool are_known() const { return !hours_.empty() && step_hours_ > 0; }
  double step_hours() const { return step_hours_; }  // 0: unknown

  // Hours since 1970-01-01T00 UTC of a step, and of `steps` steps after it, which the series need not have. Only if
  // are_known().
  double hours(std::int64_t step) const { return hours_[static_cast<std::size_t>(step)]; }
  double hours_after(std::int64_t step, std::int64_t steps) const {
    return hours(step) + static_cast<double>(steps) * step_hours_;
  }

  // The step at a time, to a second, or within `tolerance` hours. None if the series has no such step.
  std::optional<std::int64_t> at(double hours, double tolerance = 0) const;
  // The step that is `steps` steps later than `step`, as time goes: over a hole, and in another file. Without times it
  // must lie in the same file. None if the series does not have it.
  std::optional<std::int64_t> after(std::int64_t step, std::int64_t steps) const;

 private:
  const FieldSeries& series_;
  std::vector<double> hours_;                     // [steps]; empty: not known
  std::map<std::int64_t, std::int64_t> by_time_;  // steps by their time in seconds
  double step_hours_ = 0;
};

}  // namespace isobar
