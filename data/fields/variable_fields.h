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

// Variables whose planes have two numbers instead of a step: a forecast's start and lead time, a climatology's day and
// hour.
enum class FieldPlan : std::uint8_t { steps, forecasts, climatology };

// The coordinate of an axis, as it is stored.
struct FieldCoordinate {
  std::string name = {};  // of the axis; empty: there is no such axis and no scalar in its place
  TimeFacts values = {};  // units "": not given
};

// A step of the reader, and of facts.shape, is outer · (number of inner values) + inner.
struct OpenedPlanes {
  OpenedFields fields;
  FieldCoordinate outer, inner;  // time and lead; or day and hour
};

// The same for variables on two such axes, or on one where the other is a scalar: a file of one start has often no axis
// of it. FieldFacts::time is not set. Error naming the file if it holds no variable of that kind.
OpenedPlanes open_variable_planes(std::shared_ptr<const StoredArrays> arrays, FieldPlan plan,
                                  const CacheBudget& budget);

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
