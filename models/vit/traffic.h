// What a vision transformer's ranks tell each other in one training pass, from sizes alone: the prediction beside which
// a run's ledger stands (docs/parallelism.md has the formulas, collective by collective).
#pragma once

#include <cstdint>

#include "comm/ledger.h"
#include "comm/parallel.h"
#include "models/vit/trunk.h"

namespace isobar {

struct PassSizes {
  std::int64_t batch = 0;           // samples of this data rank
  DType activation = DType::fp32;   // of what the branches compute
  DType accumulator = DType::fp32;  // of the residual stream
};

// Adds the calls and bytes of this rank: one forward and one backward pass of the trunk.
void add_traffic_of_pass(const VitTrunkConfig& config, const PassSizes& sizes, const Parallel& parallel,
                         CommLedger& ledger);

}  // namespace isobar
