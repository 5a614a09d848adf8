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

// Constants that lie in a file of weights, so that their own files need not exist.
struct CarriedConstants {
  std::string weights = {};                             // the file, for messages
  std::vector<ConstantField> fields = {};               // in the order of their names; empty: it carries none
  std::vector<double> latitudes = {}, longitudes = {};  // of their grid, degrees; empty: unknown
};

// The carried ones, on the grid of `series`. A file of `places` that exists must have the same bits: Error naming it,
// the constant and the weights if not. If there are none, or if `series` has another grid: those of the files.
std::vector<ConstantField> read_constants(const TextMap& places, const FieldSeries& series,
                                          const CarriedConstants& carried);

// Error as above if a field differs from the carried one of its name.
void check_carried(const std::vector<ConstantField>& fields, const TextMap& places, const CarriedConstants& carried);

}  // namespace isobar
