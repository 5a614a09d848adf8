// Ranks as threads of one process, on the CPU or on one GPU: for tests, laptops and teaching.
//
// Sums are in rank order, element by element: results depend only on the number of ranks (except with `turns_sums`).
// Waiting ranks sleep: eight of them can share two cores.
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace isobar {

struct ThreadRanks {
  int ranks = 1;
  int threads_per_rank = 1;      // of the kernels (OpenMP)
  double timeout_seconds = 600;  // for which a rank waits for the others in a call
  // For tests: each group's sums begin at a rank chosen by its members, as the ring of a network may begin anywhere.
  // Different groups then round the same numbers differently.
  bool turns_sums = false;
};

// Calls `body` on every rank with its world, rank 0 in the caller's thread. Returns when all have returned. If one
// throws, the others are woken wherever they wait, and the first error is rethrown with "rank R: " before its sentence
// (an Error; any other exception is unchanged).
void run_ranks(const ThreadRanks& options, const std::function<void(const Communicator& world)>& body);

}  // namespace isobar
