// Checks that data match the statistics that normalise them, and that weights match the data for resuming or
// forecasting. Everything stated in two places is compared (data/fields/field_labels.h).
#pragma once

#include <filesystem>
#include <string>

#include "data/fields/field_series.h"
#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"

namespace isobar {

// Sets units and time step: those of the data, else those of its statistics, whose files are in `folder`. Throws Error
// if the two contradict each other. Without stats.json, the data's units are compared with those of the table of known
// names, for channels whose means are possible in them.
//
// Channels that the data set reads as logarithms or as sums need a stats.json that says so. are_own: a run's own
// statistics; those of older versions do not tell of sums.
void label_from_statistics(FieldsInfo& info, const FieldSeries& dataset, const std::filesystem::path& folder,
                           bool are_own = false);
// The same with the weights that the statistics in `info` come from.
void label_from_weights(FieldsInfo& info, const FieldSeries& dataset, const FieldsInfo& trained,
                        const std::string& weights);

// Throws Error if the channels or units of `info`, labelled for `dataset`, differ from those that the weights were
// trained on. Unknown ones match anything.
void check_units(const FieldsInfo& trained, const std::string& weights, const FieldSeries& dataset,
                 const FieldsInfo& info);
// Throws Error if dt steps of `dataset` are not as many hours as trained_dt steps of the weights' data.
void check_lead_time(const FieldsInfo& trained, std::int64_t trained_dt, const std::string& weights,
                     const FieldSeries& dataset);

// Throws Error if the rows of `dataset` and of the weights' data run in opposite directions (north to south, south to
// north): the values of an upside-down grid are plausible, but the forecast is worthless.
void check_orientation(const FieldsInfo& trained, const FieldSeries& dataset);

// Throws Error if the roles that a config gives to channels are not those that the weights were trained with, or if it
// names other computed planes and constants, or the same ones in another order. The order within a role does not
// matter: channels are chosen by the names that the weights have.
void check_planes(const ForecastOptions& options, const FieldsInfo& trained, const std::string& weights);

}  // namespace isobar
