#include "lab/stand_ins/nccl/member.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <thread>
#include <utility>

namespace isobar::nccl::stand_in {
namespace {

// The names of this process's communicators, for sentences about several of them.
std::string name_of(std::uint64_t id, const std::string& name = "") {
  static std::mutex mutex;
  static auto* names = new std::map<std::uint64_t, std::string>;
  const std::lock_guard lock(mutex);
  std::string& known = (*names)[id];
  if (!name.empty()) known = name;
  return known;
}

// splitmix64
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int progress_time() {
  const char* text = std::getenv("ISOBAR_NCCL_STAND_IN_PROGRESS");
  return text == nullptr ? 0 : std::atoi(text);
}

// Whether each communicator's sums begin at another rank, as if NCCL had found rings in another order.
bool turns_sums() {
  const char* text = std::getenv("ISOBAR_NCCL_STAND_IN_TURN");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

std::atomic<std::size_t> registered_in_process{0};

std::string to_text(const Description& d) {
  if (d.verb == Verb::split) return "split";
  const bool has_root = d.verb == Verb::broadcast || d.verb == Verb::reduce;
  return stand_in::to_text(d.verb, d.count, d.type, d.op) + (has_root ? concat(" with root ", d.root) : "");
}

}  // namespace

std::string to_text(Verb verb, std::uint64_t count, int type, int op) {
  constexpr const char* verbs[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                   "reduce_scatter", "split",  "send",      "receive"};
  constexpr const char* types[] = {"int8", "uint8", "i32", "uint32", "int64", "uint64", "fp16", "fp32", "fp64", "bf16"};
  const bool reduces = verb == Verb::all_reduce || verb == Verb::reduce || verb == Verb::reduce_scatter;
  const char* operation = !reduces || op == kSum ? "" : op == kMax ? " (max)" : " (another operation)";
  return concat(verbs[static_cast<int>(verb)], operation, " of ", count, ' ', types[type]);
}

std::shared_ptr<DeviceState> DeviceState::of(const std::string& name) {
  static std::mutex mutex;
  static auto* devices = new std::map<std::string, std::shared_ptr<DeviceState>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<DeviceState>& device = (*devices)[name];
  if (device == nullptr) device = std::make_shared<DeviceState>();
  return device;
}

// ---- Creation and end -----------------------------------------------------------------------------------------------

Member::Member(const Place& place)
    : place_(place),
      segment_(place.id, place.size),
      device_(DeviceState::of(place.device_name)),
      sent_(static_cast<std::size_t>(place.size)),
      expected_(sent_.size()) {
  name_of(place.id, place.name);
  State none = State::absent;
  if (!slot().state.compare_exchange_strong(none, State::arriving)) {
    const std::string sentence = concat(place.name, ": rank ", place.rank, " was given to two ranks");
    segment_.fail(sentence);
    refuse(kInvalidArgument, sentence);
  }
  slot().process = ::getpid();
  slot().device_index = place.device;
  slot().start_time = start_time_of(::getpid());
  std::strncpy(slot().device, place.device_name.c_str(), sizeof(RankSlot::device) - 1);
  slot().state = State::here;
  segment_.ring_all();
  if (++segment_.header().opened == static_cast<std::uint32_t>(place.size)) segment_.remove_name();
}

// Memory that a network card may access is locked, up to the limit of the process. With
// ISOBAR_NCCL_STAND_IN_REGISTERED=BYTES a communicator's boxes count towards the limit, unless it shares another one's.
void Member::register_memory() {
  const char* limit = std::getenv("ISOBAR_NCCL_STAND_IN_REGISTERED");
  if (limit == nullptr || place_.shares) return;
  const auto peers = static_cast<std::size_t>(place_.size - 1);
  const std::size_t bytes = sizeof(RankSlot::box) + 2 * peers * sizeof(PairSlot::box);
  const std::size_t before = registered_in_process.fetch_add(bytes);
  registered_ = bytes;
  if (before + bytes > std::strtoull(limit, nullptr, 10))
    refuse(kSystemError, place_.name, ", rank ", place_.rank, ": ", bytes, " bytes cannot be registered beside ",
           before, ": the limit of locked memory (ulimit -l) is ", limit, " bytes");
}

bool Member::has_all_ranks() {
  if (segment_.has_failed()) refuse(kInvalidUsage, segment_.failure());
  for (int r = 0; r < place_.size; ++r)
    if (segment_.rank(r).state < State::here) return false;
  for (int a = 0; a < place_.size; ++a) {
    for (int b = 0; b < a; ++b) {
      if (std::strcmp(segment_.rank(a).device, segment_.rank(b).device) == 0)
        refuse(kInvalidUsage, place_.name, ": ranks ", b, " and ", a, " are both on device ", segment_.rank(a).device);
    }
  }
  const std::lock_guard lock(device_->mutex);
  device_->members.push_back(this);
  return true;
}

Member::~Member() {
  registered_in_process -= registered_;
  if (slot().state == State::here) leave(State::aborted);
}

void Member::signal_abort() noexcept {
  aborted_ = true;
  slot().state = State::aborted;
  segment_.ring_all();
}

void Member::leave(State how) noexcept {
  {
    const std::lock_guard lock(mutex_);
    task_ = nullptr;  // it may hold a part that is being created
  }
  if (how == State::aborted) aborted_ = true;
  slot().state = how;
  segment_.ring_all();
  while (how == State::aborted && device_->running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (segment_.header().opened < static_cast<std::uint32_t>(place_.size)) segment_.remove_name();
  while (running_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(device_->mutex);
  std::erase(device_->members, this);
  if (how == State::aborted && device_->last_communicator == place_.id) device_->last = nullptr;  // none follows it
}

std::string Member::call_name(std::uint64_t call) const {
  return concat(place_.name, ", call ", call + 1);
}

void Member::fail(const std::string& sentence) const {
  segment_.fail(sentence);
  refuse(kInvalidUsage, segment_.failure());
}

void Member::fail_device(const std::string& sentence) const {
  {
    const std::lock_guard lock(device_->mutex);
    for (const Member* member : device_->members) member->segment_.fail(sentence);
  }
  fail(sentence);
}

// ---- The operation in progress --------------------------------------------------------------------------------------

// Every third call of a nonblocking communicator answers ncclInProgress twice before anything happens. With
// ISOBAR_NCCL_STAND_IN_PROGRESS=MICROSECONDS each does, and a separate thread ends it after that time, as NCCL's
// threads do.
void Member::prepare(Task task) {
  const std::lock_guard lock(mutex_);
  task_ = std::move(task);
  delay_ = !place_.blocking && begun_++ % 3 == 0 ? 2 : 0;
}

Result Member::begin(Task task) {
  prepare(std::move(task));
  if (!place_.blocking && progress_time() > 0) {
    finish_in_thread();
    return kInProgress;
  }
  Result result = poll();
  while (place_.blocking && result == kInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = poll();
  }
  return result;
}

void Member::finish_in_thread() {
  {
    const std::lock_guard lock(mutex_);
    has_thread_ = true;
    delay_ = 0;
  }
  count_thread();
  std::thread([self = shared_from_this()] {
    program().use_device(self->place_.device, self->place_.device_name.c_str());
    std::this_thread::sleep_for(std::chrono::microseconds(progress_time()));
    while (self->step() == kInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard lock(self->mutex_);
    self->has_thread_ = false;
  }).detach();
}

Result Member::look() {
  if (!place_.blocking) return poll();
  if (aborted_) return kInternalError;
  if (segment_.has_failed()) return note({kInvalidUsage, segment_.failure()});
  find_dead_ranks();
  const std::lock_guard lock(mutex_);
  return result_;
}

Result Member::poll() {
  {
    const std::lock_guard lock(mutex_);
    if (has_thread_ && result_ == kSuccess) return aborted_ ? kInternalError : kInProgress;
  }
  return step();
}

Result Member::step() {
  if (aborted_) return kInternalError;
  if (segment_.has_failed()) return note({kInvalidUsage, segment_.failure()});
  find_dead_ranks();
  Task task;
  {
    const std::lock_guard lock(mutex_);
    if (result_ != kSuccess) return result_;
    if (!task_) return kSuccess;
    if (stepping_ || delay_-- > 0) return kInProgress;
    stepping_ = true;
    task = task_;
  }
  bool done = true;
  try {
    done = task();
  } catch (const Refusal& refusal) {
    note(refusal);
  } catch (const std::exception& error) {  // on the null stream, where work runs at the call
    note({kInvalidUsage, error.what()});
  }
  const std::lock_guard lock(mutex_);
  stepping_ = false;
  delay_ = 0;
  if (done) task_ = nullptr;
  return result_ != kSuccess ? result_ : done ? kSuccess : kInProgress;
}

bool Member::is_busy() {
  const std::lock_guard lock(mutex_);
  return task_ != nullptr;
}

Result Member::note(const Refusal& refusal) {
  const std::lock_guard lock(mutex_);
  if (result_ == kSuccess) {
    result_ = refusal.result;
    error_ = refusal.sentence;
  }
  return result_;
}

std::string Member::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

// Finds ranks whose process has ended, or that aborted the communicator. Operations keep waiting, as NCCL's do.
void Member::find_dead_ranks() {
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (result_ != kSuccess || now - looked_ < std::chrono::milliseconds(40)) return;
    looked_ = now;
  }
  for (int r = 0; r < place_.size; ++r) {
    const RankSlot& other = segment_.rank(r);
    const State state = other.state;
    if (r == place_.rank || state < State::here || state == State::left) continue;
    if (state == State::aborted)
      note({kRemoteError, concat(place_.name, ": rank ", r, " has aborted the communicator")});
    else if (other.process != slot().process && !is_alive(other.process, other.start_time))
      note({kRemoteError, concat(place_.name, ": the process of rank ", r, " has ended")});
  }
}

// ---- Describing and comparing calls ---------------------------------------------------------------------------------

// The number of earlier calls of the device's other communicators. It is equal on all ranks that share two of them, or
// the ranks call them in different orders.
std::uint64_t Member::communicators_before(Description& description) const {
  const std::lock_guard lock(device_->mutex);
  description.others = 0;
  for (const Member* other : device_->members) {
    if (other == this || description.others == kOthers) continue;
    description.order[description.others++] = {other->place_.id, other->issued_};
  }
  return description.others;
}

Description Member::describe(const Operation& operation) const {
  Description description{};
  description.verb = operation.verb;
  description.type = static_cast<std::int8_t>(operation.type);
  description.op = static_cast<std::int8_t>(operation.op);
  description.root = operation.is_message() ? 0 : operation.root;
  description.count = operation.count;
  communicators_before(description);
  return description;
}

namespace {

// A sentence on communicators that two ranks have called in different orders, or an empty one.
std::string misorder(const Description& a, int rank_a, const Description& b, int rank_b) {
  for (std::uint32_t i = 0; i < a.others; ++i) {
    for (std::uint32_t j = 0; j < b.others; ++j) {
      if (a.order[i].communicator != b.order[j].communicator || a.order[i].calls == b.order[j].calls) continue;
      return concat("before it rank ", rank_a, " made ", a.order[i].calls, " calls of ",
                    name_of(a.order[i].communicator), ", rank ", rank_b, " ", b.order[j].calls,
                    ": communicators are called in different orders");
    }
  }
  return {};
}

bool are_alike(const Description& a, const Description& b) {
  if (a.verb != b.verb) return false;
  return a.verb == Verb::split || (a.type == b.type && a.op == b.op && a.root == b.root && a.count == b.count);
}

}  // namespace

void Member::compare_call(std::uint64_t call, int other) const {
  if (segment_.rank(other).issued <= call) return;
  const int low = std::min(place_.rank, other), high = std::max(place_.rank, other);
  const Description& a = segment_.rank(low).calls[call % kCalls];
  const Description& b = segment_.rank(high).calls[call % kCalls];
  if (!are_alike(a, b))
    fail(concat(call_name(call), ": rank ", low, " calls ", to_text(a), ", rank ", high, ' ', to_text(b)));
  const std::string wrong = misorder(a, low, b, high);
  if (!wrong.empty()) fail_device(concat(call_name(call), ", ", to_text(a), ": ", wrong));
}

void Member::post(const Description& description) {
  const std::uint64_t call = issued_;
  for (int r = 0; r < place_.size; ++r)
    if (call - std::min<std::uint64_t>(call, segment_.rank(r).issued) >= kCalls - 1)
      refuse(kInternalError, call_name(call), ": the stand-in lets a rank be ", kCalls, " calls ahead at most");
  slot().calls[call % kCalls] = description;
  slot().issued = ++issued_;
  for (int r = 0; r < place_.size; ++r)
    if (r != place_.rank) compare_call(call, r);
  segment_.ring_all();
}

void Member::post_message(const Operation& operation) {
  const bool sends = operation.verb == Verb::send;
  const int from = sends ? place_.rank : operation.root, to = sends ? operation.root : place_.rank;
  PairSlot& pair = segment_.pair(from, to);
  std::uint64_t& count = (sends ? sent_ : expected_)[static_cast<std::size_t>(operation.root)];
  const std::uint64_t message = count;
  std::atomic<std::uint64_t>& own = sends ? pair.sent : pair.expected;
  const std::atomic<std::uint64_t>& others = sends ? pair.expected : pair.sent;
  if (message - std::min<std::uint64_t>(message, others) >= kMessages - 1)
    refuse(kInternalError, place_.name, ": the stand-in lets a rank be ", kMessages, " messages ahead at most");
  (sends ? pair.sends : pair.expects)[message % kMessages] = describe(operation);
  own = ++count;
  if (others <= message) return;
  const Description& sent = pair.sends[message % kMessages];
  const Description& expected = pair.expects[message % kMessages];
  const std::string name = concat(place_.name, ", message ", message + 1, " from rank ", from, " to rank ", to);
  if (sent.count != expected.count || sent.type != expected.type)
    fail(concat(name, ": rank ", from, " makes a ", to_text(sent), ", rank ", to, " a ", to_text(expected)));
  const std::string wrong = misorder(sent, from, expected, to);
  if (!wrong.empty()) fail_device(concat(name, ": ", wrong));
}

// ---- Split ----------------------------------------------------------------------------------------------------------

void Member::describe_split(int color, int key) {
  Description description{};
  description.verb = Verb::split;
  description.root = color;
  description.count = static_cast<std::uint64_t>(static_cast<std::int64_t>(key));
  communicators_before(description);
  post(description);
}

bool Member::make_part(int color, bool blocking, bool splits_share, std::shared_ptr<Member>& part) {
  const std::uint64_t call = issued_ - 1;
  if (part != nullptr) return part->has_all_ranks();
  std::vector<std::pair<std::int64_t, int>> members;  // key, rank
  for (int r = 0; r < place_.size; ++r) {
    if (segment_.rank(r).issued <= call) return false;
    const Description& choice = segment_.rank(r).calls[call % kCalls];
    if (choice.root == color) members.emplace_back(static_cast<std::int64_t>(choice.count), r);
  }
  if (color == kNoColor) return true;
  std::ranges::sort(members);
  const auto own = std::ranges::find_if(members, [&](const auto& member) { return member.second == place_.rank; });
  part = std::make_shared<Member>(
      Place{.id = mix(mix(place_.id + call) + static_cast<std::uint64_t>(color)),
            .name = concat(place_.name, '/', call + 1, '.', color),
            .rank = static_cast<int>(own - members.begin()),
            .size = static_cast<int>(members.size()),
            .device = place_.device,
            .device_name = place_.device_name,
            .blocking = blocking,
            .splits_share = splits_share,
            .shares = place_.splits_share,
            .turn = turns_sums() ? mix(place_.turn + call * kMaxRanks + static_cast<std::uint64_t>(color)) : 0});
  part->register_memory();
  return part->has_all_ranks();
}

// ---- Calls ----------------------------------------------------------------------------------------------------------

namespace {

struct Bytes {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

bool overlap(Bytes a, Bytes b) {
  const auto* x = static_cast<const std::byte*>(a.data);
  const auto* y = static_cast<const std::byte*>(b.data);
  return a.bytes > 0 && b.bytes > 0 && std::less<>()(x, y + b.bytes) && std::less<>()(y, x + a.bytes);
}

const void* at(const void* data, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

// A rank's input and output: no bytes for a buffer that is not used.
std::pair<Bytes, Bytes> buffers_of(const Operation& o, int rank, int size) {
  const std::size_t n = o.count * size_of_type(o.type), all = n * static_cast<std::size_t>(size);
  switch (o.verb) {
    case Verb::all_gather:
      return {{o.send, n}, {o.receive, all}};
    case Verb::reduce_scatter:
      return {{o.send, all}, {o.receive, n}};
    case Verb::reduce:
      return {{o.send, n}, {o.receive, rank == o.root ? n : 0}};
    case Verb::broadcast:
      return {{o.send, rank == o.root ? n : 0}, {o.receive, n}};
    case Verb::send:
      return {{o.send, n}, {}};
    case Verb::receive:
      return {{}, {o.receive, n}};
    default:
      return {{o.send, n}, {o.receive, n}};
  }
}

std::vector<emulator::StandInBuffer> all_buffers_of(const std::vector<Operation>& operations, const Place& place) {
  std::vector<emulator::StandInBuffer> all;
  for (const Operation& o : operations) {
    const auto [send, receive] = buffers_of(o, place.rank, place.size);
    all.push_back({send.data, send.bytes, false});
    all.push_back({receive.data, receive.bytes, true});
  }
  return all;
}

bool is_in_place(const Operation& o, int rank) {
  const std::size_t part = static_cast<std::size_t>(rank) * o.count * size_of_type(o.type);
  if (o.verb == Verb::all_gather) return o.send == at(o.receive, part);
  if (o.verb == Verb::reduce_scatter) return o.receive == at(o.send, part);
  return o.send == o.receive;
}

}  // namespace

void Member::check(const Operation& o) const {
  const std::string name =
      concat(o.is_message() ? place_.name : call_name(issued_), ", rank ", place_.rank, ": ", stand_in::to_text(o));
  if (o.root < 0 || o.root >= place_.size)
    refuse(kInvalidArgument, name, ": there is no rank ", o.root, " among ", place_.size);
  if (!o.is_message() && (o.op < kSum || o.op > kAvg)) refuse(kInvalidArgument, name, ": no operation ", int{o.op});
  const auto [send, receive] = buffers_of(o, place_.rank, place_.size);
  for (const Bytes& buffer : {send, receive})
    if (buffer.bytes > 0 && !program().is_memory(place_.device, buffer.data, buffer.bytes))
      refuse(kInvalidArgument, name,
             ": a buffer is not memory of this rank's device, or does not lie in one allocation");
  check_reached(name, send.bytes > 0 ? send.data : receive.data);
  if (overlap(send, receive) && !is_in_place(o, place_.rank))
    refuse(kInvalidArgument, name, ": what is sent and what is received overlap, and not as in place");
}

// Ranks of one process access each other's buffers directly.
void Member::check_reached(const std::string& name, const void* data) const {
  for (int r = 0; data != nullptr && r < place_.size; ++r) {
    const RankSlot& other = segment_.rank(r);
    if (other.process == slot().process && other.device_index != place_.device &&
        !program().may_access(other.device_index, data))
      refuse(kUnhandledCudaError, name, ": a buffer cannot be reached from the device of rank ", r,
             ", which is of the same process: its pool must be told so");
  }
}

bool Member::has_outstanding_work() {
  return last_ != nullptr && !last_->is_reached();
}

void Member::finish_work() {
  if (last_ != nullptr) last_->run_up_to();
}

// Fills the outputs with NaN, in the stream: it may have work that still reads them.
void Member::clear_outputs(const Operation& o) const {
  const auto [send, receive] = buffers_of(o, place_.rank, place_.size);
  const bool keeps = o.verb == Verb::broadcast ? place_.rank == o.root : is_in_place(o, place_.rank);
  if (receive.bytes == 0 || (keeps && o.verb != Verb::all_gather)) return;
  struct Fill {
    void* data;
    std::size_t before, own, bytes;  // in place the rank's own part stays
  };
  const bool has_own = keeps;
  const std::size_t part = o.count * size_of_type(o.type);
  const std::size_t before = has_own ? static_cast<std::size_t>(place_.rank) * part : receive.bytes;
  auto* fill = new Fill{o.receive, before, has_own ? part : 0, receive.bytes};
  const auto run = [](void* data, bool dropped) -> const char* {
    const std::unique_ptr<Fill> fill(static_cast<Fill*>(data));
    const std::size_t after = fill->before + fill->own;
    if (dropped) return nullptr;
    program().fill(fill->data, 0xff, fill->before);
    program().fill(static_cast<std::byte*>(fill->data) + after, 0xff, fill->bytes - after);
    return nullptr;
  };
  const emulator::StandInBuffer parts[] = {
      {o.receive, fill->before, true},
      {at(o.receive, fill->before + fill->own), fill->bytes - fill->before - fill->own, true}};
  if (program().is_idle(o.stream))
    run(fill, false);
  else
    program().queue(o.stream, fill, run, parts, std::size(parts));
}

// Operations of one communicator follow each other, on any streams. Those of several communicators on a device do so
// only if streams and events order them, or with the launch order.
void Member::order_after_others(Stream stream) {
  if (last_ != nullptr && last_->stream != stream && !last_->is_reached()) last_->make_wait(stream);
  const std::lock_guard lock(device_->mutex);
  if (device_->last == nullptr || device_->last_communicator == place_.id || device_->last->is_before(stream)) return;
  if (!has_launch_order())
    refuse(kInvalidUsage, call_name(issued_), ", rank ", place_.rank, ": ", name_of(device_->last_communicator),
           " is at work on the same device, and nothing orders the two");
  device_->last->make_wait(stream);
}

// With ISOBAR_NCCL_STAND_IN_CONNECTS=1 the first call that reaches all ranks returns when all are in it, as with NCCL
// when it makes connections. Returns true then.
bool Member::connect() {
  const char* text = std::getenv("ISOBAR_NCCL_STAND_IN_CONNECTS");
  if (text == nullptr || std::strcmp(text, "1") != 0) return true;
  slot().connects = 1;
  for (int r = 0; r < place_.size; ++r)
    if (segment_.rank(r).connects == 0) return false;
  return true;
}

bool Member::launch(const std::vector<Operation>& operations) {
  const bool reaches_all = !std::ranges::all_of(operations, &Operation::is_message);
  if (reaches_all && !connect()) return false;
  const Stream stream = operations.front().stream;
  auto batch = std::make_unique<Batch>();
  *batch = {shared_from_this(), operations, {}, call_name(issued_)};
  order_after_others(stream);
  for (const Operation& operation : operations) {
    if (operation.stream != stream) Event(operation.stream).make_wait(stream);
    if (operation.is_message())
      post_message(operation);
    else
      post(describe(operation));
    batch->traces.push_back(trace_issued(place_, stand_in::to_text(operation)));
    clear_outputs(operation);
  }
  const std::vector<emulator::StandInBuffer> buffers = all_buffers_of(operations, place_);
  const auto run = [](void* data, bool dropped) -> const char* {
    thread_local std::string sentence;
    const std::unique_ptr<Batch> given(static_cast<Batch*>(data));
    sentence = given->member->run(*given, dropped);
    return sentence.empty() ? nullptr : sentence.c_str();
  };
  program().queue(stream, batch.release(), run, buffers.data(), buffers.size());
  last_ = std::make_shared<Event>(stream);
  for (const Operation& operation : operations)
    if (operation.stream != stream) last_->make_wait(operation.stream);
  const std::lock_guard lock(device_->mutex);
  device_->last = last_;
  device_->last_communicator = place_.id;
  return true;
}

}  // namespace isobar::nccl::stand_in
