#include "models/forecast/options.h"

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
           .at_least(0)},
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

}  // namespace isobar
