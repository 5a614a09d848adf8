// The numbers of state.json, read as strictly as any input.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>

namespace isobar {

// The number under `key`; Error naming the key where it is missing, of another kind, not finite or out of [least,
// most].
std::int64_t whole_number_in(const nlohmann::ordered_json& object, const char* key, std::int64_t least,
                             std::int64_t most = std::numeric_limits<std::int64_t>::max());
double number_in(const nlohmann::ordered_json& object, const char* key, double least,
                 double most = std::numeric_limits<double>::max());

}  // namespace isobar
