// Reads the numbers of state.json, with the checks that any input gets.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>

namespace isobar {

// The number under `key`; Error naming the key if it is missing, of another type, not finite or out of [least, most].
std::int64_t whole_number_in(const nlohmann::ordered_json& object, const char* key, std::int64_t min,
                             std::int64_t max = std::numeric_limits<std::int64_t>::max());
double number_in(const nlohmann::ordered_json& object, const char* key, double min,
                 double max = std::numeric_limits<double>::max());

}  // namespace isobar
