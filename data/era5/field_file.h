// One file of fields: the dataset `fields` [T, C, H, W], read as fp32, and what is stored beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/era5/calendar.h"
#include "data/era5/hdf5.h"
#include "data/era5/step_reader.h"
#include "data/era5/time_axis.h"

namespace isobar {

class FieldFile {
 public:
  // Opens the file and checks it as far as that is possible without knowing what is wanted of it.
  FieldFile(const std::string& path, CacheBudget budget);
  FieldFile(const FieldFile&) = delete;  // the reader refers to the file
  FieldFile& operator=(const FieldFile&) = delete;

  const std::string& path() const { return file_.path(); }
  std::int64_t steps() const { return info_.shape[0]; }
  std::int64_t channels() const { return info_.shape[1]; }
  std::int64_t height() const { return info_.shape[2]; }
  std::int64_t width() const { return info_.shape[3]; }
  const hdf5::DatasetInfo& info() const { return info_; }
  const char* how_it_is_read() const { return reader_->name(); }

  // What is beside the fields; empty where it is not.
  const std::vector<std::string>& channel_names() const { return channel_names_; }
  const std::vector<double>& latitudes() const { return latitudes_; }    // [H], degrees
  const std::vector<double>& longitudes() const { return longitudes_; }  // [W], degrees
  const std::vector<std::string>& units() const { return units_; }       // [C], "" where one is not said
  const std::optional<TimeAxis>& time() const { return time_; }
  const std::vector<float>& fill_values() const { return fill_values_; }  // _FillValue and missing_value of `fields`

  // From `time`, else the steps are spread evenly over the year at the end of the file's name; an error if there is
  // none.
  StepTime time_of(std::int64_t step) const;
  // Whether that is when the steps are: there is `time`, or the file has as many steps as the year may have (a step
  // every day, or every 6, 3 hours or every hour).
  bool tells_time() const;

  // [C, crop.height, crop.width]. A hole is an error that names file, step and channel: NaN, an infinity, a value
  // beyond 1e15 (no field has such values, and fill values are), and what `fields` calls _FillValue or missing_value.
  // Thread-safe.
  void read_step(std::int64_t step, Crop crop, float* out) const;

 private:
  std::vector<double> read_axis(const std::string& name, const std::string& long_name, std::int64_t length) const;
  void read_channel_names();
  void read_units();
  void read_time();
  void read_fill_values();
  bool is_hole(float value) const;
  bool has_holes(std::span<const float> values) const;

  hdf5::File file_;
  hdf5::DatasetInfo info_;
  std::unique_ptr<StepReader> reader_;
  std::vector<std::string> channel_names_;
  std::vector<std::string> units_;
  std::vector<double> latitudes_, longitudes_;
  std::optional<TimeAxis> time_;
  std::optional<std::int64_t> year_;
  std::vector<float> fill_values_;
};

}  // namespace isobar
