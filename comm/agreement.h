// Checks that all ranks see the same, such as the data at a path: each host may have a disk of its own there.
#pragma once

#include <span>
#include <string>

#include "comm/communicator.h"

namespace isobar {

// One thing that a rank has found: its name, "statistics of the data", and a value that identifies it.
struct Finding {
  std::string what, value;
};

// Throws Error on all ranks if a finding of some rank differs from rank 0's; the error names the first such finding and
// rank. All ranks pass the same findings in the same order. Only hashes are sent.
void check_agreement(const Communicator& world, std::span<const Finding> findings);

}  // namespace isobar
