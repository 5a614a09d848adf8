// A pass over a set of samples that are judged, not trained on.
#pragma once

#include <cstdint>
#include <functional>

#include "apps/train/loaders.h"
#include "comm/communicator.h"
#include "models/task.h"

namespace isobar {

// One pass over the set from its start, every sample counted alike, into metrics that the task made. Every rank of
// `ranks`, which read different samples, calls it and has the sums of all of them afterwards. Returns false if `stop`
// was true on one rank of `voters` between two batches. scored: called with the number of samples that all ranks have
// scored so far, about.
bool score_all(
    const Task& task, EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
    const Communicator& ranks = {}, const Communicator& voters = {},
    const std::function<void(std::int64_t samples)>& scored = [](std::int64_t) {});

// Scores the first and the last batch, for what libraries do when they are first asked: only the last one can be of
// another size. All ranks that score together have as many batches.
void rehearse_scoring(const Task& task, EvaluationSet& set);

}  // namespace isobar
