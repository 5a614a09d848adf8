#include "data/fields/log_scale.h"

#include <cmath>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr const char* kPrefix = "log1p(";

}  // namespace

void to_log_scale(std::span<float> values, double scale) {
  for (float& value : values) value = static_cast<float>(std::log1p(static_cast<double>(value) / scale));
}

void from_log_scale(std::span<float> values, double scale) {
  for (float& value : values) value = static_cast<float>(scale * std::expm1(static_cast<double>(value)));
}

std::string log_scale_unit(const std::string& unit, double scale) {
  return concat(kPrefix, unit.empty() ? "?" : unit, " / ", scale, ")");
}

std::string unit_of_log_scale(const std::string& unit) {
  const std::size_t slash = unit.rfind(" / ");
  if (!unit.starts_with(kPrefix) || slash == std::string::npos) return unit;
  const std::size_t begin = std::string(kPrefix).size();
  const std::string original = unit.substr(begin, slash - begin);
  return original == "?" ? "" : original;
}

}  // namespace isobar
