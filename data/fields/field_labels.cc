#include "data/fields/field_labels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/fields/units.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Relative; two time steps that differ by less are equal up to rounding.
constexpr double kSameStep = 1e-3;

const std::string& entry(const std::vector<std::string>& list, std::size_t channel) {
  static const std::string nothing;
  return channel < list.size() ? list[channel] : nothing;
}

bool is_placeholder(const std::string& name, std::size_t channel) {
  return name.empty() || name == "c" + std::to_string(channel);
}

std::string name_of(const FieldLabels& labels, const FieldLabels& others, std::size_t channel) {
  const std::string& name = entry(labels.channel_names, channel);
  const std::string& other = entry(others.channel_names, channel);
  return !name.empty() ? name : !other.empty() ? other : std::to_string(channel);
}

// The entries of `key`; null becomes "".
std::vector<std::string> list_from(const nlohmann::json& json, const char* key) {
  std::vector<std::string> list;
  if (!json.contains(key) || json.at(key).is_null()) return list;
  for (const nlohmann::json& value : json.at(key).get<nlohmann::json::array_t>())
    list.push_back(value.is_null() ? "" : value.get<std::string>());
  return list;
}

nlohmann::ordered_json json_list(const std::vector<std::string>& list) {
  if (std::ranges::all_of(list, [](const std::string& text) { return text.empty(); })) return nullptr;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const std::string& text : list)
    json.push_back(text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text));
  return json;
}

}  // namespace

void check_labels(const FieldLabels& labels, const std::string& who, const FieldLabels& others,
                  const std::string& whose) {
  for (std::size_t c = 0; c < labels.channel_names.size(); ++c) {
    const std::string &name = labels.channel_names[c], &other = entry(others.channel_names, c);
    ISOBAR_CHECK(is_placeholder(name, c) || is_placeholder(other, c) || name == other, who, ": channel ", c, " is '",
                 name, "', but '", other, "' in ", whose);
  }
  for (std::size_t c = 0; c < labels.units.size(); ++c) {
    const std::string &unit = labels.units[c], &other = entry(others.units, c);
    ISOBAR_CHECK(unit.empty() || other.empty() || same_unit(unit, other), who, ": channel ", name_of(labels, others, c),
                 " is in ", unit, ", but in ", other, " in ", whose);
  }
  const double step = labels.step_hours, other_step = others.step_hours;
  ISOBAR_CHECK(step == 0 || other_step == 0 || std::abs(step - other_step) <= kSameStep * other_step, who,
               ": its steps are ", hours_text(step), " apart, but ", hours_text(other_step), " in ", whose);
}

void complete_labels(FieldLabels& labels, const FieldLabels& others) {
  if (labels.channel_names.empty()) labels.channel_names = others.channel_names;
  labels.units.resize(std::max(labels.units.size(), others.units.size()));
  for (std::size_t c = 0; c < labels.units.size(); ++c)
    if (labels.units[c].empty()) labels.units[c] = entry(others.units, c);
  if (labels.step_hours == 0) labels.step_hours = others.step_hours;
}

FieldLabels likely_labels(const std::vector<std::string>& channel_names, const std::vector<double>& means) {
  FieldLabels labels{.channel_names = channel_names};
  for (std::size_t c = 0; c < channel_names.size(); ++c) {
    const bool is_likely = c < means.size() && can_be_in_known_unit(channel_names[c], means[c]);
    labels.units.push_back(is_likely ? known_unit(channel_names[c]) : "");
  }
  return labels;
}

std::vector<std::string> unit_warnings(const FieldLabels& labels, const std::vector<std::string>& channel_names,
                                       const std::vector<double>& means) {
  std::vector<std::string> sentences;
  for (std::size_t c = 0; c < std::min(channel_names.size(), means.size()); ++c)
    if (entry(labels.units, c).empty() && !can_be_in_known_unit(channel_names[c], means[c]))
      sentences.push_back(concat("channel ", channel_names[c], " is said to be in no unit, and its mean of ", means[c],
                                 " cannot be in ", known_unit(channel_names[c]),
                                 ", which the variable of this name has: write its unit into the files"));
  return sentences;
}

nlohmann::ordered_json to_json(const FieldLabels& labels) {
  nlohmann::ordered_json json{
      {"channels", json_list(labels.channel_names)},
      {"units", json_list(labels.units)},
      {"step_hours", labels.step_hours > 0 ? nlohmann::ordered_json(labels.step_hours) : nullptr}};
  if (!labels.summed.empty()) json["summed"] = labels.summed;
  return json;
}

FieldLabels labels_from_json(const nlohmann::json& json, const std::string& where) {
  FieldLabels labels;
  try {
    static_cast<void>(json.get_ref<const nlohmann::json::object_t&>());
    labels = {list_from(json, "channels"), list_from(json, "units"), 0};
    if (json.contains("step_hours") && !json.at("step_hours").is_null())
      json.at("step_hours").get_to(labels.step_hours);
    if (json.contains("summed")) json.at("summed").get_to(labels.summed);
  } catch (const nlohmann::json::exception&) {
    throw_error(where, R"( is not of the form {"channels": [...], "units": [...], "step_hours": 6})");
  }
  ISOBAR_CHECK(std::isfinite(labels.step_hours) && labels.step_hours >= 0, where, ": step_hours is ",
               labels.step_hours);
  return labels;
}

std::string hours_text(double hours) {
  std::ostringstream out;
  out << hours << (hours == 1 ? " hour" : " hours");
  return out.str();
}

}  // namespace isobar
