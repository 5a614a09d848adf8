// Config keys (engine/keys.h) as JSON: how each kind of value is read, written and described.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/keys.h"

namespace isobar {

// Sets the key's member; false, with the member as it may be, where the JSON does not fit.
bool read_value(const Key& key, const nlohmann::json& json);
nlohmann::json write_value(const Key& key);
// Completes "must be ...": "an integer, or null".
std::string expected_value(const Key& key);

}  // namespace isobar
