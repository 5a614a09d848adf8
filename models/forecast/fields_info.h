// Facts about the fields that the data determine, after the crop.
#pragma once

#include <string>
#include <vector>

#include "data/fields/statistics.h"

namespace isobar {

struct FieldsInfo {
  // [n_in_channels]; the first n_out_channels are forecast.
  std::vector<std::string> channel_names;
  Statistics statistics;                      // of every input channel
  std::vector<double> row_weights;            // [LAT], mean 1: for losses and scores
  std::vector<double> latitudes, longitudes;  // degrees; empty if the files have none
  std::vector<std::string> units = {};        // [n_in_channels], "" if unknown; or empty
  double step_hours = 0;                      // from a step of the data to the next; 0 if unknown
};

}  // namespace isobar
