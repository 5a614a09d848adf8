// Ranks as processes whose data travel over MPI. The library is a plugin (comm/mpi/plugin.h), loaded when it is asked
// for.
//
// Calls are polled, with a deadline, and while a rank waits it looks whether another one has failed (comm/meeting.h).
// Sums are in MPI's order, the same at every call with the same counts; 16-bit elements are summed in fp32 and rounded
// once. With ISOBAR_COMM_CHECK=1 the ranks compare verb, counts and type before every call, and a difference is an
// error that names both: without it MPI may hang or mix up what does not fit together.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "comm/meeting.h"
#include "comm/mpi/plugin.h"

namespace isobar {

// Of isobar_mpi.so beside the program, in ../lib, or of the file $ISOBAR_MPI_PLUGIN. Throws Error where this isobar was
// built without MPI, and where the library cannot be loaded.
const MpiPlugin& load_mpi();

// Whether ISOBAR_COMM_CHECK is 1: on all ranks or on none.
bool compares_calls();

// Waits for a call that has begun; false where `seconds` are over.
bool wait_for(const MpiPlugin& mpi, MpiRequest* request, double seconds);

// The world of an MPI that has started. The meeting must outlive it, and be of the same ranks.
std::unique_ptr<Backend> make_mpi_world(const MpiPlugin& mpi, Meeting& meeting, double timeout_seconds);

}  // namespace isobar
