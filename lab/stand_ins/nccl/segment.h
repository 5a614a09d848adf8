// The shared memory of one communicator: a file in /dev/shm that every rank maps, whether thread or process. Its name
// is removed when the last rank has opened it. Ranks wait by futex, with a short timeout: a rank that is killed leaves
// no lock behind, and the others notice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/nccl/api.h"
#include "kernels/common/check.h"

namespace isobar::nccl::stand_in {

constexpr int kMaxRanks = 64;
constexpr std::size_t kCalls = 4096;        // calls of a communicator by which a rank can be ahead of another
constexpr std::size_t kMessages = 256;      // the same for messages of a pair
constexpr std::size_t kBox = 32 << 10;      // bytes that a rank shows to all others at once
constexpr std::size_t kPairBox = 16 << 10;  // bytes in flight from one rank to another
constexpr std::size_t kOthers = 16;         // communicators of one device that are compared

// A refusal by a function of the library: its result, and the sentence that ncclGetLastError returns.
struct Refusal {
  Result result;
  std::string sentence;
};
template <class... Parts>
[[noreturn]] void refuse(Result result, const Parts&... parts) {
  throw Refusal{result, concat(parts...)};
}

enum class Verb : std::uint8_t { all_reduce, reduce, broadcast, all_gather, reduce_scatter, split, send, receive };

// A call as the other ranks see it.
struct Description {
  Verb verb;
  std::int8_t type, op;
  std::int32_t root;    // split: the color
  std::uint64_t count;  // split: the key
  struct Order {
    std::uint64_t communicator, calls;
  };
  std::uint32_t others;  // other communicators of the device, and the number of their earlier calls
  Order order[kOthers];
};

enum class State : std::uint32_t { absent, arriving, here, left, aborted };
enum class Activity : std::uint32_t { none, collective, messages };

struct alignas(64) RankSlot {
  std::atomic<State> state;
  std::atomic<std::uint32_t> bell, sleepers;  // rung at every change that this rank may wait for
  std::int32_t process, device_index;
  std::uint64_t start_time;  // of the process, since its id may be reused
  char device[128];

  std::atomic<std::uint64_t> issued;           // calls described
  std::atomic<std::uint64_t> posted, taken;    // rounds of collectives: shown to others, read from others
  std::atomic<Activity> activity;              // of the stream's current operation,
  std::atomic<std::uint64_t> sends, receives;  // and the ranks that its messages still wait for
  std::atomic<std::uint32_t> connects;         // it is in its first call that reaches all ranks
  std::atomic<std::uint64_t> steps;            // increases with everything it does
  std::atomic<std::uint64_t> times[2];         // of its device (model.h), when it reached what the box shows
  Description calls[kCalls];
  std::byte box[2][kBox];
};

// Messages from one rank to another.
struct alignas(64) PairSlot {
  std::atomic<std::uint64_t> sent, expected;   // messages described by the sender, by the receiver
  std::atomic<std::uint64_t> filled, emptied;  // how often the box was
  Description sends[kMessages], expects[kMessages];
  std::atomic<std::uint64_t> time;  // of the sender's device
  std::byte box[kPairBox];
};

struct Header {
  std::atomic<std::uint32_t> ranks, opened;
  std::atomic<std::uint32_t> failed;  // 1: the sentence is being written, 2: it is complete
  char failure[1024];
};

class Segment {
 public:
  // Refuses if another rank has opened it with another number of ranks.
  Segment(std::uint64_t id, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  RankSlot& rank(int r) const;
  PairSlot& pair(int from, int to) const;

  // The first failure of the communicator ends all its operations on all ranks.
  void fail(const std::string& sentence) const;
  bool has_failed() const { return header().failed == 2; }
  std::string failure() const { return has_failed() ? header().failure : ""; }

  void ring(int r) const;
  void ring_all() const;
  void sleep(int r, std::uint32_t seen) const;  // while the bell of rank r is at `seen`, at most 20 ms
  void remove_name() const noexcept;

 private:
  std::string path_;
  int ranks_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// Whether a process runs; a zombie does not.
bool is_alive(std::int32_t process, std::uint64_t start_time);
std::uint64_t start_time_of(std::int32_t process);

}  // namespace isobar::nccl::stand_in
