// What the data tell a forecaster of their fields, after the crop.
#pragma once

#include <string>
#include <vector>

#include "data/era5/statistics.h"

namespace isobar {

struct FieldsInfo {
  std::vector<std::string> channel_names;     // [n_in_channels]; forecasts are of the first n_out_channels of them
  Statistics statistics;                      // of every input channel
  std::vector<double> row_weights;            // [H], mean 1: for losses and scores
  std::vector<double> latitudes, longitudes;  // degrees; empty where the files have none
  std::vector<std::string> units = {};        // [n_in_channels], "" where nobody says; or empty
  double step_hours = 0;                      // from a step of the data to the next; 0 where nobody says
};

}  // namespace isobar
