// Ranks that communicate by NCCL: one process (or thread) and one device each. On the emulator device the same code
// works with a stand-in for the library (tests/stand_ins/nccl).
//
// Calls return when NCCL has put them into the current stream; values that lie on the host are staged over device
// memory, and such a call returns when it has happened. Tensors may be freed as soon as a call has returned: memory
// goes back in the order of the stream that is current (engine/storage.h). Calls of one rank come from one thread.
//
// Nobody waits for ever. Two threads of each rank look at its communicators and streams (comm/nccl/session.h): an error
// of NCCL or of the GPU, a GPU that does not answer, an operation that has begun and does not end within the time
// allowed, and stop() from outside end all communication of the rank. Work that waits for it in a stream then ends
// without results, and every later call is an Error with the first sentence.
//
// Sums are in NCCL's order, with 16-bit types rounded at every step. all_reduce with Reduce::max takes the number where
// the other is NaN, unlike the thread backend.
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
  std::string device_name{};     // emulator: what tells this rank's device from others, as host and rank do
  double timeout_seconds = 600;  // that a call may take once its stream has got to it
  std::string id{};              // of make_nccl_id(), rank 0's
  int most_grouped = 2048;       // calls of NCCL's between its GroupStart and its GroupEnd

  // The three below are called by a thread of the rank. They must not throw, nor call stop() of this rank.

  // Some fifty times a second, with the call that the rank's streams are at; empty: in none. Returns why all
  // communication of the rank must end (the run has failed elsewhere, say); empty: go on.
  std::function<std::string(const std::string& call)> watch{};
  // A call of these ranks (numbers in the world) has not ended in time, and this rank's watch was told of it. Returns
  // the sentence that says who has not come; empty where that works alone: the call may take as long again.
  std::function<std::string(const std::string& call, std::span<const int> members)> on_late{};
  // Once, with the sentence, when NCCL itself finds that communication must end. Other ranks cannot see it yet.
  std::function<void(const std::string& why)> on_failure{};
};

struct NcclWorld {
  Communicator world;
  // Ends all communication of this rank with that sentence: the rank itself, or another one, has failed. From any
  // thread, at any time, any number of times.
  std::function<void(const std::string& why)> stop;
};

// Error where NCCL cannot be loaded, or does not fit the device.
void check_nccl(Device device);

// "2.28.9"; ranks of different versions wait for each other for ever. Error where NCCL cannot be loaded.
std::string nccl_version();

// What NCCL is, in one line: its version, the file that was loaded, and the network that its own log names where that
// is kept in a file (NCCL_DEBUG, NCCL_DEBUG_FILE).
std::string describe_nccl();

// NCCL writes what NCCL_DEBUG asks for to stdout, which only the first rank has. Lets it write into the folder, a file
// for each process, unless NCCL_DEBUG_FILE says where. Before NCCL is used; makes the folder.
void keep_nccl_log(const std::string& folder);

// For one world of ranks: rank 0 makes it and tells all, as bytes.
std::string make_nccl_id();

// Every rank calls it; returns when all have. Makes `device` the current one of the thread. Error where NCCL cannot be
// loaded, does not fit the device, or ranks do not come in time.
NcclWorld start_nccl(const NcclRanks& options);
}  // namespace isobar
