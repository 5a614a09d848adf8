#include "data/forecasts/forecast_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "data/fields/calendar.h"
#include "data/fields/channels.h"
#include "data/fields/field_axes.h"
#include "data/fields/field_facts.h"
#include "data/fields/fields_dataset.h"
#include "data/fields/variable_fields.h"
#include "data/files/hdf5.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr const char* kLead = "lead";

// The files that `isobar forecast` writes as .h5.
bool is_fields_file(const std::string& path) {
  return is_for_hdf5(path) && hdf5::File::open(path).has(kFields);
}

std::vector<double> hours_since_1970(const TimeFacts& time, const std::string& where) {
  const TimeUnits units(time.units, time.calendar, where);
  std::vector<double> hours;
  for (const double value : time.values) hours.push_back(units.hours_since_1970(value));
  return hours;
}

void refuse_without_dates(const std::string& path) {
  throw_error(path, " has no dates: a forecast is scored by the time that it starts from, 'time' in units like ",
              "\"hours since 1970-01-01\"");
}

double lead_hours_per_unit(const std::string& units, const std::string& where) {
  const std::optional<double> hours = hours_per_unit(units);
  ISOBAR_CHECK(hours, where, ": lead times in '", units,
               "', which is no unit of time that isobar knows: hours, days, minutes, seconds, nanoseconds");
  return *hours;
}

}  // namespace

ForecastReader::~ForecastReader() = default;
ForecastReader::ForecastReader(ForecastReader&&) noexcept = default;

ForecastReader::ForecastReader(const std::string& path, double data_step_hours) {
  grid_.source = path;
  if (is_fields_file(path))
    open_fields_file(data_step_hours);
  else
    open_variables();
  for (const double hours : lead_hours_)
    ISOBAR_CHECK(hours >= 0, path, " has a lead time of ", hours, " hours, which is before the start");
}

void ForecastReader::open_fields_file(double data_step_hours) {
  const std::string& path = grid_.source;
  std::vector<double> steps;
  {
    const hdf5::File file = hdf5::File::open(path);
    ISOBAR_CHECK(file.has(kLead), path, " has 'fields' without '", kLead, "': it is no forecast");
    steps = file.numbers(kLead);
  }
  OpenedFields opened = open_fields_dataset(hdf5::File::open(path), nullptr);
  if (!opened.facts.time) refuse_without_dates(path);
  const std::vector<double> valid = hours_since_1970(*opened.facts.time, path + ": 'time'");
  ISOBAR_CHECK(steps.size() == valid.size(), path, ": '", kLead, "' has ", steps.size(), " values, but 'time' ",
               valid.size());
  const bool has_differences = steps.size() > 1 && steps.back() != steps.front();
  const double step_hours =
      has_differences ? (valid.back() - valid.front()) / (steps.back() - steps.front()) : data_step_hours;
  ISOBAR_CHECK(step_hours > 0, path, ": how long a step of '", kLead, "' is cannot be known: it has one lead time");
  starts_ = {valid.front() - steps.front() * step_hours};
  for (const double hours : valid) lead_hours_.push_back(hours - starts_.front());
  set_facts(opened.facts);
  reader_ = std::move(opened.reader);
}

void ForecastReader::open_variables() {
  const std::string& path = grid_.source;
  OpenedPlanes opened = open_variable_planes(open_stored_arrays(path), FieldPlan::forecasts, nullptr);
  const TimeFacts& time = opened.outer.values;
  if (time.units.find(" since ") == std::string::npos) refuse_without_dates(path);
  starts_ = hours_since_1970(time, concat(path, ": '", opened.outer.name, "'"));
  const std::string where = concat(path, ": '", opened.inner.name, "'");
  ISOBAR_CHECK(!opened.inner.name.empty(), path,
               " has no lead times: neither an axis prediction_timedelta (or step, lead_time) nor a scalar of that "
               "name");
  const double unit = lead_hours_per_unit(opened.inner.values.units, where);
  for (const double value : opened.inner.values.values) lead_hours_.push_back(value * unit);
  set_facts(opened.fields.facts);
  reader_ = std::move(opened.fields.reader);
}

void ForecastReader::set_facts(const FieldFacts& facts) {
  channels_ = facts.channel_names.empty() ? default_channel_names(facts.shape[1]) : facts.channel_names;
  units_ = facts.units;
  units_.resize(channels_.size());
  fill_values_ = facts.fill_values;
  grid_.height = facts.shape[2];
  grid_.width = facts.shape[3];
  grid_.latitudes = facts.latitudes;
  grid_.longitudes = facts.longitudes;
}

void ForecastReader::read(std::size_t start, std::size_t lead, std::size_t channel, float* out) const {
  const auto step = static_cast<std::int64_t>(start * lead_hours_.size() + lead);
  const Plane plane{static_cast<std::int64_t>(channel), out, MissingPoints::kept};
  reader_->read(step, std::span(&plane, 1), {0, grid_.height, grid_.width});
  for (float& value : std::span(out, static_cast<std::size_t>(grid_.points()))) {
    ISOBAR_CHECK(!std::isinf(value), path(), ": ", channels_[channel], " of the forecast from ",
                 time_at(starts_[start]).iso(), ", ", lead_hours_[lead], " hours ahead, holds an infinity");
    if (std::abs(value) > kLargestOfFields || std::ranges::find(fill_values_, value) != fill_values_.end())
      value = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace isobar
