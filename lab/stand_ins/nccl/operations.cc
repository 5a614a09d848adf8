// How operations run when their streams reach them: collectives in rounds, in which every rank shows a piece of its
// data to all; messages through the box of their pair.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/common/dtype.h"
#include "lab/stand_ins/nccl/member.h"
#include "lab/stand_ins/nccl/model.h"

namespace isobar::nccl::stand_in {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMaxIdle{
    1500};  // ranks that make no progress for this long may wait for each other

std::uint64_t bit(int rank) {
  return std::uint64_t{1} << rank;
}

template <class T>
T combined(T a, T b, Op op) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, fp16>) {
    return T(combined(static_cast<float>(a), static_cast<float>(b), op));  // rounded at every step, as in a ring
  } else {
    // Whole numbers that are too large go round, as on a GPU: behind a rank's own part may lie padding, which nobody
    // has written and nobody reads.
    using Sum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    if (op == kSum) return static_cast<T>(static_cast<Sum>(a) + static_cast<Sum>(b));
    if (op == kProd) return static_cast<T>(static_cast<Sum>(a) * static_cast<Sum>(b));
    if constexpr (std::is_floating_point_v<T>) return op == kMax ? std::fmax(a, b) : std::fmin(a, b);
    return op == kMax ? std::max(a, b) : std::min(a, b);
  }
}

// to[i]: reduced over all ranks, from rank `first` on, cyclically.
template <class T>
void reduce_as(void* to, const std::vector<const std::byte*>& parts, std::size_t first, std::size_t n, Op op) {
  auto* result = static_cast<T*>(to);
  for (std::size_t i = 0; i < n; ++i) {
    const auto element = [&](std::size_t r) { return reinterpret_cast<const T*>(parts[r % parts.size()])[i]; };
    T x = element(first);
    for (std::size_t r = first + 1; r < first + parts.size(); ++r) x = combined(x, element(r), op);
    result[i] = x;
  }
}

void reduce_bytes(void* to, const std::vector<const std::byte*>& parts, std::size_t first, std::size_t n, Type type,
                  Op op) {
  switch (type) {
    case kInt8:
      return reduce_as<std::int8_t>(to, parts, first, n, op);
    case kUint8:
      return reduce_as<std::uint8_t>(to, parts, first, n, op);
    case kInt32:
      return reduce_as<std::int32_t>(to, parts, first, n, op);
    case kUint32:
      return reduce_as<std::uint32_t>(to, parts, first, n, op);
    case kInt64:
      return reduce_as<std::int64_t>(to, parts, first, n, op);
    case kUint64:
      return reduce_as<std::uint64_t>(to, parts, first, n, op);
    case kFloat16:
      return reduce_as<fp16>(to, parts, first, n, op);
    case kFloat32:
      return reduce_as<float>(to, parts, first, n, op);
    case kFloat64:
      return reduce_as<double>(to, parts, first, n, op);
    case kBfloat16:
      return reduce_as<bf16>(to, parts, first, n, op);
  }
}

}  // namespace

std::size_t size_of_type(Type type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

// ---- Waiting --------------------------------------------------------------------------------------------------------

bool Member::wait(const std::function<std::uint64_t()>& waits_for) {
  idle_since_ = Clock::now();
  for (;;) {
    const std::uint32_t seen = slot().bell;
    std::uint64_t left = 0;  // read first: what they did before leaving counts
    for (int r = 0; r < place_.size; ++r)
      if (segment_.rank(r).state == State::left) left |= bit(r);
    const std::uint64_t needed = waits_for();
    if (needed == 0) return true;
    if (!rest(seen, needed, left)) return false;
  }
}

bool Member::rest(std::uint32_t seen, std::uint64_t needed, std::uint64_t left) {
  if (aborted_) return false;
  if ((needed & left) != 0)
    segment_.fail(concat(operation_, ": rank ", place_.rank, " waits for rank ", std::countr_zero(needed & left),
                         ", which has destroyed its communicator"));
  if (segment_.has_failed()) {
    sentence_ = segment_.failure();
    return false;
  }
  find_dead_ranks();
  find_deadlock();
  segment_.sleep(place_.rank, seen);
  return true;
}

// The ranks that the running operation of `rank` waits for, and that are in other operations.
std::uint64_t Member::edges_of(int rank) const {
  const RankSlot& own = segment_.rank(rank);
  std::uint64_t edges = 0;
  for (int r = 0; r < place_.size; ++r) {
    const RankSlot& other = segment_.rank(r);
    if (r == rank || other.activity == Activity::none) continue;
    const bool exchanges = other.activity == Activity::messages;
    if (own.activity == Activity::collective && exchanges) edges |= bit(r);
    if (own.activity != Activity::messages) continue;
    if ((own.sends & bit(r)) != 0 && !(exchanges && (other.receives & bit(rank)) != 0)) edges |= bit(r);
    if ((own.receives & bit(r)) != 0 && !(exchanges && (other.sends & bit(rank)) != 0)) edges |= bit(r);
  }
  return edges;
}

// Fails if ranks wait for each other in a cycle and make no progress.
void Member::find_deadlock() {
  std::uint64_t steps = 0;
  for (int r = 0; r < place_.size; ++r) steps += segment_.rank(r).steps;
  if (steps != idle_steps_) idle_since_ = Clock::now();
  idle_steps_ = steps;
  if (Clock::now() - idle_since_ < kMaxIdle) return;
  // All ranks reachable from this one; if it is among them, there is a cycle.
  std::uint64_t reached = edges_of(place_.rank), before = 0;
  while (reached != before) {
    before = reached;
    for (int r = 0; r < place_.size; ++r)
      if ((before & bit(r)) != 0) reached |= edges_of(r);
  }
  if ((reached & bit(place_.rank)) == 0) return;
  std::string ranks;
  for (int r = 0; r < place_.size; ++r)
    if ((reached & bit(r)) != 0) ranks += concat(ranks.empty() ? "" : ", ", r);
  segment_.fail(concat(operation_, ": ranks ", ranks,
                       " wait for each other for ever: sends and receives that belong together must be in one group"));
}

// ---- Collectives ----------------------------------------------------------------------------------------------------

bool Member::show(const void* data, std::size_t bytes) {
  const auto those_behind = [&](auto member, std::uint64_t round) {
    std::uint64_t ranks = 0;
    for (int r = 0; r < place_.size; ++r)
      if (segment_.rank(r).*member < round) ranks |= bit(r);
    return ranks;
  };
  // The box was last used two rounds ago.
  if (round_ >= 2 && !wait([&] { return those_behind(&RankSlot::taken, round_ - 1); })) return false;
  if (bytes > 0) program().copy(slot().box[round_ % 2], data, bytes);
  slot().times[round_ % 2] = device_->time.load();
  slot().posted = round_ + 1;
  ++slot().steps;
  segment_.ring_all();
  return wait([&] { return those_behind(&RankSlot::posted, round_ + 1); });
}

std::uint64_t Member::latest_arrival() const {
  std::uint64_t latest = 0;
  for (int r = 0; r < place_.size; ++r) latest = std::max(latest, segment_.rank(r).times[round_ % 2].load());
  return latest;
}

void Member::take() {
  slot().taken = ++round_;
  ++slot().steps;
  segment_.ring_all();
}

void Member::run_collective(const Operation& o, std::size_t trace) {
  const std::size_t size = size_of_type(o.type), piece = kBox / size, ranks = static_cast<std::size_t>(place_.size);
  const std::size_t total = o.verb == Verb::reduce_scatter ? o.count * ranks : o.count;
  const bool shows = o.verb != Verb::broadcast || place_.rank == o.root;
  const std::size_t slice = (total + ranks - 1) / ranks;  // of a ring: its sum begins at the next rank
  auto* to = static_cast<std::byte*>(o.receive);
  std::vector<std::byte> sum(kBox);
  std::size_t first = 0;
  std::uint64_t began = 0;
  do {  // at least one round: an operation without elements also has its place in the stream
    const std::size_t n = std::min(piece, total - first);
    if (!show(static_cast<const std::byte*>(o.send) + (shows ? first * size : 0), shows ? n * size : 0)) return;
    if (first == 0) began = latest_arrival();
    std::vector<const std::byte*> boxes;
    for (int r = 0; r < place_.size; ++r) boxes.push_back(segment_.rank(r).box[round_ % 2]);
    if (o.verb == Verb::broadcast) {
      if (n > 0) program().copy(to + first * size, boxes[static_cast<std::size_t>(o.root)], n * size);
    } else if (o.verb == Verb::all_gather) {
      for (std::size_t r = 0; r < ranks && n > 0; ++r)
        program().copy(to + (r * o.count + first) * size, boxes[r], n * size);
    } else if (n > 0 && (o.verb != Verb::reduce || place_.rank == o.root)) {
      for (std::size_t i = 0; i < n;) {  // slice by slice
        const std::size_t at_slice = (first + i) / slice;
        const std::size_t count = std::min(n - i, (at_slice + 1) * slice - (first + i));
        std::vector<const std::byte*> parts = boxes;
        for (const std::byte*& part : parts) part += i * size;
        reduce_bytes(sum.data() + i * size, parts, (at_slice + 1 + place_.turn) % ranks, count, o.type, o.op);
        i += count;
      }
      // For reduce_scatter only this rank's part.
      const std::size_t own = o.verb == Verb::reduce_scatter ? static_cast<std::size_t>(place_.rank) * o.count : 0;
      const std::size_t begin = std::max(first, own), end = std::min(first + n, own + o.count);
      if (begin < end)
        program().copy(to + (begin - own) * size, sum.data() + (begin - first) * size, (end - begin) * size);
    }
    take();
    first += n;
  } while (first < total);
  device_->time = began + nanoseconds_of(o.verb, o.count * size, place_.size, Link::chosen());
  trace_times(trace, began, device_->time);
}

// ---- Messages -------------------------------------------------------------------------------------------------------

struct Member::Transfer {
  const Operation* operation;
  std::size_t bytes = 0, done = 0;
  bool begun = false, finished = false;  // a message without elements also fills the box once
};

// Fills or empties the pair's box if possible. True: it has made progress.
bool Member::step(Transfer& t) {
  const Operation& o = *t.operation;
  const bool sends = o.verb == Verb::send;
  PairSlot& pair = sends ? segment_.pair(place_.rank, o.root) : segment_.pair(o.root, place_.rank);
  const bool is_full = pair.filled != pair.emptied;
  const std::size_t n = std::min(kPairBox, t.bytes - t.done);
  if (sends && t.begun && t.done == t.bytes) {  // done when the receiver has everything
    t.finished = !is_full;
    return t.finished;
  }
  if (sends == is_full) return false;
  if (sends && !t.begun) pair.time = device_->time.load();
  if (!sends && !t.begun) began_ = std::max(began_, pair.time.load());
  if (sends && n > 0) program().copy(pair.box, static_cast<const std::byte*>(o.send) + t.done, n);
  if (!sends && n > 0) program().copy(static_cast<std::byte*>(o.receive) + t.done, pair.box, n);
  ++(sends ? pair.filled : pair.emptied);
  t.begun = true;
  t.done += n;
  t.finished = !sends && t.done == t.bytes;
  segment_.ring(o.root);
  return true;
}

// Advances every transfer as far as possible; returns the ranks that are still needed.
std::uint64_t Member::advance(std::vector<Transfer>& transfers) {
  for (bool moved = true; moved;) {
    moved = false;
    std::uint64_t sends = 0, receives = 0;
    for (Transfer& t : transfers) {
      std::uint64_t& open = t.operation->verb == Verb::send ? sends : receives;
      if (t.finished || (open & bit(t.operation->root)) != 0) continue;  // one at a time with each rank
      if (step(t)) moved = true;
      if (!t.finished) open |= bit(t.operation->root);
    }
    slot().sends = sends;
    slot().receives = receives;
    if (moved) ++slot().steps;
    if (!moved) return sends | receives;
  }
  return 0;
}

void Member::run_messages(const Batch& batch) {
  std::vector<Transfer> transfers;
  std::size_t sent = 0, received = 0;
  for (const Operation& o : batch.operations) {
    if (!o.is_message()) continue;
    transfers.push_back({&o, o.count * size_of_type(o.type)});
    (o.verb == Verb::send ? sent : received) += transfers.back().bytes;
  }
  if (transfers.empty()) return;
  slot().activity = Activity::messages;
  began_ = device_->time;
  if (!wait([&] { return advance(transfers); })) return;
  device_->time = began_ + nanoseconds_of(Verb::send, std::max(sent, received), place_.size, Link::chosen());
  for (std::size_t i = 0; i < batch.operations.size(); ++i)
    if (batch.operations[i].is_message()) trace_times(batch.traces[i], began_, device_->time);
}

std::string Member::run(const Batch& batch, bool dropped) {
  ++running_;
  ++device_->running;
  sentence_.clear();
  operation_ = concat(batch.first, ", ", to_text(batch.operations.front()));
  if (dropped && !aborted_)
    segment_.fail(
        concat(operation_, ": rank ", place_.rank, " does not come to it: earlier work of its stream failed"));
  else if (!aborted_) {
    for (const std::size_t entry : batch.traces) trace_begun(entry);
    slot().activity = Activity::collective;
    for (std::size_t i = 0; i < batch.operations.size(); ++i)
      if (!batch.operations[i].is_message() && sentence_.empty() && !aborted_)
        run_collective(batch.operations[i], batch.traces[i]);
    if (sentence_.empty() && !aborted_) run_messages(batch);
    slot().activity = Activity::none;
    for (const std::size_t entry : batch.traces) trace_ended(entry);
  }
  std::string sentence = sentence_;
  --device_->running;
  --running_;
  return sentence;
}

}  // namespace isobar::nccl::stand_in
