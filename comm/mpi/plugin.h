// The part of MPI that isobar needs, as a table of functions that isobar_mpi.so provides. The program itself does not
// depend on MPI: it starts without one. To use a cluster's own MPI, this one file is built against it.
//
// Every operation is started and then tested until it is done, so that waits have a timeout (comm/mpi_backend.cc).
#pragma once

#include <cstdint>

#include "comm/call.h"

namespace isobar {

struct MpiGroup;    // a communicator
struct MpiRequest;  // an operation in progress

// Functions that can fail return null, or a sentence that is valid until the next call of this thread.
struct MpiPlugin {
  std::uint32_t version;   // kMpiPluginVersion
  bool is_open_mpi;        // it cannot start under srun without --mpi=pmix
  const char* (*start)();  // MPI_Init
  void (*finish)();        // MPI_Finalize
  void (*abort)(int status);
  MpiGroup* (*world)();
  int (*rank)(const MpiGroup* group);
  int (*size)(const MpiGroup* group);
  const char* (*split)(const MpiGroup* group, int color, int key, MpiGroup** part);
  // Host memory only; reductions only of fp64, fp32 and i32. The call's buffers must stay valid until the request is
  // done.
  const char* (*begin)(const MpiGroup* group, const Call* call, MpiRequest** request);
  const char* (*test)(MpiRequest* request, bool* is_done);  // done: the request is freed
  // For tests: MPI counts elements in an int, and larger calls are cut. Sets a smaller limit.
  void (*set_max_elements)(std::int64_t max_elements);
};

inline constexpr std::uint32_t kMpiPluginVersion = 1;
inline constexpr const char* kMpiPluginFile = "isobar_mpi.so";
inline constexpr const char* kMpiPluginFunction = "isobar_mpi_plugin";  // const MpiPlugin* ()

}  // namespace isobar
