// Whether ranks see the same: data behind a path, for one, which may lie on disks of their own hosts.
#pragma once

#include <span>
#include <string>

#include "comm/communicator.h"

namespace isobar {

// What a rank has found out: "statistics of the data", and what stands for them.
struct Finding {
  std::string what, value;
};

// Throws Error on all ranks where one has found something else than rank 0, with the first such rank and finding. All
// give the same findings, in one order. Only hashes travel.
void check_agreement(const Communicator& world, std::span<const Finding> findings);

}  // namespace isobar
