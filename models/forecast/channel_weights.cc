#include "models/forecast/channel_weights.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "data/fields/channels.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"

namespace isobar {
namespace {

using Names = std::span<const std::string>;
using Numbers = std::vector<double>;

constexpr const char* kKey = "config key channel_weights";
constexpr const char* kChange = "change";

// A channel as the presets see it: its variable, and its level if it has one.
ChannelParts parts_of(const std::string& channel, const std::string& preset) {
  const std::optional<ChannelParts> parts = known_channel_parts(channel);
  ISOBAR_CHECK(parts, kKey, " is ", preset, ", which goes by variables and levels, and the name of channel ", channel,
               " tells neither; give its weights by name, {\"", channel, "\": 1}");
  return *parts;
}

Numbers by_graphcast(Names channels, const std::string& preset) {
  std::map<std::string, double> levels;  // of each variable, added up
  for (const std::string& channel : channels) {
    const ChannelParts parts = parts_of(channel, preset);
    if (!parts.level.empty()) levels[parts.variable] += parts.hectopascals();
  }
  Numbers weights;
  for (const std::string& channel : channels) {
    const ChannelParts parts = parts_of(channel, preset);
    const double at_surface = parts.variable == "t2m" ? 1 : 0.1;
    weights.push_back(parts.level.empty() ? at_surface : parts.hectopascals() / levels.at(parts.variable));
  }
  return weights;
}

double makani_weight(const ChannelParts& channel) {
  constexpr std::array kTenth{"u10", "v10", "tp", "sp", "msl", "tcwv", "sst"};
  constexpr double kHectopascal = 0.001;
  if (!channel.level.empty()) return kHectopascal * channel.hectopascals();
  if (channel.variable == "t2m" || channel.variable == "d2m") return 1;
  return std::ranges::find(kTenth, channel.variable) != kTenth.end() ? 0.1 : 0.01;
}

Numbers by_makani(Names channels, const std::string& preset) {
  Numbers weights;
  for (const std::string& channel : channels) weights.push_back(makani_weight(parts_of(channel, preset)));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

Numbers by_change(Names channels, std::span<const double> stds, std::span<const double> change_stds) {
  ISOBAR_CHECK(change_stds.size() == channels.size(), kKey, " is ", kChange,
               ", and the standard deviations of the channels' change are not known");
  Numbers weights;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    ISOBAR_CHECK(change_stds[c] > 0, kKey, " is ", kChange, ", and channel ", channels[c], " never changes");
    const double ratio = stds[c] / change_stds[c];
    weights.push_back(ratio * ratio);
  }
  return weights;
}

struct Preset {
  const char* name;
  std::function<Numbers(Names channels, std::span<const double> stds, std::span<const double> change_stds)> weights;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"graphcast", [](Names channels, auto...) { return by_graphcast(channels, "graphcast"); }},
      {"makani_auto", [](Names channels, auto...) { return by_makani(channels, "makani_auto"); }},
      {kChange, by_change}};
  return all;
}

const Preset* find_preset(const std::string& name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  return found == presets().end() ? nullptr : &*found;
}

// The presets that the weights name; none for numbers.
std::vector<std::string> words_of(const WeightsByName& weights) {
  if (const auto* word = std::get_if<std::string>(&weights)) return {*word};
  if (const auto* words = std::get_if<std::vector<std::string>>(&weights)) return *words;
  return {};
}

Numbers by_name(const std::map<std::string, double>& named, Names channels) {
  Numbers weights;
  for (const std::string& channel : channels) {
    const auto found = std::ranges::find_if(named, [&](const auto& item) { return same_channel(item.first, channel); });
    weights.push_back(found == named.end() ? 1 : found->second);
  }
  return weights;
}

void check_names(const std::map<std::string, double>& named, Names channels, const std::string& where) {
  const std::vector<std::string> known(channels.begin(), channels.end());
  for (const auto& [name, weight] : named) {
    const auto is_same = [&name = name](const std::string& channel) { return same_channel(channel, name); };
    ISOBAR_CHECK(channels.empty() || std::ranges::any_of(channels, is_same), where, " names ", name,
                 ", which is not forecast; the nearest is ", nearest_name(name, known));
  }
}

void check_sum(const Numbers& weights, const std::string& where) {
  ISOBAR_CHECK(std::accumulate(weights.begin(), weights.end(), 0.0) > 0, where, " must have a weight above 0");
}

}  // namespace

void check_channel_weights(const WeightsByName& weights, std::int64_t count, Names channels, const std::string& where) {
  for (const std::string& word : words_of(weights))
    ISOBAR_CHECK(find_preset(word) != nullptr, where, " names the weights ", word, "; there are ",
                 comma_list(presets(), &Preset::name));
  if (const auto* list = std::get_if<Numbers>(&weights)) {
    ISOBAR_CHECK(std::ssize(*list) == count, where, " must hold ", count, " weights (n_out_channels), not ",
                 list->size());
    check_sum(*list, where);
  }
  if (const auto* named = std::get_if<std::map<std::string, double>>(&weights)) {
    check_names(*named, channels, where);
    if (!channels.empty()) check_sum(by_name(*named, channels), where);
  }
}

bool need_changes(const WeightsByName& weights) {
  const std::vector<std::string> words = words_of(weights);
  return std::ranges::find(words, kChange) != words.end();
}

std::vector<double> channel_weights_of(const WeightsByName& weights, Names channels, std::span<const double> stds,
                                       std::span<const double> change_stds) {
  check_channel_weights(weights, std::ssize(channels), channels, kKey);
  if (const auto* list = std::get_if<Numbers>(&weights)) return *list;
  if (const auto* named = std::get_if<std::map<std::string, double>>(&weights)) return by_name(*named, channels);
  Numbers product(channels.size(), 1.0);
  for (const std::string& word : words_of(weights)) {
    const Numbers factors = find_preset(word)->weights(channels, stds, change_stds);
    std::ranges::transform(product, factors, product.begin(), std::multiplies());
  }
  return product;
}

}  // namespace isobar
