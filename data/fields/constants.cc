#include "data/fields/constants.h"

#include <algorithm>
#include <cmath>

#include "data/fields/latitude.h"
#include "data/fields/variable_fields.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Whether an axis begins with the (cropped) axis of a series; unknown axes agree with all.
bool begins_with(const std::vector<double>& axis, const std::vector<double>& wanted) {
  constexpr double kSameDegrees = 1e-4;
  if (axis.empty() || wanted.empty()) return true;
  return axis.size() >= wanted.size() &&
         std::ranges::equal(wanted, std::span(axis).first(wanted.size()),
                            [](double a, double b) { return std::abs(a - b) < kSameDegrees; });
}

void set_moments(ConstantField& field, const FieldSeries& series, const std::string& where) {
  const std::vector<double> row_weights = latitude_weights(series);
  double weight = 0, sum = 0, squares = 0;
  const auto visit = [&](auto add) {
    for (std::size_t i = 0; i < field.values.size(); ++i)
      add(row_weights[i / static_cast<std::size_t>(series.width())], static_cast<double>(field.values[i]));
  };
  visit([&](double w, double value) { weight += w, sum += w * value; });
  field.mean = sum / weight;
  visit([&](double w, double value) { squares += w * (value - field.mean) * (value - field.mean); });
  field.deviation = std::sqrt(squares / weight);
  const auto [least, most] = std::ranges::minmax(field.values);
  ISOBAR_CHECK(least < most, where, " is the same everywhere: a network can learn nothing from it");
}

}  // namespace

std::vector<ConstantField> read_constants(const TextMap& places, const FieldSeries& series) {
  std::vector<ConstantField> fields;
  for (const auto& [name, place] : places) {
    const std::size_t colon = place.rfind(':');
    ISOBAR_CHECK(colon != std::string::npos, "the constant ", name, " is at '", place, "'; expected FILE:VARIABLE");
    const std::string file = place.substr(0, colon), where = concat("the constant ", name, " of ", file);
    const ConstantPlane plane = read_constant_plane(*open_stored_arrays(file), place.substr(colon + 1));
    ISOBAR_CHECK(plane.height >= series.height() && plane.width >= series.width() &&
                     begins_with(plane.latitudes, series.latitudes()) &&
                     begins_with(plane.longitudes, series.longitudes()),
                 where, " has a grid of ", plane.height, " x ", plane.width, " points that are not those of ",
                 series.file_name(0));
    ConstantField& field = fields.emplace_back();
    field.name = name;
    field.units = plane.units;
    for (std::int64_t row = 0; row < series.height(); ++row) {
      const auto begin = plane.values.begin() + row * plane.width;
      field.values.insert(field.values.end(), begin, begin + series.width());
    }
    ISOBAR_CHECK(std::ranges::none_of(field.values, [](float value) { return std::isnan(value); }), where,
                 " has missing points");
    set_moments(field, series, where);
  }
  return fields;
}

}  // namespace isobar
