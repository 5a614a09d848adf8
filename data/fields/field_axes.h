// The axes of a variable: which one is time, level, latitude and longitude, and of forecasts the lead time, of
// climatologies day and hour. They are recognised by the names, units and standard names of their coordinates (CF
// conventions, section 4), never by their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/files/array_info.h"

namespace isobar {

// experiment: ECMWF's `expver`, where preliminary and final data have an entry each. lead: from the start of a forecast
// to the time that it is for. day, hour: of a climatology.
enum class FieldAxis : std::uint8_t {
  time,
  lead,
  day,
  hour,
  pressure_level,
  model_level,
  latitude,
  longitude,
  experiment,
  other
};

// The name of an axis of days that gives 29 February a number of its own: 366 days, 1 March is always the 61st.
inline constexpr const char* kCalendarDay = "calendar_day";

// The axis of this name. coordinate: the array of one dimension with the same name; null: there is none.
FieldAxis field_axis(const std::string& name, const ArrayInfo* coordinate);

// hPa for one unit of a pressure axis: 1 for hPa, millibars and no unit, 0.01 for Pa. Error naming `where` for others.
double hectopascals_per_unit(const ArrayInfo& coordinate, const std::string& where);

// The hours of a unit of lead times as CF spells it: "hours", "days", "nanoseconds", ...; none for others.
std::optional<double> hours_per_unit(const std::string& units);

// A text attribute; "" if there is none, or if it is no single text.
std::string text_attribute(const ArrayInfo& array, const std::string& name);

}  // namespace isobar
