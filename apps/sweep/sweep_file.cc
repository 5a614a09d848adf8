#include "apps/sweep/sweep_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

#include "apps/sweep/draws.h"
#include "apps/train/config_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char* kValues = "values";
constexpr const char* kChoice = "choice";
constexpr const char* kInts = "ints";
constexpr const char* kUniform = "uniform";
constexpr const char* kLogUniform = "log_uniform";
const std::vector<std::string> kKinds{kValues, kUniform, kLogUniform, kInts, kChoice};
const std::vector<std::string> kKeys{"config", "set", "parameters", "count", "seed"};

// How a parameter gets its values.
struct Parameter {
  std::string kind;
  const ordered_json& list;

  explicit Parameter(const ordered_json& declared) : kind(declared.begin().key()), list(declared.begin().value()) {}
  bool is_drawn() const { return kind != kValues; }
};

void check_key(const std::string& key, const std::string& where) {
  ISOBAR_CHECK(std::ranges::find(kKeys, key) != kKeys.end(), where, ": unknown key ", key,
               did_you_mean(suggestion(key, kKeys)), " (a sweep has ", comma_list(kKeys), ")");
}

void check_bounds_of(const Parameter& parameter, const std::string& where) {
  const bool whole = parameter.kind == kInts;
  const ordered_json& list = parameter.list;
  const bool are_two = list.size() == 2 && std::ranges::all_of(list, [&](const ordered_json& bound) {
                         return whole ? bound.is_number_integer() : bound.is_number();
                       });
  ISOBAR_CHECK(are_two, where, " must be two ", whole ? "integers" : "numbers", ", the smallest and the largest, not ",
               shown(list));
  if (whole) {
    const auto fits = [](const ordered_json& bound) { return std::abs(bound.get<double>()) <= 0x1p52; };
    ISOBAR_CHECK(fits(list[0]) && fits(list[1]), where, " must be integers of fp64, not ", shown(list));
    const std::int64_t first = list[0], last = list[1];
    ISOBAR_CHECK(first < last, where, " must rise, and are ", shown(list));
    ISOBAR_CHECK(last - first < (std::int64_t{1} << 32), where, " hold more than 2^32 integers: ", shown(list));
    return;
  }
  const double low = list[0], high = list[1];
  ISOBAR_CHECK(low < high, where, " must rise, and are ", shown(list));
  ISOBAR_CHECK(parameter.kind != kLogUniform || low > 0, where, " must be above 0, and are ", shown(list));
}

void check_parameter(const std::string& key, const ordered_json& declared, const std::string& origin) {
  const std::string where = concat(origin, ": parameter ", key);
  ISOBAR_CHECK(declared.is_object() && declared.size() == 1, where, " must be an object of one of ", comma_list(kKinds),
               ", as in {\"values\": [1, 2]}, not ", shown(declared));
  const Parameter parameter(declared);
  ISOBAR_CHECK(std::ranges::find(kKinds, parameter.kind) != kKinds.end(), where, ": there is no ", parameter.kind,
               did_you_mean(suggestion(parameter.kind, kKinds)), " (a parameter has one of ", comma_list(kKinds), ")");
  const std::string of_kind = concat(where, ": its ", parameter.kind);
  ISOBAR_CHECK(parameter.list.is_array(), of_kind, " must be a list, not ", shown(parameter.list));
  ISOBAR_CHECK(!parameter.list.empty(), of_kind, " must not be empty");
  if (parameter.is_drawn() && parameter.kind != kChoice) check_bounds_of(parameter, of_kind);
}

const ordered_json& object_at(const ordered_json& content, const char* key, const std::string& origin) {
  const ordered_json& value = content.at(key);
  ISOBAR_CHECK(value.is_object(), origin, ": ", key, " must be an object of config keys, not ", shown(value));
  return value;
}

void read_draws(SweepFile& sweep) {
  const ordered_json& content = sweep.content;
  const bool draws = std::ranges::any_of(sweep.parameters, [](const auto& p) { return Parameter(p).is_drawn(); });
  for (const char* key : {"count", "seed"})
    ISOBAR_CHECK(draws || !content.contains(key), sweep.origin, ": ", key,
                 " is of parameters that are drawn, and there are none");
  ISOBAR_CHECK(!draws || content.contains("count"), sweep.origin,
               ": parameters are drawn, and count, the number of draws, is missing");
  if (content.contains("count")) {
    const ordered_json& count = content.at("count");
    ISOBAR_CHECK(count.is_number_integer() && count.get<double>() >= 1 && count.get<double>() <= kMaxRuns, sweep.origin,
                 ": count must be an integer from 1 to ", kMaxRuns, ", not ", shown(count));
    sweep.count = count;
  }
  if (content.contains("seed")) {
    const ordered_json& seed = content.at("seed");
    ISOBAR_CHECK(seed.is_number_unsigned(), sweep.origin, ": seed must be an integer from 0 to 2^64 - 1, not ",
                 shown(seed));
    sweep.seed = seed;
  }
}

ordered_json drawn_value(const Parameter& parameter, std::uint32_t bits) {
  const ordered_json& list = parameter.list;
  if (parameter.kind == kChoice) return list[index_of(bits, list.size())];
  if (parameter.kind == kUniform) return uniform_of(bits, list[0], list[1]);
  if (parameter.kind == kLogUniform) return log_uniform_of(bits, list[0], list[1]);
  const std::int64_t first = list[0], last = list[1];
  return first + static_cast<std::int64_t>(index_of(bits, static_cast<std::uint64_t>(last - first) + 1));
}

// "0.00123", "adamw", "-8-16-": a value as part of a folder's name.
std::string part_of_name(const ordered_json& value) {
  constexpr std::size_t kMaxPart = 24;
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (value.is_number_float()) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", value.get<double>());
    text = digits;
  }
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '+' ||
           c == '_' || c == '-';
  };
  std::ranges::replace_if(text, std::not_fn(is_plain), '-');
  return text.substr(0, kMaxPart);
}

std::string name_of_run(std::size_t number, const ordered_json& values) {
  constexpr std::size_t kMaxName =
      150;  // a file system takes 255 bytes, and files beside the folder have this name too
  char digits[24];
  std::snprintf(digits, sizeof digits, "%04zu", number);
  std::string name = digits;
  for (const auto& [key, value] : values.items()) name += "_" + key + "=" + part_of_name(value);
  return name.substr(0, kMaxName);
}

}  // namespace

SweepFile read_sweep_file(const fs::path& file) {
  SweepFile sweep;
  sweep.origin = file.string();
  sweep.content = read_json<ordered_json>(file, JsonComments::allowed);
  const ordered_json& content = sweep.content;
  ISOBAR_CHECK(content.is_object(), sweep.origin, ": a sweep must be a JSON object, not ", shown(content));
  for (const auto& [key, value] : content.items()) check_key(key, sweep.origin);
  for (const char* key : {"config", "parameters"})
    ISOBAR_CHECK(content.contains(key), sweep.origin, ": the key ", key, " is missing");
  ISOBAR_CHECK(content.at("config").is_string(), sweep.origin, ": config must be a config's name, or FILE.json, not ",
               shown(content.at("config")));
  sweep.config = config_beside(file, content.at("config").get<std::string>());
  sweep.set = content.contains("set") ? object_at(content, "set", sweep.origin) : ordered_json::object();
  sweep.parameters = object_at(content, "parameters", sweep.origin);
  ISOBAR_CHECK(!sweep.parameters.empty(), sweep.origin, ": parameters must not be empty");
  for (const auto& [key, declared] : sweep.parameters.items()) {
    ISOBAR_CHECK(!sweep.set.contains(key), sweep.origin, ": ", key, " is in set and in parameters");
    check_parameter(key, declared, sweep.origin);
  }
  read_draws(sweep);
  return sweep;
}

std::vector<Combination> combinations_of(const SweepFile& sweep) {
  std::vector<ordered_json> points{ordered_json::object()};  // of the grid, drawn parameters being null
  const auto check_count = [&](double runs) {
    ISOBAR_CHECK(runs <= static_cast<double>(kMaxRuns), sweep.origin, ": there are more than ", kMaxRuns, " runs");
  };
  for (const auto& [key, declared] : sweep.parameters.items()) {
    const Parameter parameter(declared);
    const ordered_json values = parameter.is_drawn() ? ordered_json::array({nullptr}) : parameter.list;
    check_count(static_cast<double>(points.size()) * static_cast<double>(values.size()));
    std::vector<ordered_json> longer;
    for (const ordered_json& point : points)
      for (const ordered_json& value : values) {
        longer.push_back(point);
        longer.back()[key] = value;
      }
    points = std::move(longer);
  }
  check_count(static_cast<double>(points.size()) * static_cast<double>(sweep.count));
  std::vector<Combination> all;
  for (const ordered_json& point : points)
    for (std::int64_t draw = 0; draw < sweep.count; ++draw) {
      ordered_json values = point;
      for (const auto& [key, declared] : sweep.parameters.items())
        if (const Parameter parameter(declared); parameter.is_drawn())
          values[key] = drawn_value(parameter, drawn_bits(sweep.seed, key, static_cast<std::uint64_t>(draw)));
      all.push_back({name_of_run(all.size() + 1, values), std::move(values)});
    }
  return all;
}

}  // namespace isobar
