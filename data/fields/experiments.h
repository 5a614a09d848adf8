// ECMWF's `expver`: which data of ERA5 are final (1), and which are preliminary (5: ERA5T, the newest two or three
// months).
//
// Old files of the Climate Data Store have an axis of this name, with an entry for each, where preliminary data are in
// them. New files have a text for each step, "0001" or "0005".
#pragma once

#include <cstdint>
#include <vector>

#include "data/files/stored_arrays.h"

namespace isobar {

inline constexpr const char* kExpver = "expver";

// The numbers of the array expver: one for each entry of its axis or each step, or one for all; -1 for a text that is
// no number. Empty if the file has no such array of at most one dimension, or if isobar does not read its text.
std::vector<double> experiment_numbers(const StoredArrays& arrays);

inline bool is_preliminary(double experiment) {
  return experiment == 5;
}

// An entry of the axis expver.
struct Experiment {
  std::int64_t entry = 0;
  bool is_preliminary = false;
};

// The entries of an axis, final ones first, so that preliminary data are taken only where there are no final ones.
// numbers: experiment_numbers of the file; other than one an entry: the order of the axis stays.
std::vector<Experiment> in_order_of_trust(const std::vector<double>& numbers, std::int64_t entries);

}  // namespace isobar
