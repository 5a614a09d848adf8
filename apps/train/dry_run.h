// A step of training on shapes: what a rank holds, computes and exchanges, found by running the trainer's own step on
// the device meta, among ranks that are imagined. Nothing is allocated, computed or sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/train/comm_report.h"
#include "apps/train/trainer.h"
#include "comm/ledger.h"
#include "comm/parallel.h"
#include "engine/storage.h"
#include "kernels/common/cost_account.h"
#include "models/stage.h"
#include "models/task.h"

namespace isobar {

// One rank of a layout.
struct PlannedRank {
  MeshSizes sizes = {};
  std::string order = "tp-cp-dp";
  ExchangeOptions exchange = {};
  bool sequence = false;
  ContextForm form = ContextForm::automatic;
  std::int64_t rank = 0;
  PipelineOptions pipeline = {};

  std::int64_t ranks() const { return sizes.ranks(); }
};

// Bytes as the memory ledger has them (engine/storage.h). What is not in it is not in here: what libraries take for
// themselves (CUDA's context, cuBLASLt's and NCCL's workspaces), threads' scratch on the CPU, and code.
struct StepPrediction {
  std::int64_t parameters = 0, held = 0;  // of the model, and of this rank; without padding
  RankHolds holds = {};
  std::size_t peak_bytes = 0;                     // of the task, the trainer and one step, its batch included
  std::vector<MemoryUse> memory = {};             // by purpose; activations and workspaces are in it
  std::vector<StageUse> stages = {};              // of the network
  std::map<std::string, KernelUse> kernels = {};  // of the step, by name
  Cost cost = {};                                 // of all of them
  CommLedger traffic = {};                        // of the step, as this rank's ledger will count it
};

// like: the kind of device that the step will run on. The batch is a whole one. Not in it: a CUDA graph, which keeps a
// copy of its batch and of what its passes hold. samples: the view that the step reads; null: the source's. Throws
// Error where the model or the batch cannot be split in that way.
StepPrediction predict_step(const TaskSource& source, const TrainerOptions& options, const PlannedRank& rank,
                            DeviceKind like, const Dataset* samples = nullptr);

// "24.1 MiB at the peak, 3.0 MiB of parameters, ...": for people.
std::string memory_text(const StepPrediction& prediction);

// Lines for people.
std::string to_text(const StepPrediction& prediction);

}  // namespace isobar
