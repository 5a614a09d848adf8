// A call as numbers, for other ranks to compare with theirs (ISOBAR_COMM_CHECK). What comes may be anything: where one
// rank compares and another one does not, its elements come instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/call.h"

namespace isobar {

// As many for every call among so many ranks.
std::vector<std::int64_t> numbers_of(const Call& call, int ranks);

// The call, whose counts lie in `numbers`. `rank` is where they come from, for the sentence. Throws Error for what is
// no call: no verb, type, rank or count of the result is outside of what the verb allows.
Call call_in(std::span<const std::int64_t> numbers, int ranks, int rank);

}  // namespace isobar
