// How numbers are packed in a variable, by the attributes of the NetCDF conventions: scale and offset, fill values,
// valid range.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/array_info.h"

namespace isobar {

struct Packing {
  double scale = 1, offset = 0;
  // As stored: they are compared before unpacking. `_FillValue` and `missing_value`.
  std::vector<double> fills = {};
  std::optional<double> smallest = {}, largest = {};  // valid_min, valid_max, valid_range, as stored
  double unsigned_wrap = 0;  // added to negative numbers: attribute _Unsigned = "true" of signed integers

  bool is_plain() const { return scale == 1 && offset == 0 && !smallest && !largest && unsigned_wrap == 0; }
};

// Error naming `where` for an attribute that is no number, or a list.
Packing packing_of(const ArrayInfo& array, const std::string& where);

// Writes stored·scale + offset to out[0], out[stride], ...: in fp64, rounded after each of the two operations and then
// to fp32. NaN where a value is missing.
void unpack(const Packing& packing, std::span<const double> stored, std::int64_t stride, float* out);

// Replaces fill values of fields that are stored as they are (Packing::is_plain) by NaN.
void mark_missing(const Packing& packing, std::span<float> values);

}  // namespace isobar
