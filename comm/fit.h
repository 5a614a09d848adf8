// Checks that the calls of a group's ranks match.
#pragma once

#include <string>
#include <vector>

#include "comm/call.h"

namespace isobar {

// The first mismatch as a sentence; empty if there is none. members: the ranks' numbers in the world, for the sentence.
// what: names the call, "call 17 of group tp".
std::string find_mismatch(const std::vector<const Call*>& calls, const std::vector<int>& members,
                          const std::string& what);

}  // namespace isobar
