// Ranks as threads of one process, on the CPU or on one GPU: for tests, laptops and teaching.
//
// Sums are made in rank order, element by element, so that results depend on the number of ranks alone (but for
// `turns_sums`). Waiting ranks sleep: eight of them share two cores.
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace isobar {

struct ThreadRanks {
  int ranks = 1;
  int threads_per_rank = 1;      // of the kernels (OpenMP)
  double timeout_seconds = 600;  // that a rank waits for the others in a call
  // For tests: sums begin at a rank that the group's members decide, as a network's ring may begin anywhere. Groups of
  // different ranks then round the same numbers differently.
  bool turns_sums = false;
};

// Calls `body` on every rank with its world, rank 0 in the thread of the caller. Returns when all have returned. Where
// one throws, the others are woken wherever they wait, and the first error is thrown again with "rank R: " before its
// sentence (an Error; any other exception as it is).
void run_ranks(const ThreadRanks& options, const std::function<void(const Communicator& world)>& body);

}  // namespace isobar
