#include "data/fields/field_facts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "data/files/npy.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

// Far above any real file: a damaged or sparse file must not cause lists of 2^33 steps.
constexpr std::array<std::int64_t, 4> kMaxExtents = {1 << 24, 1 << 16, 1 << 20, 1 << 20};

// "K, m/s": the parts between the commas, without surrounding blanks.
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text.ends_with(',') ? text + ',' : text);  // getline leaves out an empty last part
  for (std::string part; std::getline(stream, part, ',');) {
    const std::size_t begin = part.find_first_not_of(' ');
    parts.push_back(begin == std::string::npos ? "" : part.substr(begin, part.find_last_not_of(' ') - begin + 1));
  }
  return parts;
}

// Reads what is stored beside the fields of one file.
class Reader {
 public:
  Reader(const hdf5::File& file, const hdf5::DatasetInfo& info) : file_(file), shape_(info.shape) {}

  std::vector<double> axis(const std::string& name, const std::string& long_name, std::size_t dimension) const {
    const std::string found = file_.has(name) ? name : long_name;
    if (!file_.has(found)) return {};
    std::vector<double> values = file_.numbers(found);
    check_count(concat("'", found, "'"), values.size(), dimension, "values");
    check_finite(found, values);
    return values;
  }

  std::vector<std::string> channel_names() const {
    if (!file_.has("channel")) return {};
    std::vector<std::string> names = file_.strings("channel");
    check_count("'channel'", names.size(), 1, "names");
    return names;
  }

  // From the dataset `units` or `channel_units`; else from the attribute `units` of `channel` or `fields`, a list or a
  // text with commas. A single unit of `fields` applies to every channel; a single unit of `channel` does not describe
  // the fields and is ignored.
  std::vector<std::string> units() const {
    std::string where;
    std::vector<std::string> units;
    for (const char* name : {"channel_units", "units"}) {
      if (!file_.has(name)) continue;
      where = name;
      units = file_.strings(name);
    }
    for (const char* owner : {kFields, "channel"}) {
      if (!where.empty() || !file_.has(owner)) continue;
      std::vector<std::string> list = file_.attribute_list(owner, "units");
      if (list.size() == 1) list = split_at_commas(list.front());
      if (list.size() == 1 && shape_[1] > 1) {
        if (std::string_view(owner) == "channel") continue;
        list.resize(static_cast<std::size_t>(shape_[1]), list.front());
      }
      if (list.empty()) continue;
      where = std::string("units of ") + owner;
      units = std::move(list);
    }
    if (!where.empty()) check_count(concat("'", where, "'"), units.size(), 1, "entries");
    for (std::string& unit : units)
      if (unit == "unknown" || unit == "n/a" || unit == "none") unit.clear();
    return units;
  }

  std::optional<TimeFacts> time() const {
    const auto units = file_.has("time") ? file_.attribute("time", "units") : std::nullopt;
    if (!units) return std::nullopt;
    std::vector<double> values = file_.numbers("time");
    check_count("'time'", values.size(), 0, "values");
    check_finite("time", values);
    return TimeFacts{std::move(values), *units, file_.attribute("time", "calendar").value_or(""),
                     file_.info("time").type == hdf5::Type::fp32};
  }

  // The attributes follow NetCDF's conventions. NaN is a hole in any case.
  std::vector<float> fill_values() const {
    std::vector<float> values;
    for (const char* name : {"_FillValue", "missing_value"})
      for (const double value : file_.attribute_numbers(kFields, name))
        if (std::abs(value) <= kLargestOfFields) values.push_back(static_cast<float>(value));
    return values;
  }

 private:
  void check_count(const std::string& what, std::size_t count, std::size_t dimension, const char* of) const {
    ISOBAR_CHECK(count == static_cast<std::size_t>(shape_[dimension]), file_.path(), ": ", what, " has ", count, " ",
                 of, ", 'fields' has shape ", shape_text(shape_));
  }
  void check_finite(const std::string& name, const std::vector<double>& values) const {
    for (double value : values) ISOBAR_CHECK(std::isfinite(value), file_.path(), ": '", name, "' holds NaN");
  }

  const hdf5::File& file_;
  const std::vector<std::int64_t>& shape_;
};

}  // namespace

hdf5::DatasetInfo info_of_fields(const hdf5::File& file) {
  if (!file.has(kFields)) {
    const std::string held = comma_list(file.names());
    throw_error(file.path(), " has no dataset 'fields'; it holds ", held.empty() ? "nothing" : held);
  }
  hdf5::DatasetInfo info = file.info(kFields);
  const bool is_float = info.type == hdf5::Type::fp32 || info.type == hdf5::Type::fp64 || info.type == hdf5::Type::fp16;
  ISOBAR_CHECK(is_float, file.path(), ": 'fields' holds ", info.type_name, "; expected 32-bit, 64-bit or 16-bit float");
  hdf5::check_filters(file.path() + ": 'fields'", info.layout);
  ISOBAR_CHECK(info.shape.size() == 4, file.path(), ": 'fields' has shape ", shape_text(info.shape),
               "; expected four dimensions (time, channel, latitude, longitude)");
  ISOBAR_CHECK(std::ranges::all_of(info.shape, [](std::int64_t extent) { return extent > 0; }), file.path(),
               ": 'fields' is empty, its shape is ", shape_text(info.shape));
  check_extents({info.shape[0], info.shape[1], info.shape[2], info.shape[3]}, file.path() + ": 'fields'");
  return info;
}

void check_extents(const std::array<std::int64_t, 4>& shape, const std::string& where) {
  checked_product({shape[0], shape[1], shape[2], shape[3], sizeof(float)}, where);
  for (std::size_t d = 0; d < kMaxExtents.size(); ++d)
    ISOBAR_CHECK(shape[d] <= kMaxExtents[d], where, " has shape ", shape_text(shape), "; at most ",
                 shape_text(kMaxExtents), " is read");
}

void check_latitudes(const std::vector<double>& latitudes, const std::string& where) {
  for (const double latitude : latitudes)
    ISOBAR_CHECK(std::abs(latitude) <= 90.001, where, ": a latitude of ", latitude, " degrees is not on the globe");
}

FieldFacts read_facts(const hdf5::File& file, const hdf5::DatasetInfo& info) {
  const Reader reader(file, info);
  FieldFacts facts;
  std::ranges::copy(info.shape, facts.shape.begin());
  facts.latitudes = reader.axis("lat", "latitude", 2);
  facts.longitudes = reader.axis("lon", "longitude", 3);
  check_latitudes(facts.latitudes, file.path());
  facts.channel_names = reader.channel_names();
  facts.units = reader.units();
  facts.time = reader.time();
  facts.fill_values = reader.fill_values();
  return facts;
}

nlohmann::json to_json(const FieldFacts& facts) {
  nlohmann::json json{{"shape", facts.shape},           {"channels", facts.channel_names},
                      {"units", facts.units},           {"latitudes", facts.latitudes},
                      {"longitudes", facts.longitudes}, {"fill_values", facts.fill_values},
                      {"left_out", facts.left_out},     {"has_expver", facts.has_expver}};
  if (facts.time)
    json["time"] = {{"values", facts.time->values},
                    {"units", facts.time->units},
                    {"calendar", facts.time->calendar},
                    {"single_precision", facts.time->single_precision}};
  return json;
}

FieldFacts facts_from_json(const nlohmann::json& json) {
  FieldFacts facts;
  json.at("shape").get_to(facts.shape);
  json.at("channels").get_to(facts.channel_names);
  json.at("units").get_to(facts.units);
  json.at("latitudes").get_to(facts.latitudes);
  json.at("longitudes").get_to(facts.longitudes);
  json.at("fill_values").get_to(facts.fill_values);
  json.at("left_out").get_to(facts.left_out);
  json.at("has_expver").get_to(facts.has_expver);
  if (json.contains("time")) {
    const nlohmann::json& time = json.at("time");
    facts.time = TimeFacts{time.at("values"), time.at("units"), time.at("calendar"), time.at("single_precision")};
  }
  return facts;
}

}  // namespace isobar
