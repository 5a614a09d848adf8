// A call as numbers, which other ranks compare with their own call (ISOBAR_COMM_CHECK). The numbers received may be
// anything: a rank without the check sends its elements instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/call.h"

namespace isobar {

// For a given number of ranks, the length is the same for every call.
std::vector<std::int64_t> numbers_of(const Call& call, int ranks);

// The reverse. The counts of the result point into `numbers`. rank: the sender, for the sentence. Throws Error if the
// numbers are no call: verb, type, ranks and counts of the result are within what the verb allows.
Call call_in(std::span<const std::int64_t> numbers, int ranks, int rank);

}  // namespace isobar
