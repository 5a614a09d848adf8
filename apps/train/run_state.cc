#include "apps/train/run_state.h"

#include <nlohmann/json.hpp>

#include "kernels/common/check.h"

namespace isobar {
namespace {

using nlohmann::ordered_json;

template <class T>
T bounded(const ordered_json& value, const char* key, bool is_kind, T least, T most) {
  ISOBAR_CHECK(is_kind, key, " is ", value.dump(), ", which is no number of this kind");
  const T number = value.get<T>();
  ISOBAR_CHECK(number >= least && number <= most, key, " is ", value.dump(), ", which is not from ", least, " to ",
               most);
  return number;
}

const ordered_json& value_of(const ordered_json& object, const char* key) {
  ISOBAR_CHECK(object.is_object() && object.contains(key), key, " is missing");
  return object.at(key);
}

}  // namespace

std::int64_t whole_number_in(const ordered_json& object, const char* key, std::int64_t least, std::int64_t most) {
  const ordered_json& value = value_of(object, key);
  return bounded<std::int64_t>(value, key, value.is_number_integer(), least, most);
}

double number_in(const ordered_json& object, const char* key, double least, double most) {
  const ordered_json& value = value_of(object, key);
  return bounded<double>(value, key, value.is_number(), least, most);
}

}  // namespace isobar
