// The standard names of variables in the CF conventions.
#pragma once

#include <string>

namespace isobar {

// The name for a channel such as t2m, u850 or temperature_850 in this unit. Empty if the channel is unknown, or if the
// unit is another one than that of the name: a channel tp in mm/day is not what its name says in other files. Source:
// the CF standard name table.
std::string standard_name(const std::string& channel, const std::string& unit);

// A unit as UDUNITS and the CF conventions spell it: "1" for "(0 - 1)", "~" and "dimensionless"; others stay.
std::string cf_unit(const std::string& unit);

}  // namespace isobar
