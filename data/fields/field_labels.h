// What a file, a data set, statistics or weights state about their fields. Two statements about the same thing must
// agree; what is not stated is not compared.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace isobar {

struct FieldLabels {
  std::vector<std::string> channel_names = {};  // [V]; empty: not given. "c0", "c1", ... count as not given
  std::vector<std::string> units = {};          // [V] as spelled by the source, "" if one is not given; empty: none
  double step_hours = 0;                        // from a step to the next; 0: unknown
  std::vector<std::int64_t> summed = {};        // [V] steps that a value is the sum of; empty: 1 each
};

// Throws Error if `labels` contradict `others`: "WHO: channel t2m is in degC, but in K in WHOSE", and so for names and
// time steps. Two spellings of one unit are equal (data/fields/units.h). Only channels that both have are compared.
void check_labels(const FieldLabels& labels, const std::string& who, const FieldLabels& others,
                  const std::string& whose);

// Fills what `labels` do not give from `others`.
void complete_labels(FieldLabels& labels, const FieldLabels& others);

// For fields without units: the units of the table of known names (data/fields/units.h), for channels whose mean (of
// `means` [V]) is possible in that unit. Use them for comparison, not as facts.
FieldLabels likely_labels(const std::vector<std::string>& channel_names, const std::vector<double>& means);
// A sentence for each channel without a unit whose mean is impossible in the unit of the table of known names.
std::vector<std::string> unit_warnings(const FieldLabels& labels, const std::vector<std::string>& channel_names,
                                       const std::vector<double>& means);

// {"channels": [...], "units": [...], "step_hours": 6}; what is not given is null. "summed" if there are sums.
nlohmann::ordered_json to_json(const FieldLabels& labels);
// The inverse of to_json; throws Error naming `where` for any other JSON.
FieldLabels labels_from_json(const nlohmann::json& json, const std::string& where);

// "6 hours", "1 hour", "0.25 hours".
std::string hours_text(double hours);

}  // namespace isobar
