// The part of one rank in a run, from the opened data to the end of the loop (apps/train/run.h).
#pragma once

#include <cstdint>

#include "apps/train/dry_run.h"
#include "apps/train/opened_run.h"
#include "apps/train/run.h"
#include "comm/parallel.h"

namespace isobar {

// The progress of the first rank, for cleaning up after an error.
struct Outcome {
  bool prepared = false;  // the folder belongs to this run
  std::int64_t iterations = 0;
  TrainingRun::End end = TrainingRun::End::finished;
};

// Every rank calls it, with its device and its stream as the current ones. All ranks compare their findings before the
// first one changes the folder. planned: the same rank, for predictions. outcome: of the process; null on all its ranks
// but the first.
void train_as_rank(const Parallel& parallel, const PlannedRank& planned, OpenedRun& run, Outcome* outcome);

}  // namespace isobar
