// --comm-report: what the ranks of a run have told each other and what each holds, predicted from the layout beside
// counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"

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

}  // namespace isobar
