// Facts about the fields that the data determine, after the crop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/fields/constants.h"
#include "data/fields/statistics.h"

namespace isobar {

struct FieldsInfo {
  // [ForecastOptions::variables()]; the first n_out_channels are forecast, the others are forcings.
  std::vector<std::string> channel_names;
  Statistics statistics;                      // of each
  std::vector<double> row_weights;            // [LAT], mean 1: for losses and scores
  std::vector<double> latitudes, longitudes;  // degrees; empty if the files have none
  std::vector<std::string> units = {};        // of each channel, "" if unknown; or empty
  double step_hours = 0;                      // from a step of the data to the next; 0 if unknown
  // Of the computed planes and the constants, in the order of an input's planes (data/fields/windows.h).
  std::vector<double> extra_means = {}, extra_stds = {};
  std::vector<std::string> extra_names = {};  // of the same planes; empty: weights of older versions do not say
  std::vector<ConstantField> constants = {};  // in the order of their names
  // [n_out, LAT, LON]: 1 where the data never have a value. Empty if every point has values, or if it is unknown.
  std::vector<std::uint8_t> never_there = {};
  // [n_out]: standard deviation of each forecast variable's change in a time step of the model. Empty if no weights of
  // channels ask for it.
  std::vector<double> change_stds = {};
};

}  // namespace isobar
