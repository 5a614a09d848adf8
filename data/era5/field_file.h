// One file of fields: the dataset `fields` [T, C, H, W] of fp32, and what is stored beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

  // From `time`, else from the year in the last four characters of the file's name; an error if there is none.
  StepTime time_of(std::int64_t step) const;

  // [C, crop.height, crop.width]. A value that is not finite is an error that names file, step and channel.
  // Thread-safe.
  void read_step(std::int64_t step, Crop crop, float* out) const;

 private:
  std::vector<double> read_axis(const std::string& name, const std::string& long_name, std::int64_t length) const;
  void read_channel_names();
  void read_units();
  void read_time();

  hdf5::File file_;
  hdf5::DatasetInfo info_;
  std::unique_ptr<StepReader> reader_;
  std::vector<std::string> channel_names_;
  std::vector<std::string> units_;
  std::vector<double> latitudes_, longitudes_;
  std::optional<TimeAxis> time_;
  std::optional<std::int64_t> year_;
};

}  // namespace isobar
