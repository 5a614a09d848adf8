#include "comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/common/trace.h"
#include "kernels/cuda/runtime.h"

namespace isobar {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const void* data, std::int64_t elements, std::size_t size) {
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(elements) * size};
}

bool overlap(Bytes a, Bytes b) {
  const std::less<> before;  // a total order, whatever the buffers
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

// Error if the buffers overlap in another way than in place.
void check_overlap(const Call& call, int rank) {
  const std::size_t size = call.element_size();
  const Bytes send = bytes_of(call.send, call.sent(), size), receive = bytes_of(call.receive, call.received(), size);
  const bool in_place =
      call.verb == Verb::all_reduce || call.verb == Verb::broadcast ? call.send == call.receive
      : call.verb == Verb::all_gather
          ? send.data() == receive.data() + static_cast<std::size_t>(offset_of(call.receives, rank)) * size
      : call.verb == Verb::reduce_scatter
          ? receive.data() == send.data() + static_cast<std::size_t>(offset_of(call.sends, rank)) * size
          : false;
  ISOBAR_CHECK(in_place || !overlap(send, receive), to_text(call), ": what is sent and what is received overlap");
}

// The counts, checked; without counts, equal parts of `total` elements.
std::vector<std::int64_t> parts_of(Counts counts, std::int64_t total, int ranks, const char* verb) {
  if (counts.empty()) {
    ISOBAR_CHECK(total % ranks == 0, verb, ": ", total, " elements are not equal parts for ", ranks, " ranks");
    return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), total / ranks);
  }
  ISOBAR_CHECK(counts.size() == static_cast<std::size_t>(ranks), verb, ": ", counts.size(), " counts for ", ranks,
               " ranks");
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    ISOBAR_CHECK(count >= 0, verb, ": a count is ", count);
    sum += count;
  }
  ISOBAR_CHECK(sum == total, verb, ": the counts add up to ", sum, ", and the tensor has ", total, " elements");
  return {counts.begin(), counts.end()};
}

void check_alike(const Tensor& a, const Tensor& b, const char* verb) {
  ISOBAR_CHECK(a.dtype() == b.dtype() && a.device() == b.device(), verb, ": a tensor of ", name_of(a.dtype()), " on ",
               name_of(a.device().kind), " and one of ", name_of(b.dtype()), " on ", name_of(b.device().kind));
}

void check_part(const Tensor& mine, std::int64_t count, const char* verb) {
  ISOBAR_CHECK(mine.numel() == count, verb, ": this rank's part has ", mine.numel(), " elements, not ", count);
}

// Changes the first element, in the buffer itself.
void skew_first(const Call& call) {
  if (!call.dtype || call.sent() == 0) return;
  visit_any(*call.dtype, [&]<class T>(Type<T>) {
    using A = std::conditional_t<std::is_integral_v<T>, T, accumulator_t<T>>;
    T first{};
    copy_bytes(&first, Device{}, call.send, call.device, sizeof first);
    gpu::synchronize(call.device, current_stream());
    first = static_cast<T>(static_cast<A>(static_cast<A>(first) * 1.01));
    copy_bytes(const_cast<void*>(call.send), call.device, &first, Device{}, sizeof first);
    gpu::synchronize(call.device, current_stream());
  });
}

bool has_unequal_parts(const Call& call) {
  const Counts counts = call.verb == Verb::all_gather       ? call.receives
                        : call.verb == Verb::reduce_scatter ? call.sends
                                                            : Counts();
  return std::ranges::any_of(counts, [&](std::int64_t count) { return count != counts[0]; });
}

// A call of a group of one rank: copies input to output.
void copy_to_self(const Call& call) {
  if (call.send == call.receive || call.verb == Verb::barrier) return;
  ISOBAR_CHECK(call.sent() == call.received(), to_text(call), ": one rank sends ", call.sent(),
               " elements to itself, and receives ", call.received());
  if (call.sent() == 0) return;
  copy_bytes(call.receive, call.device, call.send, call.device,
             static_cast<std::size_t>(call.sent()) * call.element_size());
}

// For a trace: what this rank gives, as one row.
CallOperands given_to(const Call& call) {
  if (!call.dtype || call.sent() == 0) return {};
  return {{.shape = {call.sent()}, .dtype = *call.dtype}};
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Backend> world)
    : backend_(std::move(world)), state_(std::make_shared<RankState>()), name_("world") {
  state_->world_rank = backend_->rank();
  if (!backend_->is_imagined()) state_->fault = Fault::from_environment();
  if (state_->fault && state_->fault->rank != state_->world_rank) state_->fault.reset();
  calls_ = std::make_shared<std::int64_t>(0);
}

// Every call of every group goes through here.
void Communicator::perform(Call call) const {
  check_overlap(call, rank());
  call.stream = current_stream();
  if (size() == 1) return copy_to_self(call);
  const TracedCall traced(TraceEvent::Kind::message, name_of(call.verb), name_.c_str());
  if (traced.is_on()) traced.describe({.bytes = static_cast<double>(call.payload())}, given_to(call));
  state_->ledger.count(name_, call);
  ++*calls_;
  std::vector<std::int64_t> fewer;
  if (state_->fault && ++state_->calls == state_->fault->call) {
    inject(*state_->fault, call);
    if (state_->fault->kind == Fault::Kind::wrong_count) {
      fewer.assign(call.sends.begin(), call.sends.end());
      const auto count = std::ranges::find_if(fewer, [](std::int64_t n) { return n > 0; });
      if (count != fewer.end()) --*count;
      call.sends = fewer;
    }
  }
  const std::string what = concat("call ", *calls_, " of group ", name_);
  if (backend_->prefers_equal_parts() && has_unequal_parts(call)) return run_padded(call, what);
  backend_->run(call, what);
}

// Runs the call with equal parts, all as large as the largest. The ledger has counted the parts without padding.
void Communicator::run_padded(const Call& call, const std::string& what) const {
  const bool is_gather = call.verb == Verb::all_gather;
  const Counts counts = is_gather ? call.receives : call.sends;
  const std::int64_t most = std::ranges::max(counts), own = counts[static_cast<std::size_t>(rank())];
  const std::vector<std::int64_t> equal(counts.size(), most);
  const std::size_t part = static_cast<std::size_t>(most) * call.element_size();
  const Storage all(part * counts.size(), call.device), mine(part, call.device);
  // For each part: its offset without padding, its offset with padding, and its size, in bytes.
  const auto each_part = [&](const auto& copy) {
    for (std::size_t r = 0; r < counts.size(); ++r)
      copy(static_cast<std::size_t>(offset_of(counts, static_cast<int>(r))) * call.element_size(), r * part,
           static_cast<std::size_t>(counts[r]) * call.element_size());
  };
  const auto move = [&](void* to, std::size_t to_byte, const void* from, std::size_t from_byte, std::size_t bytes) {
    if (bytes > 0)
      copy_bytes(static_cast<std::byte*>(to) + to_byte, call.device, static_cast<const std::byte*>(from) + from_byte,
                 call.device, bytes);
  };
  Call padded = call;
  padded.send = is_gather ? mine.data() : all.data();
  padded.receive = is_gather ? all.data() : mine.data();
  padded.sends = is_gather ? Counts(&most, 1) : Counts(equal);
  padded.receives = is_gather ? Counts(equal) : Counts(&most, 1);
  const std::size_t own_bytes = static_cast<std::size_t>(own) * call.element_size();
  if (is_gather) {
    move(mine.data(), 0, call.send, 0, own_bytes);
    backend_->run(padded, what);
    each_part([&](std::size_t at, std::size_t padded_at, std::size_t bytes) {
      move(call.receive, at, all.data(), padded_at, bytes);
    });
  } else {
    each_part([&](std::size_t at, std::size_t padded_at, std::size_t bytes) {
      move(all.data(), padded_at, call.send, at, bytes);
    });
    backend_->run(padded, what);
    move(call.receive, 0, mine.data(), 0, own_bytes);
  }
}

void Communicator::inject(const Fault& fault, const Call& call) const {
  const std::string which = concat(to_text(call), ", call ", state_->calls, " of this rank");
  switch (fault.kind) {
    case Fault::Kind::die:
      std::raise(SIGKILL);
      break;
    case Fault::Kind::fail:
      throw_error("ISOBAR_FAULT: an error was asked for at ", which);
    case Fault::Kind::hang:
      while (!backend_->has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      break;
    case Fault::Kind::slow:
      std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
      break;
    case Fault::Kind::wrong_count:
      break;
    case Fault::Kind::skew:
      skew_first(call);
      break;
  }
}

void Communicator::all_reduce(const Tensor& x, Reduce reduce) const {
  const std::int64_t n = x.numel();
  perform({.verb = Verb::all_reduce,
           .dtype = x.dtype(),
           .reduce = reduce,
           .send = x.data(),
           .receive = x.data(),
           .sends = {&n, 1},
           .receives = {&n, 1},
           .device = x.device()});
}

void Communicator::all_gather(const Tensor& mine, const Tensor& all, Counts counts) const {
  check_alike(mine, all, "all_gather");
  const std::vector<std::int64_t> parts = parts_of(counts, all.numel(), size(), "all_gather");
  const std::int64_t own = parts[static_cast<std::size_t>(rank())];
  check_part(mine, own, "all_gather");
  perform({.verb = Verb::all_gather,
           .dtype = all.dtype(),
           .send = mine.data(),
           .receive = all.data(),
           .sends = {&own, 1},
           .receives = parts,
           .device = all.device()});
}

void Communicator::reduce_scatter(const Tensor& all, const Tensor& mine, Counts counts) const {
  check_alike(mine, all, "reduce_scatter");
  const std::vector<std::int64_t> parts = parts_of(counts, all.numel(), size(), "reduce_scatter");
  const std::int64_t own = parts[static_cast<std::size_t>(rank())];
  check_part(mine, own, "reduce_scatter");
  perform({.verb = Verb::reduce_scatter,
           .dtype = all.dtype(),
           .send = all.data(),
           .receive = mine.data(),
           .sends = parts,
           .receives = {&own, 1},
           .device = all.device()});
}

void Communicator::broadcast(const Tensor& x, int root) const {
  ISOBAR_CHECK(root >= 0 && root < size(), "broadcast: the root is rank ", root, " of ", size());
  const std::int64_t n = x.numel();
  perform({.verb = Verb::broadcast,
           .dtype = x.dtype(),
           .send = x.data(),
           .receive = x.data(),
           .sends = {&n, 1},
           .receives = {&n, 1},
           .root = root,
           .device = x.device()});
}

void Communicator::all_to_all(const Tensor& send, Counts to, const Tensor& receive, Counts from) const {
  check_alike(send, receive, "all_to_all");
  const std::vector<std::int64_t> sends = parts_of(to, send.numel(), size(), "all_to_all");
  const std::vector<std::int64_t> receives = parts_of(from, receive.numel(), size(), "all_to_all");
  perform({.verb = Verb::all_to_all,
           .dtype = send.dtype(),
           .send = send.data(),
           .receive = receive.data(),
           .sends = sends,
           .receives = receives,
           .device = send.device()});
}

void Communicator::send_receive(const Tensor& send, int to, const Tensor& receive, int from) const {
  ISOBAR_CHECK(send.defined() == (to != Call::kNoRank) && receive.defined() == (from != Call::kNoRank),
               "send_receive: a tensor without a rank, or a rank without a tensor");
  ISOBAR_CHECK(to >= Call::kNoRank && to < size() && from >= Call::kNoRank && from < size(), "send_receive: to rank ",
               to, " and from rank ", from, " of ", size());
  if (send.defined() && receive.defined()) check_alike(send, receive, "send_receive");
  const Tensor& any = send.defined() ? send : receive;
  const std::int64_t sent = send.defined() ? send.numel() : 0, received = receive.defined() ? receive.numel() : 0;
  perform({.verb = Verb::send_receive,
           .dtype = any.defined() ? std::optional(any.dtype()) : std::nullopt,
           .send = send.defined() ? send.data() : nullptr,
           .receive = receive.defined() ? receive.data() : nullptr,
           .sends = {&sent, 1},
           .receives = {&received, 1},
           .to = to,
           .from = from,
           .device = any.defined() ? any.device() : Device{}});
}

void Communicator::barrier() const {
  perform({});
}

void Communicator::all_reduce(std::span<double> values, Reduce reduce) const {
  const auto n = static_cast<std::int64_t>(values.size());
  perform({.verb = Verb::all_reduce,
           .dtype = DType::fp64,
           .reduce = reduce,
           .send = values.data(),
           .receive = values.data(),
           .sends = {&n, 1},
           .receives = {&n, 1}});
}

void Communicator::all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const {
  const auto own = static_cast<std::int64_t>(mine.size());
  const std::vector<std::int64_t> parts = parts_of({}, static_cast<std::int64_t>(all.size()), size(), "all_gather");
  ISOBAR_CHECK(own == parts[0], "all_gather: this rank's part has ", own, " bytes, not ", parts[0]);
  perform(
      {.verb = Verb::all_gather, .send = mine.data(), .receive = all.data(), .sends = {&own, 1}, .receives = parts});
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) const {
  const auto n = static_cast<std::int64_t>(bytes.size());
  perform({.verb = Verb::broadcast,
           .send = bytes.data(),
           .receive = bytes.data(),
           .sends = {&n, 1},
           .receives = {&n, 1},
           .root = root});
}

std::string Communicator::broadcast_text(std::string text, int root) const {
  std::uint64_t length = text.size();
  broadcast_bytes(std::as_writable_bytes(std::span(&length, 1)), root);
  text.resize(length);
  broadcast_bytes(std::as_writable_bytes(std::span(text)), root);
  return text;
}

Communicator Communicator::split(int color, int key, std::string name) const {
  if (size() > 1) return group_of(backend_->split(color, key), std::move(name));
  Communicator part;
  part.name_ = std::move(name);
  part.state_ = state_;
  return part;
}

Communicator Communicator::group_of(std::unique_ptr<Backend> members, std::string name) const {
  Communicator part;
  part.name_ = std::move(name);
  part.state_ = state_;
  ++state_->formed;
  if (members->size() > 1) part.backend_ = std::move(members);
  part.calls_ = std::make_shared<std::int64_t>(0);
  return part;
}

Communicator Communicator::named(std::string name) const {
  Communicator same = *this;
  same.name_ = std::move(name);
  return same;
}

const CommLedger& Communicator::ledger() const {
  static const CommLedger nothing;
  return state_ ? state_->ledger : nothing;
}

void Communicator::set_work_listener(WorkListener listener) const {
  if (state_) state_->work = std::move(listener);
}

Working::Working(const Communicator& ranks, const std::string& what, double max_timeouts) : rank_(ranks.state_) {
  if (rank_ && rank_->work.begin) rank_->work.begin(what, max_timeouts);
}

Working::~Working() {
  if (rank_ && rank_->work.end) rank_->work.end();
}

bool is_true_on_any(const Communicator& ranks, bool holds) {
  if (ranks.size() == 1) return holds;
  double vote = holds ? 1 : 0;
  ranks.all_reduce({&vote, 1}, Reduce::max);
  return vote > 0;
}

}  // namespace isobar
