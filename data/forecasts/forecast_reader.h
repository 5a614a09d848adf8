// Reads forecasts, ours or anyone's: fields by start and lead time.
//
// - Named variables on the axes time (the start), prediction_timedelta (or step, lead_time, ...), latitude, longitude
//   and maybe level, in any order: NetCDF, HDF5 with dimensions, Zarr. One start or one lead time may be a scalar. A
//   level is a part of a channel's name, as in data (data/fields/variable_fields.h).
// - The .h5 files of `isobar forecast`: `fields` [lead, channel, LAT, LON] of one start, with `lead`, in steps of the
//   data, and the valid times as `time`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_reader.h"
#include "data/forecasts/grid_match.h"

namespace isobar {

class ForecastReader {
 public:
  // data_step_hours: the time from a step of the data to the next, for .h5 files of one lead time, whose lead is told
  // in steps only. Error naming the file if it has no dates, no lead times, or none that are not negative.
  ForecastReader(const std::string& path, double data_step_hours);
  ~ForecastReader();
  ForecastReader(ForecastReader&&) noexcept;

  const std::string& path() const { return grid_.source; }
  const std::vector<double>& starts() const { return starts_; }          // hours since 1970-01-01T00
  const std::vector<double>& lead_hours() const { return lead_hours_; }  // as stored: in any order
  const std::vector<std::string>& channels() const { return channels_; }
  const std::vector<std::string>& units() const { return units_; }  // [channels], "" if one is not given
  const FieldGrid& grid() const { return grid_; }

  // The field of a channel for the time starts()[start] + lead_hours()[lead]: [LAT, LON]. Missing points are NaN, as
  // are fill values and values beyond kLargestOfFields. Error naming file, start, lead and channel for an infinity.
  // Thread-safe.
  void read(std::size_t start, std::size_t lead, std::size_t channel, float* out) const;

 private:
  void open_fields_file(double data_step_hours);
  void open_variables();
  void set_facts(const FieldFacts& facts);

  std::unique_ptr<FieldReader> reader_;
  std::vector<double> starts_, lead_hours_;
  std::vector<std::string> channels_, units_;
  std::vector<float> fill_values_;
  FieldGrid grid_;
};

}  // namespace isobar
