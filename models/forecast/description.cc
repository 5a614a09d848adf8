#include "models/forecast/description.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "engine/files/base64.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

static_assert(std::endian::native == std::endian::little, "weights hold little-endian numbers");

constexpr const char* kGrid = "isobar.grid";
constexpr const char* kUnits = "isobar.units";             // a list, one per channel
constexpr const char* kNeverThere = "isobar.never_there";  // lengths of runs of points with and without values
constexpr const char* kConstants = "isobar.constants";     // units and values by name
constexpr const char* kLeadHours = "isobar.lead_hours";    // from input to forecast

nlohmann::ordered_json to_json(const FieldsInfo& info) {
  nlohmann::ordered_json json{{"channels", info.channel_names}, {"means", info.statistics.means},
                              {"stds", info.statistics.stds},   {"row_weights", info.row_weights},
                              {"latitudes", info.latitudes},    {"longitudes", info.longitudes}};
  if (!info.extra_means.empty()) {
    json["extra_means"] = info.extra_means;
    json["extra_stds"] = info.extra_stds;
    json["extra_names"] = info.extra_names;
  }
  if (!info.change_stds.empty()) json["change_stds"] = info.change_stds;
  return json;
}

FieldsInfo info_from(const nlohmann::json& json) {
  FieldsInfo info;
  json.at("channels").get_to(info.channel_names);
  json.at("means").get_to(info.statistics.means);
  json.at("stds").get_to(info.statistics.stds);
  json.at("row_weights").get_to(info.row_weights);
  json.at("latitudes").get_to(info.latitudes);
  json.at("longitudes").get_to(info.longitudes);
  if (json.contains("extra_means")) {
    json.at("extra_means").get_to(info.extra_means);
    json.at("extra_stds").get_to(info.extra_stds);
    if (json.contains("extra_names")) json.at("extra_names").get_to(info.extra_names);
  }
  if (json.contains("change_stds")) json.at("change_stds").get_to(info.change_stds);
  return info;
}

// Checks the fields against this config; the caller adds the name of the file to the error.
void check_info(const FieldsInfo& info, const ForecastOptions& options) {
  const auto count = [](const char* what, std::size_t found, std::int64_t wanted, const char* key) {
    ISOBAR_CHECK(static_cast<std::int64_t>(found) == wanted, what, " are ", found, " and not ", wanted, ", as ", key);
  };
  const auto finite = [](const char* what, const std::vector<double>& values) {
    ISOBAR_CHECK(std::ranges::all_of(values, [](double value) { return std::isfinite(value); }), what,
                 " are not all finite");
  };
  const Statistics& statistics = info.statistics;
  count("channels", info.channel_names.size(), options.variables(), "n_in_channels");
  count("means", statistics.means.size(), options.variables(), "n_in_channels");
  count("stds", statistics.stds.size(), options.variables(), "n_in_channels");
  count("extra_means", info.extra_means.size(), options.extras(), "computed_channels and constant_channels");
  count("extra_stds", info.extra_stds.size(), options.extras(), "computed_channels and constant_channels");
  if (!info.change_stds.empty())
    count("change_stds", info.change_stds.size(), *options.n_out_channels, "n_out_channels");
  if (!info.extra_names.empty())
    count("extra_names", info.extra_names.size(), options.extras(), "computed_channels and constant_channels");
  count("row_weights", info.row_weights.size(), options.height(), "the rows of img_size");
  if (!info.latitudes.empty()) count("latitudes", info.latitudes.size(), options.height(), "the rows of img_size");
  if (!info.longitudes.empty()) count("longitudes", info.longitudes.size(), options.width(), "the columns of img_size");
  finite("means", statistics.means);
  finite("stds", statistics.stds);
  finite("change_stds", info.change_stds);
  finite("extra_means", info.extra_means);
  finite("extra_stds", info.extra_stds);
  finite("row_weights", info.row_weights);
  finite("latitudes", info.latitudes);
  finite("longitudes", info.longitudes);
  std::set<std::string> names;
  for (const std::string& name : info.channel_names)
    ISOBAR_CHECK(!name.empty() && names.insert(name).second, "channels holds ",
                 name.empty() ? "an empty name" : "a name twice");
  for (const std::vector<double>* stds : {&statistics.stds, &info.extra_stds, &info.change_stds})
    ISOBAR_CHECK(std::ranges::all_of(*stds, [](double std) { return std > 0; }), "stds are not all above 0");
}

// The lengths of runs of equal bytes, the first of 0.
std::vector<std::int64_t> runs_of(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::int64_t> runs{0};
  std::uint8_t current = 0;
  for (const std::uint8_t byte : bytes) {
    if (byte != current) runs.push_back(0);
    current = byte;
    ++runs.back();
  }
  return runs;
}

std::vector<std::uint8_t> bytes_of(const std::vector<std::int64_t>& runs, std::int64_t wanted) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ISOBAR_CHECK(runs[i] >= 0 && runs[i] <= wanted - std::ssize(bytes), kNeverThere, " has more than ", wanted,
                 " points");
    bytes.insert(bytes.end(), static_cast<std::size_t>(runs[i]), static_cast<std::uint8_t>(i % 2));
  }
  ISOBAR_CHECK(std::ssize(bytes) == wanted, kNeverThere, " has ", bytes.size(), " points for ", wanted);
  return bytes;
}

// Reads units and time step from the settings. Files of older versions lack them.
void read_labels(const Settings& settings, std::int64_t dt, FieldsInfo& info) {
  if (const auto units = settings.find(kUnits); units != settings.end()) {
    parse_json<nlohmann::json>(units->second, kUnits).get_to(info.units);
    ISOBAR_CHECK(info.units.size() == info.channel_names.size(), kUnits, " has ", info.units.size(), " entries for ",
                 info.channel_names.size(), " channels");
  }
  if (const auto hours = settings.find(kLeadHours); hours != settings.end()) {
    const auto lead = parse_json<nlohmann::json>(hours->second, kLeadHours).get<double>();
    ISOBAR_CHECK(std::isfinite(lead) && lead > 0, kLeadHours, " is ", hours->second);
    info.step_hours = lead / static_cast<double>(dt);
  }
}

std::string constants_text(const std::vector<ConstantField>& constants) {
  nlohmann::ordered_json json;
  for (const ConstantField& constant : constants)
    json[constant.name] = {{"units", constant.units}, {"values", to_base64(std::as_bytes(std::span(constant.values)))}};
  return json.dump();
}

std::vector<float> values_from(const std::string& text, const std::string& name, std::int64_t wanted) {
  const std::optional<std::vector<std::byte>> bytes = from_base64(text);
  ISOBAR_CHECK(bytes, kConstants, ": the values of ", name, " are damaged");
  std::vector<float> values(static_cast<std::size_t>(wanted));
  ISOBAR_CHECK(bytes->size() == values.size() * sizeof(float), kConstants, ": ", name, " has ", bytes->size(),
               " bytes for ", wanted, " points");
  std::memcpy(values.data(), bytes->data(), bytes->size());
  ISOBAR_CHECK(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }), kConstants,
               ": the values of ", name, " are not all finite");
  return values;
}

// Files of older versions lack them.
void read_constants_of(const Settings& settings, const ForecastOptions& options, FieldsInfo& info) {
  const auto text = settings.find(kConstants);
  if (text == settings.end()) return;
  const auto json = parse_json<nlohmann::json>(text->second, kConstants);
  ISOBAR_CHECK(json.size() <= info.extra_means.size(), kConstants, " has ", json.size(), " planes for ",
               info.extra_means.size(), " extra_means");
  std::size_t plane = info.extra_means.size() - json.size();  // constants come last
  for (const auto& [name, stored] : json.items()) {           // in the order of the names
    ConstantField& constant = info.constants.emplace_back();
    constant.name = name;
    stored.at("units").get_to(constant.units);
    constant.values = values_from(stored.at("values").get<std::string>(), name, options.pixels());
    constant.mean = info.extra_means[plane];
    constant.deviation = info.extra_stds[plane++];
  }
}

}  // namespace

bool are_carried(const std::vector<ConstantField>& constants) {
  std::int64_t values = 0;
  for (const ConstantField& constant : constants) values += std::ssize(constant.values);
  return values <= kMostCarried;
}

CarriedConstants carried_by(const FieldsInfo& info, const std::string& weights) {
  return {weights, info.constants, info.latitudes, info.longitudes};
}

Settings settings_of(const FieldsInfo& info, std::int64_t dt) {
  Settings settings{{kGrid, to_json(info).dump()}};
  if (!std::ranges::all_of(info.units, &std::string::empty)) settings[kUnits] = nlohmann::json(info.units).dump();
  if (!info.never_there.empty()) settings[kNeverThere] = nlohmann::json(runs_of(info.never_there)).dump();
  if (!info.constants.empty() && are_carried(info.constants)) settings[kConstants] = constants_text(info.constants);
  if (info.step_hours > 0) settings[kLeadHours] = nlohmann::json(info.step_hours * static_cast<double>(dt)).dump();
  return settings;
}

std::optional<FieldsInfo> fields_info_of(const GivenWeights& weights, const ForecastOptions& options, std::int64_t dt) {
  const auto grid = weights.settings.find(kGrid);
  if (grid == weights.settings.end()) return std::nullopt;
  try {
    FieldsInfo info = info_from(parse_json<nlohmann::json>(grid->second, kGrid));
    check_info(info, options);
    read_labels(weights.settings, dt, info);
    read_constants_of(weights.settings, options, info);
    if (const auto runs = weights.settings.find(kNeverThere); runs != weights.settings.end())
      info.never_there =
          bytes_of(parse_json<nlohmann::json>(runs->second, kNeverThere).get<std::vector<std::int64_t>>(),
                   *options.n_out_channels * options.pixels());
    return info;
  } catch (const Error& error) {
    throw_error(weights.file.string(), ": ", error.what());
  } catch (const nlohmann::json::exception&) {
    throw_error(weights.file.string(), ": the description of the model in its metadata is damaged");
  }
}

}  // namespace isobar
