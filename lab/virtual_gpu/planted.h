// The fault of lab/virtual_gpu/planted_faults.py that this process has.
#pragma once

#include <cstdlib>
#include <string_view>

inline bool planted(std::string_view name) {
  const char* chosen = std::getenv("ISOBAR_PLANTED_FAULT");
  return chosen != nullptr && name == chosen;
}
