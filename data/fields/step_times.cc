#include "data/fields/step_times.h"

#include <cmath>
#include <cstddef>

namespace isobar {
namespace {

std::int64_t in_seconds(double hours) {
  return std::llround(hours * 3600);
}

}  // namespace

StepTimes::StepTimes(const FieldSeries& series) : series_(series), step_hours_(series.labels().step_hours) {
  if (series.file_without_times() != nullptr) return;
  for (std::int64_t step = 0; step < series.steps(); ++step) {
    hours_.push_back(series.timeline().known_hours(step));
    by_time_.try_emplace(in_seconds(hours_.back()), step);
  }
  if (step_hours_ == 0 && series.timeline().rest_of_file(0).count > 1) step_hours_ = hours_[1] - hours_[0];
}

std::optional<std::int64_t> StepTimes::at(double hours, double tolerance) const {
  const auto found = by_time_.lower_bound(in_seconds(hours - tolerance));
  const bool is_near = found != by_time_.end() && found->first <= in_seconds(hours + tolerance);
  return is_near ? std::optional(found->second) : std::nullopt;
}

std::optional<std::int64_t> StepTimes::after(std::int64_t step, std::int64_t steps) const {
  if (steps < series_.steps() - step && series_.regular(step, step + steps)) return step + steps;
  return are_known() ? at(hours_after(step, steps)) : std::nullopt;
}

}  // namespace isobar
