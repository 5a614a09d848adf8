// The weights of the forecast channels in a loss, from the config key channel_weights. a_c is the weight of channel c,
// C the number of channels; the losses take a mean over channels (kernels/forecast_loss.h).
//
//   [a_0, a_1, ...]   as given
//   {NAME: a, ...}    as given; 1 for channels that are not named
//   "graphcast"       a variable on levels p: a = p / sum of its levels p;  t2m: 1;  other variables without level: 0.1
//   "makani_auto"     p in hPa / 1000 on levels;  t2m, d2m: 1;  u10, v10, tp, sp, msl, tcwv, sst: 0.1;  others without
//                     level: 0.01;  then all divided by their sum
//   "change"          (std of the channel / std of its change)^2: the squared error in units of the change
//   ["graphcast", "change"]   presets in a list are multiplied
//
// Sources. graphcast: the loss of google-deepmind/graphcast (graphcast/losses.py; Lam et al. 2023) takes for each
// variable the mean over levels with p / mean(p), and adds the variables up, with 0.1 for all at the surface but the
// temperature. There it is the sum over variables, here a mean over channels: 1/C of it.
// makani_auto: `auto` of NVIDIA/makani (makani/utils/losses/base_loss.py), a sum over channels there: 1/C of it here.
// change: s_j of the GraphCast paper, the inverse variance of the change in the time step of the model. Fields are
// normalised with their own std, so that the ratio of the two is left.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/keys.h"

namespace isobar {

// Throws Error that begins with `where` for an unknown preset, for names that are none of the `channels` (empty: not
// known yet) with the nearest one, for a list of another length than `count`, and where no weight is above 0.
void check_channel_weights(const WeightsByName& weights, std::int64_t count, std::span<const std::string> channels,
                           const std::string& where);

// Whether the weights ask for the std of the channels' change.
bool need_changes(const WeightsByName& weights);

// [channels]. stds: of the channels. change_stds: of their change in a time step of the model, or empty. Throws Error
// as check_channel_weights; for a preset by levels where a name is neither that of a known variable without level nor
// of a known variable with one; and where changes are needed and not known.
std::vector<double> channel_weights_of(const WeightsByName& weights, std::span<const std::string> channels,
                                       std::span<const double> stds, std::span<const double> change_stds);

}  // namespace isobar
