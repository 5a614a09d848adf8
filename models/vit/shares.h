// What a vision transformer's ranks hold, and what they tell each other in one training pass, from sizes alone: the
// prediction beside which a run's ledger stands (docs/parallelism.md has the formulas, collective by collective).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/ledger.h"
#include "comm/parallel.h"
#include "models/network.h"
#include "models/vit/vit.h"

namespace isobar {

// What the rank of these groups holds of heads, hidden units and rows of patches.
std::vector<Holding::Dealt> shares_of(const VitConfig& config, const Parallel& parallel);

// Adds the calls and bytes of this rank: one forward and one backward pass.
void add_traffic_of_pass(const VitConfig& config, const PassSizes& sizes, const Parallel& parallel, CommLedger& ledger);

}  // namespace isobar
