#include "comm/thread_ranks.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/fit.h"
#include "comm/host_copies.h"
#include "comm/work.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/cuda/runtime.h"

namespace isobar {
namespace {

// Shared by the ranks of one process: the first failure, and one mutex and condition variable for all groups.
struct ThreadWorld {
  std::mutex mutex;
  std::condition_variable changed;
  double timeout_seconds = 600;
  bool turns_sums = false;
  std::vector<WorkAccount> works;  // by rank
  int failed_rank = -1;            // the first one; -1: none
  std::exception_ptr failure;

  bool has_failed() {
    const std::lock_guard lock(mutex);
    return failed_rank >= 0;
  }
  void fail(int rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    note_failure(rank, std::move(error));
  }
  void note_failure(int rank, std::exception_ptr error) {  // with the mutex held
    if (failed_rank >= 0) return;
    failed_rank = rank;
    failure = std::move(error);
    changed.notify_all();
  }
  bool any_rank_works() const {  // with the mutex held
    return std::ranges::any_of(works, [&](const WorkAccount& work) { return work.now().excuses(timeout_seconds); });
  }
};

// ---- Copies and reductions ------------------------------------------------------------------------------------------

const std::byte* at(const void* data, std::int64_t element, std::size_t size) {
  return static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(size);
}
std::byte* at(void* data, std::int64_t element, std::size_t size) {
  return static_cast<std::byte*>(data) + element * static_cast<std::int64_t>(size);
}

// The maximum, with NaN for a NaN input. std::max does not promise that.
template <class A>
A larger(A a, A b) {
  return b > a || b != b ? b : a;
}

// to[...][i] = from[0][i] + from[1][i] + ..., or the maximum, for n elements: added in that order, rounded once. Every
// `to` may be one of `from`.
template <class T>
void reduce_elements(const std::vector<const T*>& from, const std::vector<T*>& to, std::int64_t n, Reduce reduce) {
  using A = std::conditional_t<std::is_integral_v<T>, T, accumulator_t<T>>;
  constexpr std::int64_t kBlock = 1024;
  A sums[kBlock];
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t count = std::min(kBlock, n - first);
    for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<A>(from[0][first + i]);
    for (std::size_t r = 1; r < from.size(); ++r) {
      const T* x = from[r] + first;
      if (reduce == Reduce::sum)
        for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<A>(x[i]);
      else
        for (std::int64_t i = 0; i < count; ++i) sums[i] = larger(sums[i], static_cast<A>(x[i]));
    }
    for (T* y : to)
      for (std::int64_t i = 0; i < count; ++i) y[first + i] = static_cast<T>(sums[i]);
  }
}

// Reduces elements [first, first + n) of all ranks' send buffers into `to`, beginning with rank `begin`.
void reduce_range(const std::vector<const Call*>& calls, std::size_t begin, std::int64_t first, std::int64_t n,
                  const std::vector<void*>& to) {
  visit_any(*calls[0]->dtype, [&]<class T>(Type<T>) {
    std::vector<const T*> from;
    for (std::size_t r = 0; r < calls.size(); ++r)
      from.push_back(static_cast<const T*>(calls[(begin + r) % calls.size()]->send) + first);
    std::vector<T*> targets;
    for (void* target : to) targets.push_back(static_cast<T*>(target));
    reduce_elements<T>(from, targets, n, calls[0]->reduce);
  });
}

void copy_elements(void* to, const void* from, std::int64_t n, std::size_t size) {
  if (n > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(n) * size);
}

// This rank's share of a call; sums begin at rank `begin`. No other rank writes what it reads, or reads what it writes.
void do_share(const std::vector<const Call*>& calls, int rank, std::size_t begin) noexcept {
  const auto n = static_cast<int>(calls.size());
  const Call& mine = *calls[rank];
  const std::size_t size = mine.element_size();
  switch (mine.verb) {
    case Verb::all_reduce: {  // one slice per rank, written to all ranks
      const std::int64_t slice = ceil_div(mine.sends[0], n);
      const std::int64_t first = std::min(rank * slice, mine.sends[0]);
      std::vector<void*> to;
      for (const Call* call : calls) to.push_back(at(call->receive, first, size));
      reduce_range(calls, begin, first, std::min(slice, mine.sends[0] - first), to);
      return;
    }
    case Verb::reduce_scatter:
      reduce_range(calls, begin, offset_of(mine.sends, rank), mine.receives[0], {mine.receive});
      return;
    case Verb::all_gather:
      for (int r = 0; r < n; ++r)
        copy_elements(at(mine.receive, offset_of(mine.receives, r), size), calls[r]->send, mine.receives[r], size);
      return;
    case Verb::broadcast:
      copy_elements(mine.receive, calls[mine.root]->send, mine.receives[0], size);
      return;
    case Verb::all_to_all:
      for (int r = 0; r < n; ++r)
        copy_elements(at(mine.receive, offset_of(mine.receives, r), size),
                      at(calls[r]->send, offset_of(calls[r]->sends, rank), size), mine.receives[r], size);
      return;
    case Verb::send_receive:
      if (mine.from != Call::kNoRank) copy_elements(mine.receive, calls[mine.from]->send, mine.receives[0], size);
      return;
    case Verb::barrier:
      return;
  }
}

// ---- Groups ---------------------------------------------------------------------------------------------------------

// FNV-1a
std::size_t hash_of(const std::vector<int>& members) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const int member : members) hash = (hash ^ static_cast<std::uint64_t>(member)) * 0x100000001b3ull;
  return hash ^ (hash >> 32);
}

// The state that the ranks of one group share.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members)
      : world_(std::move(world)), members_(std::move(members)), calls_(members_.size()) {
    if (world_->turns_sums) first_summand_ = hash_of(members_) % members_.size();
  }

  ThreadWorld& world() const { return *world_; }
  const std::shared_ptr<ThreadWorld>& shared_world() const { return world_; }
  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  std::size_t first_summand() const { return first_summand_; }

  // Passes a call and waits for the calls of all ranks. Throws if a rank has failed or does not join, or if the calls
  // do not match.
  const std::vector<const Call*>& meet(int rank, const Call& call, const std::string& what) {
    std::unique_lock lock(world_->mutex);
    throw_if_failed();
    world_->works[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])].note_call(true);
    calls_[rank] = &call;
    if (++arrived_ == size()) {
      mismatch_ = find_mismatch(calls_, members_, what);
      if (!mismatch_.empty()) std::fill(calls_.begin(), calls_.end(), nullptr);
      arrived_ = 0;
      ++meetings_;
      world_->changed.notify_all();
    } else {
      const std::uint64_t before = meetings_;
      const auto is_over = [&] { return meetings_ != before || world_->failed_rank >= 0; };
      const std::chrono::duration<double> timeout(world_->timeout_seconds);
      while (!world_->changed.wait_until(lock, std::chrono::steady_clock::now() + timeout, is_over) &&
             world_->any_rank_works())
        continue;
      // If the meeting has taken place, every rank finishes the call: others already use this rank's buffers.
      if (meetings_ == before) leave(rank, call, what);
    }
    ISOBAR_CHECK(mismatch_.empty(), mismatch_);
    return calls_;
  }

  // Waits until all ranks of the meeting have done their share. This wait always ends.
  void part(int rank) {
    std::unique_lock lock(world_->mutex);
    world_->works[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])].note_call(false);
    if (++done_ == size()) {
      done_ = 0;
      std::fill(calls_.begin(), calls_.end(), nullptr);
      ++partings_;
      world_->changed.notify_all();
      return;
    }
    const std::uint64_t before = partings_;
    world_->changed.wait(lock, [&] { return partings_ != before; });
  }

  // The group of a color, created by the first rank that asks. Called between two meetings of all ranks.
  std::shared_ptr<ThreadGroup> part_of_color(int color, const std::vector<int>& members) {
    const std::lock_guard lock(world_->mutex);
    std::shared_ptr<ThreadGroup>& group = parts_[color];
    if (!group) group = std::make_shared<ThreadGroup>(world_, members);
    return group;
  }
  void forget_parts() {
    const std::lock_guard lock(world_->mutex);
    parts_.clear();
  }

 private:
  void throw_if_failed() const {
    if (world_->failed_rank >= 0) throw_error("rank ", world_->failed_rank, " has failed");
  }

  // Leaves before the others have joined.
  [[noreturn]] void leave(int rank, const Call& call, const std::string& what) {
    const std::string absent = missing();
    calls_[rank] = nullptr;
    --arrived_;
    throw_if_failed();
    // The world must know at once: other ranks whose timeout expires now would count this rank as absent.
    const Error error(
        concat(absent, to_text(call), ", ", what, ", within ", world_->timeout_seconds, " s", works_of_missing()));
    world_->note_failure(members_[static_cast<std::size_t>(rank)], std::make_exception_ptr(error));
    throw error;
  }

  // "rank 2 has not come to ", "ranks 2, 3 have not come to ".
  std::string missing() const {
    std::string ranks;
    int count = 0;
    for (int r = 0; r < size(); ++r) {
      if (calls_[r] != nullptr) continue;
      ranks += (count++ > 0 ? ", " : "") + std::to_string(members_[r]);
    }
    return concat(count == 1 ? "rank " : "ranks ", ranks, count == 1 ? " has" : " have", " not come to ");
  }

  // "; rank 0 is writing a checkpoint since 61 s".
  std::string works_of_missing() const {
    std::string text;
    for (int r = 0; r < size(); ++r)
      if (calls_[r] == nullptr)
        text += text_of_work(members_[r], world_->works[static_cast<std::size_t>(members_[r])].now());
    return text;
  }

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> members_;  // the ranks' numbers in the world
  std::size_t first_summand_ = 0;
  std::vector<const Call*> calls_;
  std::string mismatch_;
  int arrived_ = 0, done_ = 0;
  std::uint64_t meetings_ = 0, partings_ = 0;
  std::map<int, std::shared_ptr<ThreadGroup>> parts_;
};

// On a stream of the emulator the result of a call is written when the stream reaches it, as by a GPU's communication
// library. A program that forgets to wait for the stream reads the old values.
class LateResult {
 public:
  explicit LateResult(const Call& call) : original_(call), copy_(call), result_(bytes(), call.device) {
    copy_.receive = result_.data();
  }
  const Call& call() const { return copy_; }
  void hand_over() const { copy_bytes(original_.receive, original_.device, result_.data(), original_.device, bytes()); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(original_.received()) * original_.element_size(); }

  const Call& original_;
  Call copy_;
  Storage result_;
};

class ThreadBackend : public Backend {
 public:
  ThreadBackend(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void run(const Call& call, const std::string& what) override {
    const bool is_reduced = call.verb == Verb::all_reduce || call.verb == Verb::reduce_scatter;
    ISOBAR_CHECK(!is_reduced || call.dtype, to_text(call), ": bytes have no sum");
    if (call.device.kind == DeviceKind::emulator && call.stream != nullptr && call.received() > 0) {
      const LateResult late(call);
      run_on_host(late.call(), what);
      late.hand_over();
    } else if (call.device.kind == DeviceKind::cuda) {
      const HostCopies copies(call);
      run_on_host(copies.call(), what);
      copies.bring_back();
    } else {
      run_on_host(call, what);
    }
  }

  std::unique_ptr<Backend> split(int color, int key) override {
    const std::array<std::int64_t, 2> mine{color, key};
    const std::int64_t own = sizeof mine;
    const std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), own);
    std::vector<std::array<std::int64_t, 2>> choices(parts.size());
    run({.verb = Verb::all_gather,
         .send = mine.data(),
         .receive = choices.data(),
         .sends = {&own, 1},
         .receives = parts},
        kSplit);
    std::vector<std::pair<std::int64_t, int>> chosen;  // key, rank of this group
    for (int r = 0; r < size(); ++r)
      if (choices[r][0] == color) chosen.emplace_back(choices[r][1], r);
    std::ranges::sort(chosen);
    std::vector<int> members;
    int place = 0;
    for (const auto& [k, r] : chosen) {
      if (r == rank_) place = static_cast<int>(members.size());
      members.push_back(group_->members()[r]);
    }
    std::shared_ptr<ThreadGroup> part = group_->part_of_color(color, members);
    run({}, kSplit);  // every rank has its part
    group_->forget_parts();
    run({}, kSplit);  // no rank asks for parts of the next split before these are forgotten
    return std::make_unique<ThreadBackend>(std::move(part), place);
  }

  bool has_failed() const override { return group_->world().has_failed(); }

 private:
  static constexpr const char* kSplit = "the split of a group";

  void run_on_host(const Call& call, const std::string& what) {
    gpu::synchronize(call.device, call.stream);
    const std::vector<const Call*>& calls = group_->meet(rank_, call, what);
    do_share(calls, rank_, group_->first_summand());
    group_->part(rank_);
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

WorkListener listener_of(ThreadWorld& world, int rank) {
  WorkAccount& account = world.works[static_cast<std::size_t>(rank)];
  return {.begin =
              [&](const std::string& what, double max_timeouts) {
                const std::lock_guard lock(world.mutex);
                account.begin(what, max_timeouts);
              },
          .end =
              [&] {
                const std::lock_guard lock(world.mutex);
                account.end();
              }};
}

}  // namespace

void run_ranks(const ThreadRanks& options, const std::function<void(const Communicator& world)>& body) {
  ISOBAR_CHECK(options.ranks >= 1, "ranks must be at least 1, not ", options.ranks);
  const auto world = std::make_shared<ThreadWorld>();
  world->timeout_seconds = options.timeout_seconds;
  world->works.resize(static_cast<std::size_t>(options.ranks));
  world->turns_sums = options.turns_sums;
  std::vector<int> members(static_cast<std::size_t>(options.ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group = std::make_shared<ThreadGroup>(world, members);
  const auto run_rank = [&](int rank) {
    try {
      omp_set_num_threads(options.threads_per_rank);
      std::optional<OwnMemoryLedger> memory;
      if (options.ranks > 1) memory.emplace();
      if (options.ranks == 1) return body(Communicator());
      const Communicator own(std::make_unique<ThreadBackend>(group, rank));
      own.set_work_listener(listener_of(*world, rank));
      body(own);
    } catch (...) {
      world->fail(rank, std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 1; rank < options.ranks; ++rank) threads.emplace_back(run_rank, rank);
  } catch (const std::system_error&) {  // no more threads; the running ones are woken
    world->fail(static_cast<int>(threads.size()) + 1, std::current_exception());
  }
  run_rank(0);
  for (std::thread& thread : threads) thread.join();
  if (world->failed_rank < 0) return;
  try {
    std::rethrow_exception(world->failure);
  } catch (const Error& error) {
    if (options.ranks == 1) throw;
    throw_error("rank ", world->failed_rank, ": ", error.what());
  }
}

}  // namespace isobar
