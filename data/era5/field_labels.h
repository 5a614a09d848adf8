// What is said about the numbers of fields: by a file, by a data set, by statistics, by weights. What is said in two
// places must agree; what nobody says is not compared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace isobar {

struct FieldLabels {
  std::vector<std::string> channel_names = {};  // [C]; empty: not said. "c0", "c1", ... are nobody's names
  std::vector<std::string> units = {};          // [C] in their own spelling, "" where not said; empty: none is said
  double step_hours = 0;                        // from a step to the next; 0: not said
};

// Throws Error where `labels` contradict `others`: "WHO: channel t2m is in degC, but in K in WHOSE", and so for names
// and time steps. Spellings of one unit are the same (data/era5/units.h). Channels are compared as far as both have
// them.
void check_labels(const FieldLabels& labels, const std::string& who, const FieldLabels& others,
                  const std::string& whose);

// What the labels leave open, and `others` say.
void complete_labels(FieldLabels& labels, const FieldLabels& others);

// For fields whose units nobody says: those of the table of known names (data/era5/units.h), of channels whose means
// [C] can be in them. To compare with, not to be told as facts.
FieldLabels likely_labels(const std::vector<std::string>& channel_names, const std::vector<double>& means);
// A sentence for each channel without a unit whose mean cannot be in the unit of the table of known names.
std::vector<std::string> doubts_about_units(const FieldLabels& labels, const std::vector<std::string>& channel_names,
                                            const std::vector<double>& means);

// {"channels": [...], "units": [...], "step_hours": 6}; what is not said is null.
nlohmann::ordered_json to_json(const FieldLabels& labels);
// Throws Error, which names `where`, for anything else than what to_json makes.
FieldLabels labels_from_json(const nlohmann::json& json, const std::string& where);

// "6 hours", "1 hour", "0.25 hours".
std::string hours_text(double hours);

}  // namespace isobar
