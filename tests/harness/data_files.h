// Small data files for tests.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "tests/harness/temporary_folder.h"

namespace isobar::testing {

using FieldsShape = std::array<std::int64_t, 4>;  // [time steps, V, LAT, LON]

// Every value encodes its position: tag of the year, step, variable, row and column.
inline float field_value(float tag, std::int64_t t, std::int64_t c, std::int64_t h, std::int64_t w) {
  return tag + 100.0f * static_cast<float>(t) + 10.0f * static_cast<float>(c) + static_cast<float>(h) +
         0.01f * static_cast<float>(w);
}

inline std::vector<float> field_values(const FieldsShape& shape, float tag = 0) {
  std::vector<float> values;
  for (std::int64_t t = 0; t < shape[0]; ++t)
    for (std::int64_t c = 0; c < shape[1]; ++c)
      for (std::int64_t h = 0; h < shape[2]; ++h)
        for (std::int64_t w = 0; w < shape[3]; ++w) values.push_back(field_value(tag, t, c, h, w));
  return values;
}

inline void write_fields(const std::string& path, const FieldsShape& shape, const std::vector<float>& values,
                         const hdf5::Storage& storage = {}) {
  auto file = hdf5::File::create(path);
  file.write("fields", shape, std::span<const float>(values), storage);
  file.close();
}

inline void write_fields(const std::string& path, const FieldsShape& shape, float tag = 0,
                         const hdf5::Storage& storage = {}) {
  write_fields(path, shape, field_values(shape, tag), storage);
}

// Written beside the fields; empty members are not written.
struct Labels {
  std::vector<std::string> names = {}, units = {};  // [V]
  std::vector<double> hours = {};                   // [time steps], since 2001-01-01
  std::vector<double> latitudes = {};               // [LAT]
  std::vector<double> longitudes = {};              // [LON]
};

inline void write_labelled_fields(const std::string& path, const FieldsShape& shape, const Labels& labels,
                                  const std::vector<float>& values) {
  auto file = hdf5::File::create(path);
  file.write("fields", shape, std::span<const float>(values));
  if (!labels.names.empty()) file.write("channel", labels.names);
  if (!labels.units.empty()) file.write("units", labels.units);
  if (!labels.latitudes.empty()) file.write("lat", std::array{shape[2]}, std::span<const double>(labels.latitudes));
  if (!labels.longitudes.empty()) file.write("lon", std::array{shape[3]}, std::span<const double>(labels.longitudes));
  if (!labels.hours.empty()) {
    file.write("time", std::array{shape[0]}, std::span<const double>(labels.hours));
    file.write_attribute("time", "units", "hours since 2001-01-01 00:00:00");
  }
  file.close();
}

inline void write_labelled_fields(const std::string& path, const FieldsShape& shape, const Labels& labels) {
  write_labelled_fields(path, shape, labels, field_values(shape));
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace isobar::testing
