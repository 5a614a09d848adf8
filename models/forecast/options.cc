#include "models/forecast/options.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "data/fields/channels.h"
#include "data/fields/computed_planes.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"
#include "models/forecast/channel_weights.h"
#include "models/vit/options.h"

namespace isobar {
namespace {

void check_names(const ForecastOptions& o, const KeyOrigins& origins) {
  if (!o.channel_names) return;
  ISOBAR_CHECK(std::ssize(*o.channel_names) == o.variables(), origins.where("channel_names"), " must name ",
               o.variables(), " channels (n_in_channels), not ", o.channel_names->size());
  std::set<std::string> names;
  for (const std::string& name : *o.channel_names)
    ISOBAR_CHECK(!name.empty() && names.insert(name).second, origins.where("channel_names"), " holds ",
                 name.empty() ? "an empty name" : name + " twice");
}

// Error if roles need `channels`, or if a variable has two roles.
void check_roles(const ForecastOptions& o, const KeyOrigins& origins) {
  std::vector<std::pair<std::string, const char*>> roles;  // each variable, and the key that names it
  std::optional<std::vector<std::string>> constants{std::in_place};
  for (const auto& [name, place] : o.constant_channels.value_or(TextMap())) constants->push_back(name);
  for (const auto& [key, list] :
       {std::pair("channels", &o.channels), std::pair("forcing_channels", &o.forcing_channels),
        std::pair("diagnostic_channels", &o.diagnostic_channels), std::pair("computed_channels", &o.computed_channels),
        std::pair("constant_channels", &std::as_const(constants))}) {
    for (const std::string& name : list->value_or(std::vector<std::string>())) {
      ISOBAR_CHECK(!name.empty(), origins.where(key), " holds an empty name");
      const auto other = std::ranges::find_if(roles, [&](const auto& role) { return same_channel(role.first, name); });
      ISOBAR_CHECK(other == roles.end(), origins.where(key), " holds ", name, ", which ",
                   other == roles.end() ? "" : other->second, " holds too",
                   other != roles.end() && other->first != name ? " as " + other->first : "");
      roles.emplace_back(name, key);
    }
  }
  ISOBAR_CHECK(!o.channels || !o.channels->empty(), origins.where("channels"), " is empty");
  const std::vector<std::string>& known = computed_channel_names();
  for (const std::string& name : o.computed_channels.value_or(std::vector<std::string>()))
    ISOBAR_CHECK(std::ranges::find(known, name) != known.end(), origins.where("computed_channels"), " holds ", name,
                 ", which cannot be computed; the nearest is ", nearest_name(name, known), ", of ", comma_list(known));
  for (const auto& [key, list] :
       {std::pair("forcing_channels", &o.forcing_channels), std::pair("diagnostic_channels", &o.diagnostic_channels)})
    ISOBAR_CHECK(o.channels || !*list || (*list)->empty(), origins.where(key), " needs config key channels");
  for (const auto& [name, place] : o.constant_channels.value_or(TextMap()))
    ISOBAR_CHECK(!name.empty() && place.find(':') != std::string::npos, origins.where("constant_channels"), " gives ",
                 name, " as '", place, "'; expected FILE:VARIABLE");
}

void check_missing(const ForecastOptions& o, const KeyOrigins& origins) {
  for (const auto& [name, value] : o.missing.value_or(NumbersOrWords()))
    if (const auto* const word = std::get_if<std::string>(&value))
      ISOBAR_CHECK(*word == "mean" || *word == "fill" || *word == "refuse", origins.where("missing"), " gives ", name,
                   " as ", *word, "; expected a number, mean, fill or refuse");
  const auto check_name = [&](const char* key, const std::string& name) {
    ISOBAR_CHECK(!o.channel_names || std::ranges::find(*o.channel_names, name) != o.channel_names->end(),
                 origins.where(key), " names ", name, ", which is no channel of the data");
  };
  for (const auto& [name, value] : o.missing.value_or(NumbersOrWords())) check_name("missing", name);
  for (const std::string& name : o.accumulate.value_or(std::vector<std::string>())) check_name("accumulate", name);
  for (const auto& [name, value] : o.transforms.value_or(NumbersOrWords())) {
    check_name("transforms", name);
    ISOBAR_CHECK(o.log_scale(name) > 0, origins.where("transforms"), " gives ", name,
                 " no scale above 0: the s of ln(1 + x / s)");
  }
  for (const std::string& name : o.missing_masks.value_or(std::vector<std::string>())) {
    check_name("missing_masks", name);
    ISOBAR_CHECK(o.may_be_missing(name), origins.where("missing_masks"), " names ", name,
                 ", whose missing points config key missing refuses");
  }
}

// Error if forecasts are to be continued whose next inputs nobody has.
void check_continued(const ForecastOptions& o, const KeyOrigins& origins) {
  if (!o.rollout.continues()) return;
  const bool is_trained = o.rollout.longest() > 1 || o.rollout.valid_steps() > 1;
  ISOBAR_CHECK(o.channels || *o.n_out_channels == *o.n_in_channels,
               origins.where(is_trained ? "rollout" : "valid_leads"), ": a forecast of ", *o.n_out_channels,
               " channels cannot be continued by a model that reads ", *o.n_in_channels,
               ", unless config keys channels and forcing_channels name them");
  const std::int64_t width = o.rollout.boundary_width;
  ISOBAR_CHECK(2 * width < o.height() && 2 * width < o.width(), origins.where("boundary_width"), " is ", width,
               ", which leaves nothing of ", o.height(), " x ", o.width(), " points");
}

void check_weights(const ForecastOptions& o, const KeyOrigins& origins) {
  if (!o.channel_weights) return;
  std::span<const std::string> names;  // of the forecast variables, if they are known
  if (o.channel_names) names = std::span(*o.channel_names).first(static_cast<std::size_t>(*o.n_out_channels));
  check_channel_weights(*o.channel_weights, *o.n_out_channels, names, origins.where("channel_weights"));
}

}  // namespace

KeyTable ForecastOptions::keys() {
  return {
      "The forecast",
      {key("img_size", img_size, "rows and columns of the grid; larger fields are cropped to them; null: the data's")
           .within(0, kLargestExtent)
           .also_called({"imagesize", "grid"}),
       key("pad_grid", pad_grid,
           "the network sees a grid with more rows and columns where its patch_size or levels ask for multiples: the "
           "last row again, and the first columns if they go round the globe, else the last one; losses, scores and "
           "files see the data's grid; null: only where img_size is null and a grid needs it"),
       key("n_in_channels", n_in_channels, "variables that the model reads; null: the data's")
           .within(1, kLargestExtent)
           .also_called({"inchannels", "inchans"}),
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
       key("channels", channels,
           "variables that are read and forecast, by name, from whatever the data hold; null: the first "
           "n_out_channels"),
       key("forcing_channels", forcing_channels,
           "variables that are read, but not forecast; a forecast takes them from "
           "the data"),
       key("diagnostic_channels", diagnostic_channels, "variables that are forecast, but not read"),
       key("computed_channels", computed_channels,
           "planes that are computed: cos_zenith, toa_radiation, cos_latitude, sin_longitude, cos_longitude"),
       key("constant_channels", constant_channels,
           "planes that do not change, {\"z\": \"FILE:VARIABLE\"}; they are normalised with their own mean and "
           "deviation")
           .path(),
       key("history", history, "earlier states that are read beside the newest, each dt steps before the next")
           .within(0, 64),
       key("missing", missing,
           "what missing points of a channel are taken for, {\"sst\": \"mean\"}: mean, or a number in its unit; they "
           "have no "
           "weight in losses and scores. Other channels refuse them, and so does refuse; fill does too, but chunks "
           "that a "
           "Zarr store does not have hold its fill value"),
       key("missing_masks", missing_masks,
           "channels whose mask is an input plane too, 1 where a point is there and 0 where it is missing"),
       key("accumulate", accumulate,
           "channels that are read as sums over the dt steps that end at a step: hourly precipitation"),
       key("transforms", transforms,
           "channels that are read as ln(1 + x / s), with s in their unit, {\"tp\": 0.001}; statistics, losses and "
           "scores "
           "are those of the logarithm, forecasts are x again"),
       key("loss", loss,
           "relative_l2 is the tutorial's; weighted_mse: mean squared error with latitude and channel weights; "
           "relative_l2_weighted: both")
           .also_called({"criterion", "lossfn"}),
       key("latitude_weights", latitude_weights,
           "weight of a row in scores and in the weighted losses: cos of its latitude; cells: the area of its cells; "
           "tutorial: the tutorial's, which data without latitudes have in place of cos"),
       key("channel_weights", channel_weights,
           "weight of each forecast variable in the weighted losses: numbers, or numbers by name (1 for others), or a "
           "preset: graphcast, makani_auto, change; a list of presets is their product; null: 1 each")
           .at_least(0)
           .also_called({"variableweights", "lossweights"}),
       key("picture_channels", picture_channels,
           "names of the variables whose maps a validation draws; [] for none; null: the third one, else the last")
           .free_on_resume()
           .also_called({"images", "plots", "visualize"})},
      [this](const KeyOrigins& origins) {
        check_filled("img_size", img_size.has_value(), origins);
        check_filled("n_in_channels", n_in_channels.has_value(), origins);
        check_filled("n_out_channels", n_out_channels.has_value(), origins);
        check_filled("time_features", time_features.has_value(), origins);
        check_filled("pad_grid", pad_grid.has_value(), origins);
        check_roles(*this, origins);
        check_missing(*this, origins);
        ISOBAR_CHECK(prognostics() <= *n_in_channels, origins.where("n_out_channels"),
                     " must be at most n_in_channels (", *n_in_channels, "), not ", *n_out_channels);
        check_names(*this, origins);
        check_weights(*this, origins);
        check_continued(*this, origins);
      }};
}

bool ForecastOptions::may_be_missing(const std::string& channel) const {
  if (!missing) return false;
  const auto found = missing->find(channel);
  return found != missing->end() && found->second != NumberOrWord("refuse") && found->second != NumberOrWord("fill");
}

bool ForecastOptions::targets_may_be_missing(std::span<const std::string> names) const {
  return std::ranges::any_of(names.first(static_cast<std::size_t>(*n_out_channels)),
                             [this](const std::string& name) { return may_be_missing(name); });
}

double ForecastOptions::log_scale(const std::string& channel) const {
  if (!transforms) return 0;
  const auto found = transforms->find(channel);
  const auto* const number = found == transforms->end() ? nullptr : std::get_if<double>(&found->second);
  return number != nullptr ? *number : 0;
}

std::vector<std::string> ForecastOptions::extra_names() const {
  std::vector<std::string> names = computed_channels.value_or(std::vector<std::string>());
  for (const auto& [name, place] : constant_channels.value_or(TextMap())) names.push_back(name);
  return names;
}

std::string ForecastOptions::fill_from_roles(KeyOrigins& origins) {
  if (!channels) return "";
  std::vector<std::string> names = *channels;
  for (const auto* more : {&diagnostic_channels, &forcing_channels})
    if (*more) names.insert(names.end(), (*more)->begin(), (*more)->end());
  ISOBAR_CHECK(!channel_names || std::ranges::is_permutation(*channel_names, names), origins.where("channel_names"),
               " names other variables than channels, diagnostic_channels and forcing_channels");
  channel_names = names;
  std::string changed;
  const auto set = [&](const char* key, std::optional<std::int64_t>& value, std::int64_t by_roles) {
    if (value == by_roles) return;
    value = by_roles;
    origins.set(key, "the roles of the channels");
    changed += concat(changed.empty() ? "" : ", ", key, " ", by_roles);
  };
  const std::int64_t outputs = std::ssize(*channels) + diagnostics();
  set("n_in_channels", n_in_channels, std::ssize(names) - diagnostics());
  set("n_out_channels", n_out_channels, outputs);
  return changed;
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
