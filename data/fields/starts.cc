#include "data/fields/starts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>

#include "data/fields/split.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

constexpr double kSecond = 1.0 / 3600;
constexpr const char* kDate = R"(\d{4}-\d\d-\d\d(?:T\d\d(?::\d\d)?)?)";

std::string iso(double hours) {
  return time_at(hours).iso();
}

// The Error of a time that is no step: which channels are missing, or where the steps around it are.
[[noreturn]] void refuse_time(const std::string& what, double hours, const FieldSeries& series) {
  const std::string& path = series.file_name(0);
  const std::vector<std::string> missing = series.channels_without(hours);
  const std::string ends =
      concat("the steps of the data, ", path, series.file_count() > 1 ? ", ..." : "", ", are from ",
             series.time_of(0).iso(), " to ", series.time_of(series.steps() - 1).iso());
  throw_error(what, ": there is no ", comma_list(missing), " at ", iso(hours), ": ", ends);
}

}  // namespace

StartRequest StartRequest::one(const std::string& flag, const std::string& text) {
  StartRequest request;
  request.what_ = flag + " " + text;
  if (std::regex_match(text, std::regex(R"(-?\d{1,15})"))) {
    request.steps_.first = std::stoll(text);
    return request;
  }
  ISOBAR_CHECK(std::regex_match(text, std::regex(kDate)), request.what_,
               " is neither a step nor a date like 2018-12-20 or 2018-12-20T06");
  const double hours = parse_date(text, flag).begin;
  request.dates_ = {.first = hours, .last = hours, .interval = {}};
  return request;
}

StartRequest StartRequest::range(const std::string& flag, const std::string& text) {
  StartRequest request;
  request.what_ = flag + " " + text;
  const std::string& what = request.what_;
  std::smatch parts;
  if (std::regex_match(text, parts, std::regex(concat("(", kDate, "):(", kDate, ")(?::(.+))?")))) {
    const DateText first = parse_date(parts[1], flag), last = parse_date(parts[2], flag);
    Dates dates{.first = first.begin, .last = last.begin + std::max(last.length - kSecond, 0.0), .interval = {}};
    ISOBAR_CHECK(dates.first <= dates.last, what, " is reversed");
    if (parts[3].matched) dates.interval = hours_of_lead_time(parts[3], what + ": the interval");
    request.dates_ = dates;
    return request;
  }
  const std::regex form(R"((\d{1,15}):(-?\d{1,15})(?::(-?\d{1,15}))?)");
  ISOBAR_CHECK(std::regex_match(text, parts, form), what, " is of neither form, steps A:B:S or dates FIRST:LAST:12h");
  const std::int64_t step = parts[3].matched ? std::stoll(parts[3]) : 1, end = std::stoll(parts[2]);
  ISOBAR_CHECK(step != 0, what, ": the step must not be 0");
  const std::int64_t first = std::stoll(parts[1]), length = step > 0 ? end - first : first - end;
  ISOBAR_CHECK(length > 0, what, " is empty");
  request.steps_ = {first, step, 1 + (length - 1) / std::abs(step)};
  ISOBAR_CHECK(first + (request.steps_.count - 1) * step >= 0, what, " goes below step 0");
  return request;
}

std::vector<std::int64_t> StartRequest::steps(const FieldSeries& series, const StepTimes& times) const {
  std::vector<std::int64_t> found;
  if (!dates_) {
    for (const std::int64_t step : {steps_.first, steps_.first + (steps_.count - 1) * steps_.step})
      ISOBAR_CHECK(step >= 0 && step < series.steps(), "start step ", step, " is not in the data, which has ",
                   series.steps(), " steps");
    for (std::int64_t i = 0; i < steps_.count; ++i) found.push_back(steps_.first + i * steps_.step);
    return found;
  }
  ISOBAR_CHECK(times.are_known(), what_, " is a date, but the data, ", series.file_name(0),
               ", do not tell the times of their steps: give the number of a step");
  const double interval = dates_->interval.value_or(times.step_hours());
  const auto count = static_cast<std::int64_t>(std::floor((dates_->last - dates_->first) / interval + 1e-6));
  for (std::int64_t i = 0; i <= count; ++i) {
    const double hours = dates_->first + static_cast<double>(i) * interval;
    const std::optional<std::int64_t> step = times.at(hours);
    if (!step) refuse_time(what_, hours, series);
    found.push_back(*step);
  }
  return found;
}

}  // namespace isobar
