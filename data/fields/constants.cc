#include "data/fields/constants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>

#include "data/fields/latitude.h"
#include "data/fields/variable_fields.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// The file of "FILE:VARIABLE".
std::string file_of(const std::string& place) {
  return place.substr(0, place.rfind(':'));
}

// Whether an axis begins with the (cropped) axis of a series; unknown axes agree with all.
bool begins_with(const std::vector<double>& axis, const std::vector<double>& wanted) {
  constexpr double kSameDegrees = 1e-4;
  if (axis.empty() || wanted.empty()) return true;
  return axis.size() >= wanted.size() &&
         std::ranges::equal(wanted, std::span(axis).first(wanted.size()),
                            [](double a, double b) { return std::abs(a - b) < kSameDegrees; });
}

bool is_same_axis(const std::vector<double>& a, const std::vector<double>& b) {
  return a.empty() || b.empty() || (a.size() == b.size() && begins_with(a, b));
}

bool has_same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
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
    const std::string file = file_of(place), where = concat("the constant ", name, " of ", file);
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

std::vector<ConstantField> read_constants(const TextMap& places, const FieldSeries& series,
                                          const CarriedConstants& carried) {
  if (carried.fields.empty() || !is_same_axis(carried.latitudes, series.latitudes()) ||
      !is_same_axis(carried.longitudes, series.longitudes()))
    return read_constants(places, series);
  TextMap existing;
  for (const auto& [name, place] : places)
    if (std::filesystem::exists(file_of(place))) existing[name] = place;
  check_carried(read_constants(existing, series), places, carried);
  return carried.fields;
}

void check_carried(const std::vector<ConstantField>& fields, const TextMap& places, const CarriedConstants& carried) {
  for (const ConstantField& field : fields) {
    const auto same = std::ranges::find(carried.fields, field.name, &ConstantField::name);
    if (same == carried.fields.end()) continue;
    const auto [here, there] = std::ranges::mismatch(field.values, same->values, has_same_bits);
    if (here == field.values.end() && there == same->values.end()) continue;
    ISOBAR_CHECK(field.values.size() == same->values.size(), "the constant ", field.name, " of ",
                 file_of(places.at(field.name)), " has ", field.values.size(), " points, and ", same->values.size(),
                 " in ", carried.weights);
    throw_error("the constant ", field.name, " of ", file_of(places.at(field.name)), " is not the one that ",
                carried.weights, " was trained with: value ", here - field.values.begin(), " is ", *here, ", and was ",
                *there);
  }
}

}  // namespace isobar
