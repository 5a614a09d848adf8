// Planes that do not change with time and are given to a network: orography, a land-sea mask.
#pragma once

#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "engine/keys.h"

namespace isobar {

struct ConstantField {
  std::string name;
  std::vector<float> values;       // [LAT, LON] of the cropped grid, in the file's unit
  std::string units = {};          // "" if the file does not give it
  double mean = 0, deviation = 1;  // over the grid, by area: weights of data/fields/latitude.h
};

// places: "FILE:VARIABLE" by name. In the order of the names. Error naming the file if the variable is missing, changes
// with time, has missing points, is the same everywhere, or is not on the grid of `series`.
std::vector<ConstantField> read_constants(const TextMap& places, const FieldSeries& series);

}  // namespace isobar
