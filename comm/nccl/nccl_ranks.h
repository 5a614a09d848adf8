// Ranks that communicate by NCCL: each has a process (or thread) and a device. On the emulator device the same code
// uses a stand-in for the library (lab/stand_ins/nccl).
//
// A call returns when NCCL has enqueued it in the current stream. Values on the host are staged in device memory, and
// such a call returns when it is complete. Tensors may be freed as soon as a call has returned: memory is freed in the
// order of the current stream (engine/storage.h). A rank makes its calls from one thread.
//
// No wait is endless. Two threads of each rank watch its communicators and streams (comm/nccl/session.h). All
// communication of the rank is ended by an error of NCCL or of the GPU, by a GPU that does not answer, by an operation
// that has begun and does not end within the timeout, and by stop(). Work that waits for it in a stream then ends
// without results, and every later call is an Error with the first sentence.
//
// Sums are in NCCL's order, with 16-bit dtypes rounded at every step. Unlike the thread backend, all_reduce with
// Reduce::max ignores a NaN if the other value is a number.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace isobar {

struct NcclRanks {
  int rank = 0, ranks = 1;
  Device device{DeviceKind::cuda};
  std::string device_name{};     // emulator: identifies this rank's device, as host and rank do
  double timeout_seconds = 600;  // for a call, from when its stream has reached it
  std::string id{};              // from make_nccl_id() of rank 0
  int max_grouped = 2048;        // maximum number of NCCL's calls between its GroupStart and GroupEnd

  // A thread of the rank calls the three below. They must not throw, nor call stop() of this rank.

  // Called about fifty times a second with the call that the rank's streams are in; empty: in none. Returns why all
  // communication of the rank must end (such as a failure elsewhere); empty: go on.
  std::function<std::string(const std::string& call)> watch{};
  // Called if a call of these ranks (numbers in the world), which was passed to this rank's watch, has not ended in
  // time. Returns the sentence that names the ranks that have not joined; empty if such a rank works alone: the call
  // may take as long again.
  std::function<std::string(const std::string& call, std::span<const int> members)> on_late{};
  // Called once, with the sentence, if NCCL itself has an error that ends communication. Other ranks cannot see it yet.
  std::function<void(const std::string& why)> on_failure{};
};

struct NcclWorld {
  Communicator world;
  // Ends all communication of this rank with that sentence, because this rank or another one has failed. May be called
  // from any thread, at any time, any number of times.
  std::function<void(const std::string& why)> stop;
};

// Error if NCCL cannot be loaded, or cannot use the device.
void check_nccl(Device device);

// "2.28.9". Ranks of different versions would wait for each other for ever. Error if NCCL cannot be loaded.
std::string nccl_version();

// A line on NCCL: its version, the file that was loaded, and the network, from NCCL's own log if that is in a file
// (NCCL_DEBUG, NCCL_DEBUG_FILE).
std::string describe_nccl();

// NCCL writes its log (NCCL_DEBUG) to stdout, which only the first rank has. Redirects it to files in the folder, one
// for each process, unless NCCL_DEBUG_FILE is set. Creates the folder. Call it before NCCL is used.
void keep_nccl_log(const std::string& folder);

// For one world of ranks: rank 0 makes it and sends it to all, as bytes.
std::string make_nccl_id();

// All ranks call it; returns when all have. Makes `device` the current one of the thread. Error if NCCL cannot be
// loaded or cannot use the device, or if ranks do not join in time.
NcclWorld start_nccl(const NcclRanks& options);
}  // namespace isobar
