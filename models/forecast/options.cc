#include "models/forecast/options.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "kernels/common/check.h"
#include "models/vit/options.h"

namespace isobar {
namespace {

void check_names(const ForecastOptions& o, const KeyOrigins& origins) {
  if (!o.channel_names) return;
  ISOBAR_CHECK(std::ssize(*o.channel_names) == *o.n_in_channels, origins.where("channel_names"), " must name ",
               *o.n_in_channels, " channels (n_in_channels), not ", o.channel_names->size());
  std::set<std::string> names;
  for (const std::string& name : *o.channel_names)
    ISOBAR_CHECK(!name.empty() && names.insert(name).second, origins.where("channel_names"), " holds ",
                 name.empty() ? "an empty name" : name + " twice");
}

void check_weights(const ForecastOptions& o, const KeyOrigins& origins) {
  if (!o.channel_weights) return;
  ISOBAR_CHECK(std::ssize(*o.channel_weights) == *o.n_out_channels, origins.where("channel_weights"), " must hold ",
               *o.n_out_channels, " weights (n_out_channels), not ", o.channel_weights->size());
  double sum = 0;
  for (const double weight : *o.channel_weights) sum += weight;
  ISOBAR_CHECK(sum > 0, origins.where("channel_weights"), " must have a weight above 0");
}

}  // namespace

KeyTable ForecastOptions::keys() {
  return {
      "The forecast",
      {key("img_size", img_size, "rows and columns of the grid; larger fields are cropped to them; null: the data's")
           .within(0, kLargestExtent)
           .also_called({"imagesize", "grid"}),
       key("n_in_channels", n_in_channels, "variables that the model reads; null: the data's")
           .within(1, kLargestExtent)
           .also_called({"channels", "inchannels", "inchans"}),
       key("n_out_channels", n_out_channels,
           "variables that it forecasts, the first of those it reads; null: n_in_channels")
           .at_least(1)
           .also_called({"outchannels", "outchans"}),
       key("predict_change", predict_change, "the output is added to the input, and the head starts at zero"),
       key("time_features", time_features,
           "four input planes more, sin and cos of the hour of day and of the day of year; not counted in "
           "n_in_channels; null: where the data tell the time"),
       key("channel_names", channel_names,
           "names of the variables; null: the data's, else the tutorial's twenty, else c0, c1, ...")
           .also_called({"variables"}),
       key("loss", loss,
           "relative_l2 is the tutorial's; weighted_mse: mean squared error with latitude and channel weights; "
           "relative_l2_weighted: both")
           .also_called({"criterion", "lossfn"}),
       key("channel_weights", channel_weights, "weight of each forecast variable in the weighted losses; null: 1 each")
           .at_least(0),
       key("picture_channels", picture_channels,
           "names of the variables whose maps a validation draws; [] for none; null: the third one, else the last")
           .free_on_resume()
           .also_called({"images", "plots", "visualize"})},
      [this](const KeyOrigins& origins) {
        check_filled("img_size", img_size.has_value(), origins);
        check_filled("n_in_channels", n_in_channels.has_value(), origins);
        check_filled("n_out_channels", n_out_channels.has_value(), origins);
        check_filled("time_features", time_features.has_value(), origins);
        ISOBAR_CHECK(*n_out_channels <= *n_in_channels, origins.where("n_out_channels"),
                     " must be at most n_in_channels (", *n_in_channels, "), not ", *n_out_channels);
        check_names(*this, origins);
        check_weights(*this, origins);
      }};
}

std::vector<std::size_t> pictured_channels(const ForecastOptions& options, const std::vector<std::string>& names) {
  if (!options.picture_channels) return {std::min<std::size_t>(2, names.size() - 1)};
  std::vector<std::size_t> channels;
  for (const std::string& wanted : *options.picture_channels) {
    const auto found = std::ranges::find(names, wanted);
    ISOBAR_CHECK(found != names.end(), "config key picture_channels names ", wanted, ", which is not among the ",
                 names.size(), " variables of the forecast (", names.front(), ", ...)");
    const auto channel = static_cast<std::size_t>(found - names.begin());
    ISOBAR_CHECK(std::ranges::find(channels, channel) == channels.end(), "config key picture_channels holds ", wanted,
                 " twice");
    channels.push_back(channel);
  }
  return channels;
}

}  // namespace isobar
