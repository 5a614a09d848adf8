// A pass over a set of samples that are judged, not trained on.
#pragma once

#include <cstdint>
#include <functional>

#include "apps/train/loaders.h"
#include "apps/train/pipeline.h"
#include "comm/communicator.h"
#include "models/task.h"

namespace isobar {

// The ranks that score together. `sums`: they have scored different samples, or other stages of a network, and have the
// sums of all afterwards. `voters`: whoever is asked to stop.
struct ScoringRanks {
  const Communicator &sums, &voters;
  Pipeline* pipeline = nullptr;  // null: the task's network is whole
};

// One pass over the set from its start, every sample counted alike, into metrics that the task made. Every rank of
// `ranks` calls it. Returns false if `stop` was true on one of the voters between two batches, or of a pipeline between
// two groups of them. scored: called with the number of samples that all ranks have scored so far, about.
bool score_all(
    const Task& task, EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
    const ScoringRanks& ranks, const std::function<void(std::int64_t samples)>& scored = [](std::int64_t) {});
bool score_all(const Task& task, EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop);  // alone

// Scores the first and the last batch, for what libraries do when they are first asked: only the last one can be of
// another size. All ranks that score together have as many batches.
void rehearse_scoring(const Task& task, EvaluationSet& set, Pipeline* pipeline = nullptr);

}  // namespace isobar
