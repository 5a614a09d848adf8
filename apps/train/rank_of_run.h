// The part of one rank in a run, from the opened data to the end of the loop (apps/train/run.h).
#pragma once

#include <cstdint>

#include "apps/train/opened_run.h"
#include "apps/train/run.h"
#include "comm/parallel.h"

namespace isobar {

// How far the first rank has come, for whoever cleans up after an error.
struct Outcome {
  bool prepared = false;  // the folder is this run's
  std::int64_t iterations = 0;
  TrainingRun::End end = TrainingRun::End::finished;
};

// Every rank calls it, on the stream and the device that it computes on. All ranks compare what they have found before
// the first of them changes the folder. outcome: of the process; null on all its ranks but the first.
void train_as_rank(const Parallel& parallel, OpenedRun& run, Outcome* outcome);

}  // namespace isobar
