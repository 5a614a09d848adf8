// What a table of config keys says of each key, for tests that compare it.
#pragma once

#include <string>
#include <vector>

#include "engine/keys.h"

namespace isobar::testing {

// "name; at least 1; path; free on resume; older runs: true; also: a, b; yaml: c", of each key in order.
inline std::vector<std::string> key_facts(const KeyTable& table) {
  const auto list_of = [](const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return list;
  };
  std::vector<std::string> facts;
  for (const Key& key : table.keys) {
    std::string text = key.name;
    if (const std::string bounds = bounds_text(key); !bounds.empty()) text += "; " + bounds;
    if (key.is_path) text += "; path";
    if (key.may_change_on_resume) text += "; free on resume";
    if (!key.older_value.empty()) text += "; older runs: " + key.older_value;
    if (!key.other_names.empty()) text += "; also: " + list_of(key.other_names);
    if (!key.yaml_names.empty()) text += "; yaml: " + list_of(key.yaml_names);
    facts.push_back(text);
  }
  return facts;
}

}  // namespace isobar::testing
