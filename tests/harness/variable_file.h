// Files of named variables for tests, NetCDF-4 as HDF5 writes it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"

namespace isobar::testing {

struct VariableFile {
  explicit VariableFile(const std::string& path) : file(hdf5::File::create(path)) {}

  void axis(const std::string& name, const std::vector<double>& values, const std::string& units) {
    file.write(name, std::array{static_cast<std::int64_t>(values.size())}, std::span<const double>(values));
    if (!units.empty()) file.write_attribute(name, "units", units);
    extents[name] = static_cast<std::int64_t>(values.size());
  }
  // A variable on these axes; value(place) gets the position on each axis by its name.
  template <class Value>
  void variable(const std::string& name, const std::vector<std::string>& axes, const Value& value,
                bool is_integer = false) {
    std::vector<std::int64_t> shape;
    for (const std::string& axis : axes) shape.push_back(extents.at(axis));
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) {
      std::map<std::string, int> place;
      std::int64_t rest = i;
      for (std::size_t a = axes.size(); a-- > 0; rest /= shape[a]) place[axes[a]] = static_cast<int>(rest % shape[a]);
      values.push_back(value(place));
    }
    if (is_integer) {
      std::vector<std::int64_t> whole(values.begin(), values.end());
      file.write(name, shape, std::span<const std::int64_t>(whole));
    } else {
      file.write(name, shape, std::span<const float>(std::vector<float>(values.begin(), values.end())));
    }
    file.write_dimensions(name, axes);
  }

  hdf5::File file;
  std::map<std::string, std::int64_t> extents;
};

}  // namespace isobar::testing
