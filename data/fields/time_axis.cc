#include "data/fields/time_axis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMillisecondsPerHour = 3.6e6;
// Max error of one step and of many steps together, in regular steps: less than the effect of a hole or a clock jump.
constexpr double kTolerance = 0.01, kLargestTolerance = 0.25;

double to_whole_milliseconds(double hours) {
  return std::round(hours * kMillisecondsPerHour) / kMillisecondsPerHour;
}

// The most frequent value of `differences`, rounded to milliseconds; the smallest one of a tie.
double most_common(std::vector<double> differences) {
  for (double& difference : differences) difference = to_whole_milliseconds(difference);
  std::ranges::sort(differences);
  double common = 0;
  std::ptrdiff_t most = 0;
  for (auto begin = differences.begin(); begin != differences.end();) {
    const auto end = std::find_if(begin, differences.end(), [&](double value) { return value != *begin; });
    if (end - begin > most) common = *begin;
    most = std::max(most, end - begin);
    begin = end;
  }
  return common;
}

// The regular step: the mean of all differences that equal the most common one up to the rounding of stored values.
double regular_step(const std::vector<double>& differences, double rounding) {
  const double common = most_common(differences);
  double sum = 0, count = 0;
  for (double difference : differences)
    if (std::abs(difference - common) <= kTolerance * common + rounding) sum += difference, ++count;
  return count > 0 ? to_whole_milliseconds(sum / count) : common;
}

}  // namespace

TimeAxis::TimeAxis(std::vector<double> values, const TimeUnits& units, bool single_precision, const std::string& where)
    : values_(std::move(values)), units_(units) {
  check_order(where);
  double largest = 0;
  for (double value : values_) largest = std::max(largest, std::abs(value));
  rounding_hours_ = largest * units_.hours_per_unit() * (single_precision ? 0x1p-23 : 0x1p-52);
  find_step_and_holes();
}

TimeAxis::TimeAxis(std::vector<double> hours, double rounding_hours, const std::string& where)
    : values_(std::move(hours)),
      units_("hours since 1970-01-01", "proleptic_gregorian", where),
      rounding_hours_(rounding_hours) {
  check_order(where);
  find_step_and_holes();
}

void TimeAxis::find_step_and_holes() {
  std::vector<double> differences;
  for (std::size_t i = 1; i < values_.size(); ++i)
    differences.push_back((values_[i] - values_[i - 1]) * units_.hours_per_unit());
  step_hours_ = regular_step(differences, rounding_hours_);
  for (std::size_t i = 1; i < values_.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i);
    if (!regular(step - 1, step)) holes_.push_back(step - 1);
  }
}

void TimeAxis::check_order(const std::string& where) const {
  for (std::size_t i = 1; i < values_.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i);
    ISOBAR_CHECK(values_[i] != values_[i - 1], where, ": steps ", step - 1, " and ", step, " have one time, ",
                 at(step).iso());
    ISOBAR_CHECK(values_[i] > values_[i - 1], where, ": goes back from ", at(step - 1).iso(), " to ", at(step).iso(),
                 " at step ", step);
  }
}

bool TimeAxis::regular(std::int64_t first, std::int64_t last) const {
  const double passed =
      (values_[static_cast<std::size_t>(last)] - values_[static_cast<std::size_t>(first)]) * units_.hours_per_unit();
  const auto steps = static_cast<double>(last - first);
  const double tolerance = std::min(kTolerance * steps, kLargestTolerance) * step_hours_ + rounding_hours_;
  return std::abs(passed - steps * step_hours_) <= tolerance;
}

}  // namespace isobar
