// A channel that is read as the logarithm of its values: precipitation, whose values lie over many orders.
//
//   y = ln(1 + x / s)        x = s · (e^y - 1)
#pragma once

#include <span>
#include <string>

namespace isobar {

// scale: s > 0, in the unit of x. In fp64, rounded to fp32. NaN stays NaN; x at or below -s becomes NaN.
void to_log_scale(std::span<float> values, double scale);
void from_log_scale(std::span<float> values, double scale);

// The unit of y, "log1p(m / 0.001)", and that of x again. Statistics of x are not taken for those of y by it.
std::string log_scale_unit(const std::string& unit, double scale);
std::string unit_of_log_scale(const std::string& unit);

}  // namespace isobar
