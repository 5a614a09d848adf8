// Ranks as processes: the counterpart of run_ranks (comm/thread_ranks.h). Each process is one rank, which a launcher
// started (comm/launch.h); the processes meet (comm/meeting.h), and their data travel by MPI or NCCL.
#pragma once

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/meeting.h"

namespace isobar {

struct ProcessRanks {
  Launch launch;
  bool by_nccl = false;          // else by MPI
  Device device{};               // of this rank; for NCCL
  double timeout_seconds = 600;  // that a rank waits for the others, at the meeting and in a call
  Attendee me = {};              // rank, number of ranks, host and process are filled in
  // Called where the launcher does not say which rank of its host this is, when the meeting has: the device of this
  // rank, in place of the one above, which then says the kind only.
  std::function<Device(const Launch& launch)> find_device{};
};

// Throws Error where these processes cannot work together, before anything has started: Open MPI under a plain srun, a
// launcher that starts no MPI, and an isobar without MPI; for NCCL, a launcher that does not say where to meet.
void check_can_start(const Launch& launch, bool by_nccl);

// launch: of this process, with its place on the host.
using RankBody = std::function<void(const Communicator& world, const Launch& launch)>;

// Calls `body` with the world of all processes, once in a process. Returns when `body` has returned on all ranks. Where
// one rank fails, all leave `body` by an error in their next call, and one of them (the first, as long as it can)
// throws the first error with "rank R: " before its sentence; the others throw ToldElsewhere. After either the process
// has to end by end_process.
void run_process(const ProcessRanks& options, const RankBody& body);

// Where the ranks have met, for the log: on rank 0 within run_process; else nothing.
std::string describe_meeting();

// Whether run_process has started in this process and not ended well: its ranks tell errors together.
bool has_met();

// The last thing that a process does: ends the others too if run_process has failed. has_told: this one is the one
// that has told the user why. Returns where there is nothing to end.
void end_process(int status, bool has_told);

}  // namespace isobar
