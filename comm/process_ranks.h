// Ranks as processes: the counterpart of run_ranks (comm/thread_ranks.h). A launcher started each process as one rank
// (comm/launch.h). The processes meet (comm/meeting.h), and communicate by MPI or NCCL.
#pragma once

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/meeting.h"

namespace isobar {

struct ProcessRanks {
  Launch launch;
  bool by_nccl = false;          // false: by MPI
  Device device{};               // of this rank; for NCCL
  double timeout_seconds = 600;  // for which a rank waits for the others, at the meeting and in a call
  RankDescription me = {};       // rank, number of ranks, host and process id are filled in
  // Called after the meeting if the launcher does not set the local rank. Returns this rank's device; `device` above
  // then gives only the kind.
  std::function<Device(const Launch& launch)> find_device{};
};

// Throws Error if these processes cannot work together, before anything has started: Open MPI under a plain srun, a
// launcher that starts no MPI, an isobar without MPI; for NCCL, a launcher that does not set where to meet.
void check_can_start(const Launch& launch, bool by_nccl);

// launch: of this process, with its local rank.
using RankBody = std::function<void(const Communicator& world, const Launch& launch)>;

// Calls `body` with the world of all processes; only once in a process. Returns when `body` has returned on all ranks.
// If one rank fails, all leave `body` by an error in their next call. One of them (the first, as long as it can) throws
// the first error with "rank R: " before its sentence; the others throw ErrorReportedByAnotherRank.
// After either the process must end by end_process.
void run_process(const ProcessRanks& options, const RankBody& body);

// Where the ranks have met, for the log. Empty except on rank 0 within run_process.
std::string describe_meeting();

// Whether run_process has started in this process and not ended without an error: errors are then reported together.
bool is_running();

// The last call of a process: ends the others too if run_process has failed. has_reported: this process has reported
// the error. Returns if there is nothing to end.
void end_process(int status, bool has_reported);

}  // namespace isobar
