// What fits together: data with the statistics that normalise them, weights with the data that they are to go on with or
// to forecast from. Everything that is said in two places is compared (data/era5/field_labels.h).
#pragma once

#include <filesystem>
#include <string>

#include "apps/train/model_file.h"
#include "data/era5/era5.h"
#include "models/forecast/forecaster.h"

namespace isobar {

// Sets the grid's units and time step: those of the data, else those of its statistics, whose files lie in `folder`;
// where these have no stats.json, the units of known names stand for it. Throws Error where they contradict each other.
void label_from_statistics(Grid& grid, const Era5Dataset& dataset, const std::filesystem::path& folder);
// The same from the weights whose statistics the grid has.
void label_from_weights(Grid& grid, const Era5Dataset& dataset, const Grid& trained, const std::string& weights);

// Throws Error where the channels or units of `grid`, a labelled grid of `dataset`, are not those that the weights in the
// file were trained on. Weights that say nothing fit.
void check_weights_fit(const std::filesystem::path& weights, const Era5Dataset& dataset, const Grid& grid);
// Throws Error where dt steps of `dataset` are not the hours that the weights forecast ahead.
void check_lead_time(const std::filesystem::path& weights, const ModelDescription& description,
                     const Era5Dataset& dataset);

// Both, for a run that goes on from a checkpoint's weights.
void check_same_data(const std::filesystem::path& weights, const Era5Dataset& dataset, const Grid& grid);

}  // namespace isobar
