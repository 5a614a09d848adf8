// What isobar needs of MPI, as a table of functions that isobar_mpi.so hands out. The program itself knows nothing of
// MPI: it starts where there is none, and a cluster's own MPI is taken by building this one file against it.
//
// Every operation is begun and then tested until it is done, so that waiting has a deadline (comm/mpi_backend.cc).
#pragma once

#include <cstdint>

#include "comm/call.h"

namespace isobar {

struct MpiGroup;    // a communicator
struct MpiRequest;  // an operation that was begun

// Functions that can fail return null, or a sentence that stays valid until the next one of this thread.
struct MpiPlugin {
  std::uint32_t version;   // kMpiPluginVersion
  bool is_open_mpi;        // which cannot start under srun without --mpi=pmix
  const char* (*start)();  // MPI_Init
  void (*finish)();        // MPI_Finalize
  void (*abort)(int status);
  MpiGroup* (*world)();
  int (*rank)(const MpiGroup* group);
  int (*size)(const MpiGroup* group);
  const char* (*split)(const MpiGroup* group, int color, int key, MpiGroup** part);
  // Host memory; reductions of fp64, fp32 and i32 only. What the call points to must stay until the request is done.
  const char* (*begin)(const MpiGroup* group, const Call* call, MpiRequest** request);
  const char* (*test)(MpiRequest* request, bool* is_done);  // done: the request exists no more
  // For tests: MPI counts elements in an int; calls of more are cut into several. This many instead.
  void (*set_most_elements)(std::int64_t most);
};

inline constexpr std::uint32_t kMpiPluginVersion = 1;
inline constexpr const char* kMpiPluginFile = "isobar_mpi.so";
inline constexpr const char* kMpiPluginFunction = "isobar_mpi_plugin";  // const MpiPlugin* ()

}  // namespace isobar
