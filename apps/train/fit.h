// Whether a run fits its device, and which layouts of so many ranks do: by steps on shapes (apps/train/dry_run.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"

namespace isobar {

// Memory that ranks of a run share.
struct Room {
  std::size_t bytes = 0;
  std::string whose = "this machine";  // for the sentence
  std::int64_t ranks = 1;              // that share it
};

// Throws Error where a step of this run needs more than there is, in a sentence that names both and the largest
// global_batch_size that fits. Returns what the step needs on this rank.
StepPrediction check_room(const TaskSource& source, const TrainerOptions& options, const PlannedRank& rank,
                          DeviceKind like, const Room& room);

struct FittingLayout {
  PlannedRank rank = {};  // the first one, which holds the most
  std::size_t peak_bytes = 0;
  std::int64_t exchanged_bytes = 0;  // of a step, by that rank
};

// The layouts of so many ranks of which each fits `bytes`: dp, tp and cp in every way, with sequence parallel where
// there are tp ranks, and with a sharded optimizer where ranks share one; by what a step exchanges, the least first.
std::vector<FittingLayout> fitting_layouts(const TaskSource& source, const TrainerOptions& options, std::int64_t ranks,
                                           std::size_t bytes, DeviceKind like);

// A line for each; what `isobar train` takes for it.
std::string to_text(const std::vector<FittingLayout>& layouts);

}  // namespace isobar
