#include "data/forecasts/cf_layout.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <regex>
#include <set>

#include "data/fields/channels.h"
#include "data/fields/standard_names.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr const char *kTime = "time", *kLead = "prediction_timedelta", *kLevel = "level";

// To a second, as the times of files are compared.
double to_a_second(double hours) {
  return std::round(hours * 3600) / 3600;
}

CfAxis time_axis(const ForecastContents& contents) {
  CfAxis axis{.name = kTime, .values = contents.start_hours, .attributes = {}};
  std::ranges::transform(axis.values, axis.values.begin(), to_a_second);
  axis.attributes = {{"standard_name", "time"},  // forecast_reference_time is refused for a coordinate (section 5.1)
                     {"long_name", "initial time of the forecast"},
                     {"units", "hours since 1970-01-01 00:00:00"},
                     {"calendar", "proleptic_gregorian"},
                     {"axis", "T"}};
  return axis;
}

CfAxis lead_axis(const ForecastContents& contents) {
  CfAxis axis{.name = kLead, .values = {}, .attributes = {}};
  for (const std::int64_t steps : contents.leads)
    axis.values.push_back(to_a_second(static_cast<double>(steps) * contents.step_hours));
  axis.are_whole = std::ranges::all_of(axis.values, [](double hours) { return hours == std::round(hours); });
  axis.attributes = {{"standard_name", "forecast_period"},
                     {"long_name", "time from the start to the forecast"},
                     {"units", "hours"},
                     {"dtype", "timedelta64[ns]"}};
  return axis;
}

CfAxis level_axis(const std::set<double>& levels) {
  return {.name = kLevel,
          .values = {levels.begin(), levels.end()},
          .attributes = {{"standard_name", "air_pressure"},
                         {"long_name", "pressure"},
                         {"units", "hPa"},
                         {"positive", "down"},
                         {"axis", "Z"}},
          .are_whole = std::ranges::all_of(levels, [](double level) { return level == std::round(level); })};
}

// Degrees; or, if they are unknown, the numbers of rows or columns from 0 on.
CfAxis grid_axis(const std::vector<double>& degrees, std::int64_t count, bool is_latitude) {
  const std::string name = is_latitude ? "latitude" : "longitude";
  if (!degrees.empty())
    return {.name = name,
            .values = degrees,
            .attributes = {{"standard_name", name},
                           {"long_name", name},
                           {"units", is_latitude ? "degrees_north" : "degrees_east"},
                           {"axis", is_latitude ? "Y" : "X"}}};
  CfAxis axis{.name = is_latitude ? "row" : "column",
              .values = std::vector<double>(static_cast<std::size_t>(count)),
              .attributes = {{"long_name", is_latitude ? "number of the row" : "number of the column"}, {"units", "1"}},
              .are_whole = true};
  std::iota(axis.values.begin(), axis.values.end(), 0.0);
  return axis;
}

std::string with_spaces(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

// "temperature at 850 hPa"; the channel's own name if it is unknown.
std::string sentence_of(const std::string& channel) {
  const ChannelParts parts = channel_parts(channel);
  const std::string name = long_variable_name(parts.variable);
  if (name.empty()) return channel;
  return with_spaces(name) + (parts.level.empty() ? "" : " at " + parts.level + " hPa");
}

CfAttributes attributes_of(const std::string& channel, const std::string& unit, const std::string& sentence) {
  CfAttributes attributes;
  if (const std::string name = standard_name(channel, unit); !name.empty())
    attributes.emplace_back("standard_name", name);
  attributes.emplace_back("long_name", sentence);
  if (!unit.empty()) attributes.emplace_back("units", cf_unit(unit));
  return attributes;
}

std::string unit_of(const ForecastContents& contents, std::size_t channel) {
  return contents.units.empty() ? "" : contents.units[channel];
}

std::vector<CfVariable> variable_a_channel(const ForecastContents& contents) {
  std::vector<CfVariable> variables;
  for (std::size_t c = 0; c < contents.channels.size(); ++c)
    variables.push_back(
        {.name = contents.channels[c],
         .channels = {static_cast<std::int64_t>(c)},
         .attributes = attributes_of(contents.channels[c], unit_of(contents, c), sentence_of(contents.channels[c]))});
  return variables;
}

std::set<double> levels_of(const ForecastContents& contents) {
  std::set<double> levels;
  for (const std::string& channel : contents.channels)
    if (const ChannelParts parts = channel_parts(channel); !parts.level.empty()) levels.insert(parts.hectopascals());
  return levels;
}

// Channels of one variable on several levels are one variable, in the place of the first of them.
std::vector<CfVariable> variables_with_levels(const std::string& path, const ForecastContents& contents,
                                              const std::set<double>& levels) {
  std::vector<CfVariable> variables;
  for (std::size_t c = 0; c < contents.channels.size(); ++c) {
    const std::string& channel = contents.channels[c];
    const ChannelParts parts = channel_parts(channel);
    const std::string known = long_variable_name(parts.variable), name = known.empty() ? channel : known;
    auto variable = std::ranges::find(variables, name, &CfVariable::name);
    const bool is_new = variable == variables.end();
    if (is_new) {
      variable = variables.insert(variable,
                                  {.name = name, .has_levels = !parts.level.empty(), .channels = {}, .attributes = {}});
      variable->channels.assign(variable->has_levels ? levels.size() : 1, -1);
      variable->attributes = attributes_of(channel, unit_of(contents, c), known.empty() ? channel : with_spaces(known));
    }
    const auto at =
        parts.level.empty() ? std::ptrdiff_t{0} : std::distance(levels.begin(), levels.find(parts.hectopascals()));
    ISOBAR_CHECK(variable->has_levels == !parts.level.empty() && variable->channels[static_cast<std::size_t>(at)] < 0,
                 path, ": the channels ", channel, " and ",
                 contents.channels[static_cast<std::size_t>(*std::ranges::max_element(variable->channels))],
                 " would both be ", name);
    variable->channels[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(c);
  }
  return variables;
}

void check_names(const std::string& path, const CfLayout& layout) {
  static const std::regex form(R"([A-Za-z0-9_][A-Za-z0-9_.+@-]*)");
  std::set<std::string> names;
  for (const CfAxis& axis : layout.axes) names.insert(axis.name);
  for (const CfVariable& variable : layout.variables) {
    ISOBAR_CHECK(std::regex_match(variable.name, form), path, ": the channel '", variable.name,
                 "' cannot be the name of a variable: letters, digits and _ can");
    ISOBAR_CHECK(names.insert(variable.name).second, path, ": the channel ", variable.name,
                 " has the name of another channel or of an axis");
  }
}

}  // namespace

bool CfVariable::is_complete() const {
  return std::ranges::find(channels, -1) == channels.end();
}

std::vector<std::string> CfLayout::dimensions(const CfVariable& variable) const {
  std::vector<std::string> names;
  for (const CfAxis& axis : axes)
    if (axis.name != kLevel || variable.has_levels) names.push_back(axis.name);
  return names;
}

std::vector<std::int64_t> CfLayout::shape(const CfVariable& variable) const {
  std::vector<std::int64_t> extents;
  for (const CfAxis& axis : axes)
    if (axis.name != kLevel || variable.has_levels) extents.push_back(std::ssize(axis.values));
  return extents;
}

std::vector<std::int64_t> CfLayout::place(const CfVariable& variable, std::int64_t start, std::int64_t lead,
                                          std::int64_t level) const {
  if (variable.has_levels) return {start, lead, level, 0, 0};
  return {start, lead, 0, 0};
}

std::vector<std::int64_t> CfLayout::extents(const CfVariable& variable) const {
  std::vector<std::int64_t> extents = shape(variable);
  std::fill(extents.begin(), extents.end() - 2, 1);
  return extents;
}

CfLayout cf_layout(const std::string& path, const ForecastContents& contents, bool long_names) {
  ISOBAR_CHECK(!contents.start_hours.empty() && contents.step_hours > 0, path,
               ": a forecast of this format has dates, but the data do not tell the times of their steps: name it .h5");
  CfLayout layout;
  layout.axes = {time_axis(contents), lead_axis(contents)};
  if (long_names) {
    const std::set<double> levels = levels_of(contents);
    if (!levels.empty()) layout.axes.push_back(level_axis(levels));
    layout.variables = variables_with_levels(path, contents, levels);
  } else {
    layout.variables = variable_a_channel(contents);
  }
  layout.axes.push_back(grid_axis(contents.latitudes, contents.height, /*is_latitude=*/true));
  layout.axes.push_back(grid_axis(contents.longitudes, contents.width, /*is_latitude=*/false));
  layout.attributes = {{"Conventions", "CF-1.8"},
                       {"title", "Forecast of a neural network"},
                       {"source", contents.source},
                       {"history", contents.history}};
  check_names(path, layout);
  return layout;
}

}  // namespace isobar
