// Lines of CF units, calendar and a value give a time with sensible parts, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "data/fields/calendar.h"
#include "kernels/common/check.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(time) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  std::string units, calendar, number;
  std::getline(lines, units);
  std::getline(lines, calendar);
  std::getline(lines, number);
  try {
    const isobar::StepTime time = isobar::TimeUnits(units, calendar, "input").at(std::strtod(number.c_str(), nullptr));
    const bool sensible = time.day_of_year >= 0 && time.day_of_year <= time.days_in_year && std::isfinite(time.hour());
    if (!sensible || time.iso().empty()) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
