// Config keys (engine/keys.h) in JSON: how each kind of value is read, written and described.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/keys.h"

namespace isobar {

// Sets the key's member. Returns false if the JSON does not fit; the member's value is then unspecified.
bool read_value(const Key& key, const nlohmann::json& json);
nlohmann::json write_value(const Key& key);
// Completes the sentence "must be ...": "an integer, or null".
std::string expected_value(const Key& key);

}  // namespace isobar
