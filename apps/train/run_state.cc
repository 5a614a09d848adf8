#include "apps/train/run_state.h"

#include <nlohmann/json.hpp>

#include "kernels/common/check.h"

namespace isobar {
namespace {

using nlohmann::ordered_json;

template <class T>
T bounded(const ordered_json& value, const char* key, bool is_kind, T min, T max) {
  ISOBAR_CHECK(is_kind, key, " is ", value.dump(), ", which is no number of this kind");
  const T number = value.get<T>();
  ISOBAR_CHECK(number >= min && number <= max, key, " is ", value.dump(), ", which is not from ", min, " to ", max);
  return number;
}

const ordered_json& value_of(const ordered_json& object, const char* key) {
  ISOBAR_CHECK(object.is_object() && object.contains(key), key, " is missing");
  return object.at(key);
}

}  // namespace

std::int64_t whole_number_in(const ordered_json& object, const char* key, std::int64_t min, std::int64_t max) {
  const ordered_json& value = value_of(object, key);
  return bounded<std::int64_t>(value, key, value.is_number_integer(), min, max);
}

double number_in(const ordered_json& object, const char* key, double min, double max) {
  const ordered_json& value = value_of(object, key);
  return bounded<double>(value, key, value.is_number(), min, max);
}

}  // namespace isobar
