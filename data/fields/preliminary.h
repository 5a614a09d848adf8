// How many steps of a series hold preliminary data (data/fields/experiments.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/field_series.h"

namespace isobar {

struct PreliminarySteps {
  bool is_told = false;                        // whether any file has an expver that isobar reads
  std::int64_t count = 0, steps = 0;           // in the range of the series: preliminary ones, and all
  std::optional<std::int64_t> first = {};      // the first preliminary one
  std::vector<std::string> unread_files = {};  // files with an expver whose text isobar does not read
};

// Opens the files that have an expver. Where it is an axis, it reads a row of each step (FieldReader::preliminary).
PreliminarySteps find_preliminary(const FieldSeries& series);

// "24 of 744 steps are preliminary (expver 5), the first of 2024-12-31T00:00"; what is unknown; both, after "; ". Empty
// if there is nothing of either kind.
std::string describe(const PreliminarySteps& found, const FieldSeries& series);

}  // namespace isobar
