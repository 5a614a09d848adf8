#include "models/forecast/meaning.h"

#include <array>
#include <cstdint>

#include "data/fields/calendar.h"
#include "data/fields/channels.h"
#include "data/fields/longitude.h"
#include "models/forecast/padding.h"

namespace isobar {
namespace {

using Channel = FieldsMeaning::Channel;

constexpr std::array kTimePlanes{"sin of the hour", "cos of the hour", "sin of the day", "cos of the day"};
static_assert(std::ssize(kTimePlanes) == kTimeFeatures);

std::vector<Channel> channels_of(const FieldsInfo& info, std::int64_t first, std::int64_t end) {
  std::vector<Channel> channels;
  for (auto c = static_cast<std::size_t>(first); c < static_cast<std::size_t>(end); ++c)
    channels.push_back({short_channel_name(info.channel_names[c]), c < info.units.size() ? info.units[c] : ""});
  return channels;
}

// In the order of an input's planes (models/forecast/input.cc).
std::vector<Channel> inputs_of(const ForecastOptions& options, const FieldsInfo& info) {
  const std::vector<Channel> states = channels_of(info, 0, options.prognostics());
  std::vector<Channel> planes = states;
  for (std::int64_t back = 1; back <= options.history; ++back)
    for (const Channel& channel : states)
      planes.push_back({concat(channel.name, " of ", back, " steps before"), channel.unit});
  const std::vector<Channel> forcings = channels_of(info, *options.n_out_channels, options.variables());
  planes.insert(planes.end(), forcings.begin(), forcings.end());
  for (const std::string& name : options.extra_names()) planes.push_back({name, ""});
  for (const std::string& name : options.missing_masks.value_or(std::vector<std::string>()))
    planes.push_back({concat("mask of ", short_channel_name(name)), ""});
  if (*options.time_features)
    for (const char* name : kTimePlanes) planes.push_back({name, ""});
  return planes;
}

// `count` places, of which the first ones are these; the last distance of these goes on.
std::vector<double> continued(std::vector<double> places, std::int64_t count) {
  if (places.size() < 2) return places;
  const double step = places.back() - places[places.size() - 2];
  while (std::ssize(places) < count) places.push_back(places.back() + step);
  return places;
}

}  // namespace

FieldsMeaning meaning_of(const ForecastOptions& options, const FieldsInfo& info, const NetworkRecipe& network) {
  const Shape grid = network_ports(options, network).in;
  return {.inputs = inputs_of(options, info),
          .outputs = channels_of(info, 0, *options.n_out_channels),
          .height = grid[1],
          .width = grid[2],
          .latitudes = continued(info.latitudes, grid[1]),
          .longitudes = continued(info.longitudes, grid[2]),
          .goes_round = go_round(info.longitudes),
          .adds_input = options.predict_change};
}

}  // namespace isobar
