// Fields that are stored as named variables: NetCDF-3, NetCDF-4 and other HDF5 files with named dimensions, Zarr.
//
// A variable on latitudes and longitudes is a channel; one with levels of pressure is a channel a level, `u850`. Names
// are ECMWF's where they are known (data/fields/channels.h). Rows are turned north to south, and axes may lie in any
// order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_reader.h"
#include "data/files/stored_arrays.h"

namespace isobar {

// The channels are those variables that change with time, all on the same steps and the same grid; FieldFacts::left_out
// names the others. Error naming the file if there are none.
OpenedFields open_variable_fields(std::shared_ptr<const StoredArrays> arrays, const CacheBudget& budget);

// One plane that does not change with time, [rows, columns] of the whole grid, north to south: a variable without a
// time axis, or one whose first and last step are equal. NaN where it is missing.
struct ConstantPlane {
  std::vector<float> values;
  std::int64_t height = 0, width = 0;
  std::vector<double> latitudes, longitudes;  // degrees; empty if the file does not give them
  std::string units;
};
ConstantPlane read_constant_plane(const StoredArrays& arrays, const std::string& variable);

}  // namespace isobar
