// What a file of fields says of itself: all that is asked of it before its first step is read. Reading this means
// opening the file; whoever has been given it need not open the file before it reads a step.
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

// A field's values are at most as large as this; fill values are larger: 9.96921e36, 1e20.
inline constexpr float kLargestOfFields = 1e15F;

// The dataset `time`, as it is stored.
struct TimeFacts {
  std::vector<double> values;   // [T]
  std::string units, calendar;  // "hours since 1900-01-01"; "" where no calendar is named
  bool single_precision = false;

  bool operator==(const TimeFacts&) const = default;
};

// Lists are empty where the file does not say it.
struct FieldFacts {
  std::array<std::int64_t, 4> shape{};        // of `fields`: T, C, H, W
  std::vector<std::string> channel_names;     // [C]
  std::vector<std::string> units;             // [C], "" where one is not said
  std::vector<double> latitudes, longitudes;  // [H], [W], degrees
  std::optional<TimeFacts> time;              // none: no `time` with units
  std::vector<float> fill_values;             // _FillValue and missing_value of `fields`

  bool operator==(const FieldFacts&) const = default;
};

// What the library says of `fields`. Error where there is none, or where this program cannot read it.
hdf5::DatasetInfo info_of_fields(const hdf5::File& file);

// info: as info_of_fields returns it. Error for lists that do not fit the fields, or that hold NaN.
FieldFacts read_facts(const hdf5::File& file, const hdf5::DatasetInfo& info);

nlohmann::json to_json(const FieldFacts& facts);
// Of what to_json has made; else a JSON exception.
FieldFacts facts_from_json(const nlohmann::json& json);

}  // namespace isobar
