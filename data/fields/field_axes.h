// The axes of a variable: which one is time, level, latitude and longitude. They are recognised by the names, units and
// standard names of their coordinates (CF conventions, section 4), never by their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/files/array_info.h"

namespace isobar {

// lead: of forecasts, the time from their start. experiment: ECMWF's `expver`, where preliminary and final data have an
// entry each.
enum class FieldAxis : std::uint8_t { time, lead, pressure_level, model_level, latitude, longitude, experiment, other };

// The axis of this name. coordinate: the array of one dimension with the same name; null: there is none.
FieldAxis field_axis(const std::string& name, const ArrayInfo* coordinate);

// hPa for one unit of a pressure axis: 1 for hPa, millibars and no unit, 0.01 for Pa. Error naming `where` for others.
double hectopascals_per_unit(const ArrayInfo& coordinate, const std::string& where);

// Hours for one unit of a lead axis, whose units are days, hours, minutes, seconds or nanoseconds; none for others.
std::optional<double> hours_per_unit_of_lead(const ArrayInfo& coordinate);

// A text attribute; "" if there is none, or if it is no single text.
std::string text_attribute(const ArrayInfo& array, const std::string& name);

}  // namespace isobar
