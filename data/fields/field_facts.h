// The facts of a file of fields: all information that is needed before its first step is read. Reading them opens the
// file; a process that receives them need not open the file before it reads a step.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/files/hdf5.h"

namespace isobar {

// The name of the dataset that holds the fields.
inline constexpr const char* kFields = "fields";

// Max absolute value of a field; fill values are larger: 9.96921e36, 1e20.
inline constexpr float kLargestOfFields = 1e15F;

// The dataset `time`, as stored.
struct TimeFacts {
  std::vector<double> values;   // [steps]
  std::string units, calendar;  // "hours since 1900-01-01"; calendar "": not given
  bool single_precision = false;

  bool operator==(const TimeFacts&) const = default;
};

// A list is empty if the file does not have it.
struct FieldFacts {
  std::array<std::int64_t, 4> shape{};        // of `fields`: steps, V, LAT, LON
  std::vector<std::string> channel_names;     // [V]
  std::vector<std::string> units;             // [V], "" if one is not given
  std::vector<double> latitudes, longitudes;  // [LAT], [LON], degrees
  std::optional<TimeFacts> time;              // none: there is no `time` with units
  std::vector<float> fill_values;             // _FillValue and missing_value of `fields`
  std::vector<std::string> left_out;          // sentences: why a variable on the grid is no channel
  bool has_expver = false;                    // data/fields/experiments.h

  bool operator==(const FieldFacts&) const = default;
};

// Error if fields of this shape are larger than isobar reads.
void check_extents(const std::array<std::int64_t, 4>& shape, const std::string& where);
// Error if a latitude is not on the globe.
void check_latitudes(const std::vector<double>& latitudes, const std::string& where);

// The stored form of `fields`. Error if there is none, or if this program cannot read it.
hdf5::DatasetInfo info_of_fields(const hdf5::File& file);

// info: the result of info_of_fields. Error for lists that do not match the fields or contain NaN.
FieldFacts read_facts(const hdf5::File& file, const hdf5::DatasetInfo& info);

nlohmann::json to_json(const FieldFacts& facts);
// The inverse of to_json; throws a JSON exception for any other JSON.
FieldFacts facts_from_json(const nlohmann::json& json);

}  // namespace isobar
