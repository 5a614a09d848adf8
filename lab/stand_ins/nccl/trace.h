// What the stand-in for NCCL has done in this process, for tests, which find these functions in the library by name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobar::nccl::stand_in {

// Times are ticks of one clock of the library, which advances at every reading.
struct TraceEntry {
  int rank;  // of the communicator
  char communicator[64];
  char operation[64];                // "all_reduce of 512 fp32"
  std::uint64_t issued;              // enqueued in its stream
  std::uint64_t begun;               // reached by the stream; 0: not yet
  std::uint64_t ended;               // on this rank; 0: not yet
  std::uint64_t began_ns, ended_ns;  // on its device's simulated clock (model.h)
};

// The host's activity in the library since the trace was cleared.
struct HostCounts {
  std::uint64_t calls;        // of functions with a communicator
  std::uint64_t in_progress;  // those that returned ncclInProgress
  std::uint64_t threads;      // started for calls that were in progress
  std::uint64_t nanoseconds;  // spent in calls
};

inline constexpr const char* kHostName = "isobar_nccl_host";
using HostFunction = HostCounts (*)();
inline constexpr const char* kTickName = "isobar_nccl_tick";
inline constexpr const char* kTraceName = "isobar_nccl_trace";
inline constexpr const char* kClearName = "isobar_nccl_clear_trace";
using TickFunction = std::uint64_t (*)();
using TraceFunction = std::size_t (*)(TraceEntry* entries, std::size_t capacity);  // returns the number of entries
using ClearFunction = void (*)();

}  // namespace isobar::nccl::stand_in
