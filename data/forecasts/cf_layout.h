// How forecasts lie in files of named variables, by the CF conventions 1.8: axes, variables and their attributes, the
// same for NetCDF and Zarr.
//
//   time                  the starts, hours since 1970-01-01 UTC
//   prediction_timedelta  the leads, hours. Its attribute dtype = "timedelta64[ns]" makes xarray read time spans
//   level                 hPa, with the names of WeatherBench 2 alone
//   latitude, longitude   degrees, in the order of the data; `row` and `column` if the data have none
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/forecasts/writer.h"

namespace isobar {

using CfAttributes = std::vector<std::pair<std::string, std::string>>;

// A coordinate: a variable of one dimension with its own name.
struct CfAxis {
  std::string name;
  std::vector<double> values;
  CfAttributes attributes;
  bool are_whole = false;  // stored as 32-bit integers, else as fp64
};

struct CfVariable {
  std::string name;
  bool has_levels = false;
  std::vector<std::int64_t> channels;  // the channel of each level, -1: none; or the only one
  CfAttributes attributes;

  bool is_complete() const;  // whether every level has a channel
};

struct CfLayout {
  std::vector<CfAxis> axes;  // time, prediction_timedelta, [level,] rows, columns
  std::vector<CfVariable> variables;
  CfAttributes attributes;  // of the file

  // Of a variable: the names of its axes, and its shape.
  std::vector<std::string> dimensions(const CfVariable& variable) const;
  std::vector<std::int64_t> shape(const CfVariable& variable) const;
  // The box of one field: where it begins, and its extents, 1 but for rows and columns. level: 0 without levels.
  std::vector<std::int64_t> place(const CfVariable& variable, std::int64_t start, std::int64_t lead,
                                  std::int64_t level) const;
  std::vector<std::int64_t> extents(const CfVariable& variable) const;
};

// Error that begins with `path`: see make_forecast_writer.
CfLayout cf_layout(const std::string& path, const ForecastContents& contents, bool long_names);

}  // namespace isobar
