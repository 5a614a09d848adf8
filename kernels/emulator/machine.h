// Shared by the parts of the emulator: the fibers of a block, the barriers at which they wait, and the annotations for
// ThreadSanitizer. emulator.cc schedules the fibers; async_proxy.cc has mbarriers and TMA; warpgroup.cc has the
// operations of 128 threads.
#pragma once

#include <bitset>
#include <cstdlib>
#include <mutex>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/emulator/emulator.h"
#include "kernels/emulator/schedule.h"

#if defined(ISOBAR_EMULATE_TSAN)
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace isobar::emulator {

using Site = std::source_location;

inline constexpr int kLanes = 32, kMaxThreads = 1024, kMaxWarps = kMaxThreads / kLanes;
#if defined(__SANITIZE_ADDRESS__) || defined(ISOBAR_EMULATE_TSAN)
inline constexpr std::size_t kStackBytes = 256 << 10;  // of a thread
#else
inline constexpr std::size_t kStackBytes = 64 << 10;
#endif
inline constexpr int kMaxMasks = 8;        // max number of different masks of collectives of a warp in a block
inline constexpr int kNamedBarriers = 16;  // of a block; the first is __syncthreads
inline constexpr int kWarpgroup = 4 * kLanes;

// Threads arrive; when there are enough, the generation advances and all of them continue.
struct Barrier {
  std::uint32_t generation = 0;
  int arrived = 0;
  Site site;  // of the first arrival
  // The objects on which TSan synchronises, one per parity: a fast thread may already be in the next generation.
  char token[2];
  int votes[2];  // one per parity, too

  void open() {
    arrived = 0;
    ++generation;
  }
};

// One exchange between the lanes of one mask.
struct Meeting {
  bool combined = false;
  alignas(16) unsigned char deposits[kLanes * kDepositBytes];
  alignas(16) unsigned char result[kResultBytes];
};

// The lanes of one mask. Two meetings: some lanes may still read the results of one while others arrive at the next.
struct LaneGroup {
  unsigned mask = 0;
  bool needs_all = false;  // the current meeting is an instruction of all 32 lanes
  Barrier barrier;
  Meeting meetings[2];
};

struct Warp {
  unsigned alive = 0;  // a bit a lane
  int live = 0;        // the number of these bits
  LaneGroup groups[kMaxMasks];
};

struct Fiber : ThreadState {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // lowest address
  bool done = false;
  const Barrier* waits_for = nullptr;
  std::uint32_t generation = 0;  // of that barrier, when the fiber arrived
  Site site;
  std::vector<Copy> copies, landing;     // in flight; and those that were just returned to be stored
  std::vector<std::size_t> copy_groups;  // number of copies in flight up to the end of each group
  void* asan_stack = nullptr;
  void* tsan_fiber = nullptr;

  bool can_run() const { return !done && (waits_for == nullptr || waits_for->generation != generation); }
};

// A barrier with its own count: some of its threads may arrive without waiting.
struct NamedBarrier {
  Barrier barrier;
  int threads = 0;                // number; all threads that use it must agree on it while it is closed
  std::bitset<kMaxThreads> here;  // the threads that have arrived since it last opened
};

// One launch at a time; fibers and their stacks are kept for the next one.
struct Emulator {
  std::mutex one_launch;
  Schedule schedule;
  std::vector<Fiber> fibers;  // those of the block come first
  std::vector<Warp> warps = std::vector<Warp>(kMaxWarps);
  NamedBarrier barriers[kNamedBarriers];
  int threads = 0, alive = 0;
  std::size_t dynamic_bytes = 0;  // of shared memory
  void (*body)(const void*) = nullptr;
  const void* arguments = nullptr;
  std::string kernel, failure;
  char start_token = 0, end_token = 0;

  // The current pass: fibers order[cursor] up to order[pass_end].
  std::vector<int> order;
  std::size_t cursor = 0, pass_end = 0;

  // The launching thread.
  void* stack_pointer = nullptr;
  void* asan_stack = nullptr;
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* tsan_fiber = nullptr;

  Emulator() {
    // In the scheduler's own code ThreadSanitizer does not see that one thread made this before another one uses it. It
    // sees it by the lock, which every launch takes.
    const std::lock_guard lock(one_launch);
    const char* text = std::getenv("ISOBAR_EMULATOR_ORDER");
    if (text != nullptr) schedule = parse_schedule(text);
    fibers.reserve(kMaxThreads);
  }
};
extern Emulator* machine;  // while a launch runs

inline Fiber& current() {
  return const_cast<Fiber&>(static_cast<const Fiber&>(*self));
}
// The running thread's number in its block.
inline int thread_number() {
  return current().warp * kLanes + current().lane;
}

// ---- Waiting and failing --------------------------------------------------------------------------------------------

// The running thread waits until the barrier opens next.
void wait_for_opening(const Barrier& barrier, const Site& site);

// Counts the running thread and waits until `needed` threads have arrived. With `orders_memory`, all that any of them
// did before happens before all that any of them does afterwards. Returns the parity of the generation.
int arrive(Barrier& barrier, int needed, bool orders_memory, const Site& site);

std::string place_of(const Site& site);
std::string in_kernel(const std::string& what);  // with the kernel's name and the block

// Records an error of the running thread, and leaves the kernel. Destructors of objects on the thread's stack do not
// run, so no object that owns memory may be there.
void record_failure(const char* what, const Site& site);
[[noreturn]] void stop_launch();

// Both, with a sentence made of parts, which must not own memory either.
template <class... Parts>
[[noreturn]] void fail_with(const Site& site, const Parts&... parts) {
  record_failure(concat(parts...).c_str(), site);
  stop_launch();
}

// ---- Annotations for ThreadSanitizer --------------------------------------------------------------------------------

#if defined(ISOBAR_EMULATE_TSAN)
inline void acquire(void* token) {
  __tsan_acquire(token);
}
inline void release(void* token) {
  __tsan_release(token);
}
// TSan sees memcpy and memset even from here. The emulator's own data must not count as races of the kernel.
struct Unseen {
  Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};
#else
inline void acquire(void*) {}
inline void release(void*) {}
struct Unseen {
  Unseen() {}
};
#endif

}  // namespace isobar::emulator
