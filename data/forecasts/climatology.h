// A climatology: the mean field of each day of the year and hour of the day, over many years, smoothed along the days.
// With S and N the sum and the number of all values of a day number and hour that there are, w the weights of a window
// of days, C(day) = sum_j w_j S(day + j) / sum_j w_j N(day + j); day + j goes on from the last day to the first.
//
// docs/forecasting.md describes the command. Formula: WeatherBench 2 (Rasp et al. 2024), its compute_climatology.py.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/field_series.h"
#include "engine/keys.h"

namespace isobar {

// How days are numbered. calendar: 29 February has a number of its own, and 1 March is always the 61st day. dayofyear:
// 1 March is the 60th or, in a leap year, the 61st day; where a year has no 366th day, its 365th is taken for it, as
// WeatherBench does.
enum class DayNumbers : std::uint8_t { calendar, dayofyear };

template <>
struct EnumNames<DayNumbers> {
  static constexpr std::array names{"calendar", "dayofyear"};
};

inline constexpr std::int64_t kClimatologyDays = 366;

// Attributes of the axis of days: the first and the last time that the means are of, as StepTime::iso() writes them.
inline constexpr const char* kFirstTime = "first_time";
inline constexpr const char* kLastTime = "last_time";

// The day number, from 0, and the minute of the day, of a time rounded to a minute.
struct ClimatologySlot {
  std::int64_t day = 0, minute = 0;
  friend auto operator<=>(const ClimatologySlot&, const ClimatologySlot&) = default;
};
ClimatologySlot climatology_slot(const StepTime& time, DayNumbers numbers);

// [window] from 0 at the ends to the largest in the middle, linearly, with mean 1; a window of 1 day has the weight 1.
// Error for an even or negative number, and for one beyond a year.
std::vector<double> window_weights(std::int64_t window);

// means [days, points], in place of sums: C of the formula above; NaN where no day of the window has a value. sums:
// [days, points]; counts: [days, points].
void smooth_days(std::vector<double>& sums, const std::vector<std::uint32_t>& counts, std::int64_t points,
                 const std::vector<double>& weights, int threads);

struct ClimatologyOptions {
  DayNumbers days = DayNumbers::calendar;
  std::int64_t window = 61;                        // days, odd
  std::int64_t max_bytes = std::int64_t{1} << 30;  // of sums in memory; the result does not depend on it
  int threads = 0;                                 // 0: as many as the machine has cores
};

// The bytes of the file that write_climatology makes of these data.
std::uintmax_t climatology_bytes(const FieldSeries& data);

// Writes the climatology of the steps of the data's range to an HDF5 file that netCDF and xarray read: a variable a
// channel, fp32 on the axes `hour`, `calendar_day` or `dayofyear` (from 1), `latitude` and `longitude`. The sums are
// taken in fp64, in the order of the steps, whatever the number of threads. Returns a sentence about days without data,
// "" if there are none. The file is complete or does not exist.
//
// Error naming a file if the data have no times, latitudes or longitudes, or hours of day that are no whole hours.
std::string write_climatology(const FieldSeries& data, const std::string& path, const ClimatologyOptions& options);

}  // namespace isobar
