// --comm-report: what the ranks of a run have told each other and what each holds, predicted from the layout beside
// counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"
#include "comm/parallel.h"
#include "comm/pipeline.h"
#include "models/pipeline_share.h"

namespace isobar {

// Bytes that one rank holds, as numbers without padding, and as its memory ledger has them.
struct HeldBytes {
  std::int64_t predicted = 0, counted = 0;
};
struct RankHolds {
  HeldBytes weights, gradients, moments;
};

// The lines of a report on `steps` steps that communicated `counted`, where `expected` was predicted. Every rank of
// `world` calls it with its own numbers, and gets: the traffic of the first rank, the ranks on which the two differ,
// and what ranks hold: a line for all that hold the same.
std::string report_traffic(const CommLedger& expected, const CommLedger& counted, std::int64_t steps,
                           const RankHolds& holds, const Communicator& world);

// The lines of a report on a pipeline that passes `parts` parts in a step: for every place the share of a step in which
// it is idle, predicted from the work of its pieces, beside the share of the time that its ranks have waited in
// exchanges (`waited`: of this rank; the mean of all is told). Every rank calls it.
std::string report_pipeline(const PipelineCut& cut, std::int64_t parts, const Parallel& parallel, double waited);

// The same prediction: how the work of the pieces fills a step.
PipelineTimeline predicted_timeline(const PipelineCut& cut, std::int64_t ranks, std::int64_t parts);

}  // namespace isobar
