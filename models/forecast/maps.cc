#include "models/forecast/maps.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "data/fields/units.h"
#include "data/maps/map_image.h"

namespace isobar {
namespace {

std::string file_name_of(std::string variable) {
  std::replace_if(
      variable.begin(), variable.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return variable;
}

}  // namespace

Picture draw_forecast(std::span<const float> target, std::span<const float> forecast, const FieldsInfo& info,
                      std::size_t channel, std::int64_t height, std::int64_t width, const MapCaption& caption) {
  const auto pixels = static_cast<std::size_t>(height * width);
  const auto field = [&](std::span<const float> values) {
    return Field{static_cast<int>(height), static_cast<int>(width), values.subspan(channel * pixels, pixels)};
  };
  const std::string& name = info.channel_names[channel];
  const std::vector<float> lat(info.latitudes.begin(), info.latitudes.end());
  const std::vector<float> lon(info.longitudes.begin(), info.longitudes.end());
  const std::string unit = channel < info.units.size() ? info.units[channel] : "";
  return {.tag = "Visualization, " + name,
          .board = target_and_prediction(field(target), field(forecast)),
          .file = "map_" + file_name_of(name),
          .image = target_forecast_error(field(target), field(forecast),
                                         {.variable = name,
                                          .unit = shown_unit(name, unit),
                                          .lead_time = caption.lead_time,
                                          .valid_time = caption.valid_time,
                                          .iteration = caption.iteration,
                                          .lat = lat,
                                          .lon = lon})};
}

}  // namespace isobar
