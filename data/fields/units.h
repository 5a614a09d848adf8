// Units of variables: compared, never converted.
#pragma once

#include <string>

namespace isobar {

// Whether two spellings mean the same unit: "m/s", "m s-1" and "metres per second"; "K" and "Kelvin"; "J kg**-1" and
// "m2/s2". Unknown spellings are equal only if their factors are.
bool same_unit(const std::string& a, const std::string& b);

// The unit that a variable of this name has in ERA5 as the tutorial stores it: "K" for t2m, t850 and 2m_temperature.
// Empty for unknown names.
std::string known_unit(const std::string& variable);

// Whether a field of this variable with the mean `mean` (over globe and time) can be in known_unit(): false for t2m
// around 15 and sp around 1000. True if there is no known unit.
bool can_be_in_known_unit(const std::string& variable, double mean);

// The unit for display: in the spelling of the data, or of the table of known names if that is the same unit. Empty if
// none is given.
std::string shown_unit(const std::string& variable, const std::string& unit);

}  // namespace isobar
