// Ranks as processes that communicate over MPI. The library is a plugin (comm/mpi/plugin.h), loaded at first use.
//
// Calls are polled with a deadline. While a rank waits, it checks whether another rank has failed (comm/meeting.h).
// Sums are in MPI's order, which is the same at every call with the same counts. 16-bit elements are summed in fp32 and
// rounded once. With ISOBAR_COMM_CHECK=1 the ranks compare verb, counts and type before every call, and a mismatch is
// an error that names both. Without it MPI may hang on a mismatch, or mix up the data.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "comm/meeting.h"
#include "comm/mpi/plugin.h"

namespace isobar {

// From isobar_mpi.so beside the program or in ../lib, or from the file $ISOBAR_MPI_PLUGIN. Throws Error if this isobar
// was built without MPI, or if the library cannot be loaded.
const MpiPlugin& load_mpi();

// Whether ISOBAR_COMM_CHECK is 1. It must be set on all ranks or on none.
bool compares_calls();

// Waits for a call that has begun; false if `seconds` have passed.
bool wait_for(const MpiPlugin& mpi, MpiRequest* request, double seconds);

// The world of an MPI that has started. The meeting must outlive it, and have the same ranks.
std::unique_ptr<Backend> make_mpi_world(const MpiPlugin& mpi, Meeting& meeting, double timeout_seconds);

}  // namespace isobar
