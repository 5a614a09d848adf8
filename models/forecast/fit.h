// What fits together: data with the statistics that normalise them, weights with the data that they are to go on with
// or to forecast from. Everything that is said in two places is compared (data/era5/field_labels.h).
#pragma once

#include <filesystem>
#include <string>

#include "data/era5/era5.h"
#include "models/forecast/fields_info.h"

namespace isobar {

// Sets the units and time step: those of the data, else those of its statistics, whose files lie in `folder`. Throws
// Error where they contradict each other; where there is no stats.json, the units of known names stand for it, of
// channels whose means can be in them.
void label_from_statistics(FieldsInfo& info, const Era5Dataset& dataset, const std::filesystem::path& folder);
// The same from the weights whose statistics `info` has.
void label_from_weights(FieldsInfo& info, const Era5Dataset& dataset, const FieldsInfo& trained,
                        const std::string& weights);

// Throws Error where the channels or units of `info`, labelled for `dataset`, are not those that the weights were
// trained on. What nobody says fits.
void check_units(const FieldsInfo& trained, const std::string& weights, const Era5Dataset& dataset,
                 const FieldsInfo& info);
// Throws Error where dt steps of `dataset` are not the hours that the weights forecast ahead in trained_dt steps.
void check_lead_time(const FieldsInfo& trained, std::int64_t trained_dt, const std::string& weights,
                     const Era5Dataset& dataset);

// Throws Error where the rows of `dataset` run from north to south and those of the weights' data the other way, or the
// other way round: upside down every number is believable, and the forecast worthless.
void check_orientation(const FieldsInfo& trained, const Era5Dataset& dataset);

}  // namespace isobar
