#include "data/fields/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// The numbers of an attribute; empty if there is none. Error if they are not `count` finite numbers, or are a text.
std::vector<double> numbers_of(const ArrayInfo& array, const std::string& name, std::size_t count,
                               const std::string& where) {
  const auto found = array.attributes.find(name);
  if (found == array.attributes.end()) return {};
  const std::vector<double>& numbers = found->second.numbers;
  ISOBAR_CHECK(numbers.size() == count, where, ": the attribute '", name, "' should hold ", count,
               count == 1 ? " number" : " numbers");
  return numbers;
}

std::optional<double> number_of(const ArrayInfo& array, const std::string& name, const std::string& where) {
  const std::vector<double> numbers = numbers_of(array, name, 1, where);
  return numbers.empty() ? std::nullopt : std::optional(numbers.front());
}

}  // namespace

Packing packing_of(const ArrayInfo& array, const std::string& where) {
  Packing packing;
  packing.scale = number_of(array, "scale_factor", where).value_or(1);
  packing.offset = number_of(array, "add_offset", where).value_or(0);
  ISOBAR_CHECK(std::isfinite(packing.scale) && packing.scale != 0 && std::isfinite(packing.offset), where,
               ": its numbers are packed with a scale of ", packing.scale, " and an offset of ", packing.offset);
  for (const char* name : {"_FillValue", "missing_value"}) {
    const auto found = array.attributes.find(name);
    if (found == array.attributes.end()) continue;
    for (const double fill : found->second.numbers)
      if (!std::isnan(fill)) packing.fills.push_back(fill);  // NaN is missing in any case
  }
  packing.smallest = number_of(array, "valid_min", where);
  packing.largest = number_of(array, "valid_max", where);
  if (const std::vector<double> range = numbers_of(array, "valid_range", 2, where); !range.empty()) {
    packing.smallest = range[0];
    packing.largest = range[1];
  }
  const auto is_unsigned = array.attributes.find("_Unsigned");
  const bool wraps = is_unsigned != array.attributes.end() && is_unsigned->second.texts.size() == 1 &&
                     is_unsigned->second.texts.front() == "true";
  if (wraps && array.format && array.format->kind == NumberFormat::Kind::signed_integer)
    packing.unsigned_wrap = std::exp2(8.0 * static_cast<double>(array.format->bytes));
  return packing;
}

// Compiled without fused multiply-add (data/CMakeLists.txt): the product is rounded before the sum, as numpy does.
void unpack(const Packing& packing, std::span<const double> stored, std::int64_t stride, float* out) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double smallest = packing.smallest.value_or(-kInfinity), largest = packing.largest.value_or(kInfinity);
  for (double value : stored) {
    bool is_missing = false;
    for (const double fill : packing.fills) is_missing |= value == fill;
    if (value < 0) value += packing.unsigned_wrap;
    is_missing |= value < smallest || value > largest;
    *out = is_missing ? std::numeric_limits<float>::quiet_NaN()
                      : static_cast<float>(value * packing.scale + packing.offset);
    out += stride;
  }
}

void mark_missing(const Packing& packing, std::span<float> values) {
  for (const double fill : packing.fills)
    std::ranges::replace(values, static_cast<float>(fill), std::numeric_limits<float>::quiet_NaN());
}

}  // namespace isobar
