#include "data/era5/field_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "data/npy.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

constexpr const char* kFields = "fields";
// Far beyond any real file: a damaged or sparse one must not make lists of 2^33 steps.
constexpr std::array<std::int64_t, 4> kMostExtents = {1 << 24, 1 << 16, 1 << 20, 1 << 20};

hdf5::DatasetInfo checked_fields(const hdf5::File& file) {
  if (!file.has(kFields)) {
    std::string held;
    for (const std::string& name : file.names()) held += (held.empty() ? "" : ", ") + name;
    throw_error(file.path(), " has no dataset 'fields'; it holds ", held.empty() ? "nothing" : held);
  }
  hdf5::DatasetInfo info = file.info(kFields);
  const bool is_float = info.type == hdf5::Type::fp32 || info.type == hdf5::Type::fp64 || info.type == hdf5::Type::fp16;
  ISOBAR_CHECK(is_float, file.path(), ": 'fields' holds ", info.type_name, "; expected 32-bit, 64-bit or 16-bit float");
  ISOBAR_CHECK(info.layout.missing_filter.empty(), file.path(), ": 'fields' is compressed with '",
               info.layout.missing_filter, "', which this build of HDF5 cannot undo");
  ISOBAR_CHECK(info.shape.size() == 4, file.path(), ": 'fields' has shape ", shape_text(info.shape),
               "; expected four dimensions (time, channel, latitude, longitude)");
  ISOBAR_CHECK(std::ranges::all_of(info.shape, [](std::int64_t extent) { return extent > 0; }), file.path(),
               ": 'fields' is empty, its shape is ", shape_text(info.shape));
  checked_product({info.shape[0], info.shape[1], info.shape[2], info.shape[3], sizeof(float)},
                  file.path() + ": 'fields'");
  for (std::size_t d = 0; d < kMostExtents.size(); ++d)
    ISOBAR_CHECK(info.shape[d] <= kMostExtents[d], file.path(), ": 'fields' has shape ", shape_text(info.shape),
                 "; at most ", shape_text(kMostExtents), " is read");
  return info;
}

constexpr std::int64_t kFirstYearOfData = 1850, kLastYearOfData = 2100;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The year that the name ends with (without its extension): four digits, and no digit before them, as 201810 has.
std::optional<std::int64_t> year_in_name(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const auto digits = std::find_if_not(stem.rbegin(), stem.rend(), is_digit) - stem.rbegin();
  if (digits != 4) return std::nullopt;
  const std::int64_t year = std::stoll(stem.substr(stem.size() - 4));
  return year >= kFirstYearOfData && year <= kLastYearOfData ? std::optional(year) : std::nullopt;
}

// A step a day, or every 6 or 3 hours or every hour. Without the leap day too, as climate models count.
bool fits_year(std::int64_t year, std::int64_t steps) {
  constexpr std::array<std::int64_t, 4> kStepsADay{1, 4, 8, 24};
  return std::ranges::any_of(
      kStepsADay, [&](std::int64_t a_day) { return steps == 365 * a_day || (is_leap(year) && steps == 366 * a_day); });
}

constexpr float kLargest = 1e15F;  // no field has larger values; fill values do: 9.96921e36, 1e20

// On the bits, because a comparison of integers is vectorised on every CPU and the compiler cannot assume it away.
bool all_within(std::span<const float> values) {
  constexpr auto kLargestBits = std::bit_cast<std::int32_t>(kLargest);
  std::int32_t beyond = 0;
  for (float value : values) beyond |= (std::bit_cast<std::int32_t>(value) & 0x7fffffff) > kLargestBits;
  return beyond == 0;
}

bool holds(std::span<const float> values, float fill) {
  std::int32_t found = 0;
  for (float value : values) found |= value == fill;
  return found != 0;
}

// "K, m/s": what stands between the commas, without the blanks around it.
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    const std::size_t begin = part.find_first_not_of(' ');
    parts.push_back(begin == std::string::npos ? "" : part.substr(begin, part.find_last_not_of(' ') - begin + 1));
  }
  return parts;
}

}  // namespace

FieldFile::FieldFile(const std::string& path, CacheBudget budget)
    : file_(hdf5::File::open(path)), info_(checked_fields(file_)), year_(year_in_name(path)) {
  reader_ = make_step_reader(file_, kFields, info_, std::move(budget));
  latitudes_ = read_axis("lat", "latitude", height());
  longitudes_ = read_axis("lon", "longitude", width());
  for (double latitude : latitudes_)
    ISOBAR_CHECK(std::abs(latitude) <= 90.001, path, ": a latitude of ", latitude, " degrees is not on the globe");
  read_channel_names();
  read_units();
  read_time();
  read_fill_values();
}

std::vector<double> FieldFile::read_axis(const std::string& name, const std::string& long_name,
                                         std::int64_t length) const {
  const std::string found = file_.has(name) ? name : long_name;
  if (!file_.has(found)) return {};
  std::vector<double> values = file_.numbers(found);
  ISOBAR_CHECK(values.size() == static_cast<std::size_t>(length), path(), ": '", found, "' has ", values.size(),
               " values, 'fields' has shape ", shape_text(info_.shape));
  for (double value : values) ISOBAR_CHECK(std::isfinite(value), path(), ": '", found, "' holds NaN");
  return values;
}

void FieldFile::read_channel_names() {
  if (!file_.has("channel")) return;
  channel_names_ = file_.strings("channel");
  ISOBAR_CHECK(channel_names_.size() == static_cast<std::size_t>(channels()), path(), ": 'channel' has ",
               channel_names_.size(), " names, 'fields' has shape ", shape_text(info_.shape));
}

// Beside the names, as `units` or `channel_units`; else as the attribute `units` of `channel` or `fields`, a list or a
// text with commas. A single unit of `fields` is that of every channel; one of `channel` says nothing of the fields.
void FieldFile::read_units() {
  std::string where;
  for (const char* name : {"channel_units", "units"}) {
    if (!file_.has(name)) continue;
    where = name;
    units_ = file_.strings(name);
  }
  for (const char* owner : {"fields", "channel"}) {
    if (!where.empty() || !file_.has(owner)) continue;
    std::vector<std::string> list = file_.attribute_list(owner, "units");
    if (list.size() == 1) list = split_at_commas(list.front());
    if (list.size() == 1 && channels() > 1) {
      if (std::string_view(owner) == "channel") continue;
      list.resize(static_cast<std::size_t>(channels()), list.front());
    }
    if (list.empty()) continue;
    where = std::string("units of ") + owner;
    units_ = std::move(list);
  }
  ISOBAR_CHECK(where.empty() || units_.size() == static_cast<std::size_t>(channels()), path(), ": '", where, "' has ",
               units_.size(), " entries, 'fields' has shape ", shape_text(info_.shape));
  for (std::string& unit : units_)
    if (unit == "unknown" || unit == "n/a" || unit == "none") unit.clear();
}

void FieldFile::read_time() {
  const auto units = file_.has("time") ? file_.attribute("time", "units") : std::nullopt;
  if (!units) return;
  std::vector<double> times = file_.numbers("time");
  ISOBAR_CHECK(times.size() == static_cast<std::size_t>(steps()), path(), ": 'time' has ", times.size(),
               " values, 'fields' has shape ", shape_text(info_.shape));
  for (double value : times) ISOBAR_CHECK(std::isfinite(value), path(), ": 'time' holds NaN");
  const std::string where = path() + ": 'time'";
  const TimeUnits time_units(*units, file_.attribute("time", "calendar").value_or(""), where);
  for (double value : times) static_cast<void>(time_units.at(value));  // an error where it is no time
  time_.emplace(std::move(times), time_units, file_.info("time").type == hdf5::Type::fp32, where);
}

// As conventions of NetCDF have them. NaN is a hole anyway.
void FieldFile::read_fill_values() {
  for (const char* name : {"_FillValue", "missing_value"})
    for (const double value : file_.attribute_numbers(kFields, name))
      if (std::abs(value) <= kLargest) fill_values_.push_back(static_cast<float>(value));
}

bool FieldFile::tells_time() const {
  return time_ || (year_ && fits_year(*year_, steps()));
}

StepTime FieldFile::time_of(std::int64_t step) const {
  if (time_) return time_->at(step);
  ISOBAR_CHECK(year_, path(), ": no 'time' with units beside 'fields', and no year at the end of the file's name");
  return spread_over_year(*year_, step, steps());
}

bool FieldFile::is_hole(float value) const {
  return !all_within({&value, 1}) || std::ranges::find(fill_values_, value) != fill_values_.end();
}

bool FieldFile::has_holes(std::span<const float> values) const {
  return !all_within(values) || std::ranges::any_of(fill_values_, [&](float fill) { return holds(values, fill); });
}

void FieldFile::read_step(std::int64_t step, Crop crop, float* out) const {
  reader_->read(step, crop, out);
  const auto pixels = static_cast<std::size_t>(crop.height * crop.width);
  const auto count = static_cast<std::size_t>(channels());
  if (!has_holes({out, count * pixels})) return;
  for (std::size_t c = 0; c < count; ++c) {
    const std::span<const float> field(out + c * pixels, pixels);
    const auto hole = std::ranges::find_if(field, [&](float value) { return is_hole(value); });
    if (hole == field.end()) continue;
    const std::string what = std::isnan(*hole)   ? "NaN"
                             : std::isinf(*hole) ? "an infinity"
                             : std::abs(*hole) > kLargest
                                 ? concat(*hole, ", which is beyond ", kLargest, ": a fill value, and no field's")
                                 : concat(*hole, ", which 'fields' calls its fill value: a hole");
    throw_error(path(), ": step ", step, ", channel ", channel_names_.empty() ? std::to_string(c) : channel_names_[c],
                " holds ", what);
  }
}

}  // namespace isobar
