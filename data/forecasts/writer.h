// Files of forecasts. A forecast is a field for each start, lead and channel; it is written as it is computed, in any
// order, and the file has its name when it is complete: a writer that is killed leaves what was there before.
//
//   .nc    NetCDF-4 (HDF5) with the CF conventions   } prediction of every channel in a variable of its own,
//   .zarr  a Zarr store, version 2                   } [time, prediction_timedelta, latitude, longitude]
//   other  HDF5 of the first start alone: `fields` [lead, channel, lat, lon]
//
// docs/forecasting.md describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace isobar {

// What is forecast, and what is known of it. An unknown text is "", an unknown list is empty.
struct ForecastContents {
  std::vector<std::string> channels;  // [V]
  std::vector<std::string> units;     // [V], or empty
  std::int64_t starts = 1;            // S
  std::vector<std::int64_t> leads;    // [K] steps of the data after a start
  std::vector<double> start_hours;    // [S] hours since 1970-01-01T00 UTC
  double step_hours = 0;              // of a step of the data; 0: unknown
  // Whether the data store their times, instead of a year in the name of a file alone.
  bool times_are_stored = true;
  std::int64_t height = 0, width = 0;         // LAT, LON
  std::vector<double> latitudes, longitudes;  // [LAT], [LON] degrees
  std::string source, history;                // for the attributes of the file
};

struct ForecastFormat {
  bool compress = false;    // .nc and .zarr: deflate, level 1, after a byte shuffle
  bool long_names = false;  // .nc and .zarr: the names of WeatherBench 2, and an axis `level` for those with a level
};

class ForecastWriter {
 public:
  virtual ~ForecastWriter() = default;

  // The fields [V, LAT, LON] of a start and a lead, by their numbers in ForecastContents; NaN is a missing point. Each
  // once, in any order. Of a format with one start, those of others are left out.
  virtual void put(std::int64_t start, std::int64_t lead, std::span<const float> fields) = 0;
  // Completes the file and gives it its name; call it last, and once.
  virtual void close() = 0;
};

// Whether a file of this name is one of named variables: .nc or .zarr.
bool holds_variables(const std::filesystem::path& path);
// Whether what exists under this name may be replaced: nothing or a file; of .zarr, a store that this writer made.
// Throws the Error else.
void check_replaceable(const std::filesystem::path& path);

// The writer for the suffix of `path`. Error if the contents do not fit the format: unknown times, a channel whose name
// cannot be a variable's; format options of a format without them; a disk that is too small.
std::unique_ptr<ForecastWriter> make_forecast_writer(const std::filesystem::path& path,
                                                     const ForecastContents& contents,
                                                     const ForecastFormat& format = {});

}  // namespace isobar
