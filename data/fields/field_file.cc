#include "data/fields/field_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <span>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kFirstYearOfData = 1850, kLastYearOfData = 2100;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The year at the end of the name (without extension): four digits without a digit before them, so not in 201810.
std::optional<std::int64_t> year_in_name(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const auto digits = std::find_if_not(stem.rbegin(), stem.rend(), is_digit) - stem.rbegin();
  if (digits != 4) return std::nullopt;
  const std::int64_t year = std::stoll(stem.substr(stem.size() - 4));
  return year >= kFirstYearOfData && year <= kLastYearOfData ? std::optional(year) : std::nullopt;
}

// Steps every day, every 6 or 3 hours, or every hour. Years may lack the leap day, as in climate models.
bool fits_year(std::int64_t year, std::int64_t steps) {
  constexpr std::array<std::int64_t, 4> kStepsADay{1, 4, 8, 24};
  return std::ranges::any_of(
      kStepsADay, [&](std::int64_t a_day) { return steps == 365 * a_day || (is_leap(year) && steps == 366 * a_day); });
}

// Compares bits: every CPU vectorises integer comparisons, and the compiler cannot assume that NaN does not occur.
bool all_within(std::span<const float> values) {
  constexpr auto kLargestBits = std::bit_cast<std::int32_t>(kLargestOfFields);
  std::int32_t beyond = 0;
  for (float value : values) beyond |= (std::bit_cast<std::int32_t>(value) & 0x7fffffff) > kLargestBits;
  return beyond == 0;
}

bool holds(std::span<const float> values, float fill) {
  std::int32_t found = 0;
  for (float value : values) found |= value == fill;
  return found != 0;
}

}  // namespace

FieldFile::FieldFile(const std::string& path, CacheBudget budget, FieldCatalog* catalog)
    : path_(path), budget_(std::move(budget)), year_(year_in_name(path)) {
  if (catalog != nullptr) facts_ = catalog->find(path);
  if (!facts_) {
    OpenedFields opened = open_fields(path_, budget_);
    facts_ = std::make_shared<FieldFacts>(std::move(opened.facts));
    opened_ = std::move(opened.reader);
    if (catalog != nullptr) catalog->add(path, facts_);
  }
  set_time();
}

FieldFile::~FieldFile() = default;

FieldReader& FieldFile::opened() const {
  const std::lock_guard lock(opening_);
  if (!opened_) {
    OpenedFields opened = open_fields(path_, budget_);
    ISOBAR_CHECK(opened.facts == *facts_, path_,
                 " is not what it was when the data were looked at: it was replaced since, or the same path leads "
                 "elsewhere on this host");
    opened_ = std::move(opened.reader);
  }
  return *opened_;
}

void FieldFile::set_time() {
  if (!facts_->time) return;
  const TimeFacts& time_facts = *facts_->time;
  const std::string where = path() + ": 'time'";
  const TimeUnits units(time_facts.units, time_facts.calendar, where);
  for (double value : time_facts.values) static_cast<void>(units.at(value));  // Error if it is not a valid time
  time_.emplace(time_facts.values, units, time_facts.single_precision, where);
}

bool FieldFile::has_times() const {
  return time_ || (year_ && fits_year(*year_, steps()));
}

StepTime FieldFile::time_of(std::int64_t step) const {
  if (time_) return time_->at(step);
  ISOBAR_CHECK(year_, path(), ": no 'time' with units beside 'fields', and no year at the end of the file's name");
  return spread_over_year(*year_, step, steps());
}

bool FieldFile::is_hole(float value) const {
  return !all_within({&value, 1}) || std::ranges::find(facts_->fill_values, value) != facts_->fill_values.end();
}

bool FieldFile::has_holes(std::span<const float> values) const {
  return !all_within(values) ||
         std::ranges::any_of(facts_->fill_values, [&](float fill) { return holds(values, fill); });
}

void FieldFile::read_step(std::int64_t step, std::span<const Plane> planes, FieldCrop crop) const {
  opened().read(step, planes, crop);
  const auto pixels = static_cast<std::size_t>(crop.height * crop.width);
  for (const Plane& plane : planes) {
    const std::span<float> field(plane.to, pixels);
    if (!has_holes(field)) continue;
    for (float& value : field) {
      if (!is_hole(value)) continue;
      if (plane.missing != MissingPoints::kept || std::isinf(value)) refuse_hole(step, plane.channel, value);
      value = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void FieldFile::refuse_hole(std::int64_t step, std::int64_t channel, float value) const {
  const std::string what = std::isnan(value)   ? "NaN"
                           : std::isinf(value) ? "an infinity"
                           : std::abs(value) > kLargestOfFields
                               ? concat(value, ", which is beyond ", kLargestOfFields, ": a fill value, and no field's")
                               : concat(value, ", which 'fields' calls its fill value: a hole");
  const std::string name =
      channel_names().empty() ? std::to_string(channel) : channel_names()[static_cast<std::size_t>(channel)];
  throw_error(path(), ": step ", step, ", channel ", name, " holds ", what);
}

}  // namespace isobar
