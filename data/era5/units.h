// Units of variables: compared, never converted.
#pragma once

#include <string>

namespace isobar {

// Whether two spellings name one unit: "m/s", "m s-1" and "metres per second"; "K" and "Kelvin"; "J kg**-1" and
// "m2/s2". Spellings that nobody knows are the same only where their factors are spelled alike.
bool same_unit(const std::string& a, const std::string& b);

// The unit that a variable of this name has in ERA5 as the tutorial stores it: "K" of t2m, t850 and 2m_temperature.
// Empty for other names.
std::string known_unit(const std::string& variable);

// Whether a field of this variable whose mean over the globe and time is `mean` can be in known_unit(): false for t2m
// around 15 and sp around 1000. True where there is no known unit.
bool can_be_in_known_unit(const std::string& variable, double mean);

// What people are shown: the unit as the data spell it, or as the table of known names does where that is the same
// unit. Empty where nobody says one.
std::string shown_unit(const std::string& variable, const std::string& unit);

}  // namespace isobar
