// Whether the calls that the ranks of a group come with fit together.
#pragma once

#include <string>
#include <vector>

#include "comm/call.h"

namespace isobar {

// The first thing that does not fit, or nothing. members: the ranks' numbers in the world, as messages name them. what:
// names the call, "call 17 of group tp".
std::string misfit(const std::vector<const Call*>& calls, const std::vector<int>& members, const std::string& what);

}  // namespace isobar
