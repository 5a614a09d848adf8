// libnccl.so.2 for tests: NCCL's functions on the emulator's streams and shared memory, stricter than NCCL. What NCCL
// forbids without checking is refused, with a sentence (ncclGetLastError) that names communicator, call and ranks.
#include <dlfcn.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "lab/stand_ins/cuda/table.h"
#include "lab/stand_ins/nccl/member.h"
#include "lab/stand_ins/nccl/trace.h"

namespace isobar::nccl {

// A handle. It is never freed, so that a use after its end is detected.
struct Communicator {
  std::shared_ptr<stand_in::Member> member;  // null: ended
  std::string ended;                         // how
  std::atomic<bool> in_use{false};
};

namespace stand_in {
namespace {

constexpr std::size_t kLargestGroup = 2048;
constexpr int kGroupsAbortsFrom = 22200;
constexpr char kMagic[8] = {'i', 's', 'o', 'b', 'a', 'r', 'N', 'C'};

const emulator::StandInTable* table = nullptr;

struct Library {
  std::mutex mutex;
  std::set<Communicator*> handles;               // all that ever existed
  std::set<std::pair<std::uint64_t, int>> used;  // id, rank
  static Library& instance() {
    static auto* library = new Library;
    return *library;
  }
};

thread_local std::string last_error;

// The calls of a thread between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  std::vector<std::pair<Comm, std::vector<Operation>>> operations;  // by communicator, in the order of first use
  std::size_t count = 0;
  std::vector<Comm> made, aborted;
  Result failed = kSuccess;
  void clear() { *this = {}; }
};
thread_local Group group;

// Locks other threads out of a communicator during a call.
class InUse {
 public:
  explicit InUse(Comm comm) : comm_(comm) {
    if (comm_->in_use.exchange(true)) {
      comm_ = nullptr;
      refuse(kInvalidUsage, comm->member ? comm->member->place().name : "a communicator",
             ": two threads are in calls of one communicator");
    }
  }
  ~InUse() {
    if (comm_ != nullptr) comm_->in_use = false;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  Comm comm_;
};

std::shared_ptr<Member> member_of(Comm comm) {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  if (!library.handles.contains(comm)) refuse(kInvalidArgument, "this is no communicator");
  if (comm->member == nullptr) refuse(kInvalidUsage, "a communicator is used after it was ", comm->ended);
  return comm->member;
}

// For calls that require an idle communicator.
std::shared_ptr<Member> idle_member_of(Comm comm, const char* call) {
  std::shared_ptr<Member> member = member_of(comm);
  const std::string name = concat(member->place().name, ", rank ", member->place().rank);
  if (member->is_finalized()) refuse(kInvalidUsage, name, ": ", call, " after ncclCommFinalize");
  if (member->is_busy()) refuse(kInvalidUsage, name, ": ", call, " while the last call is in progress");
  const Result result = member->poll();
  if (result != kSuccess) refuse(result, member->error());
  return member;
}

Comm add_handle(std::shared_ptr<Member> member) {
  auto* comm = new Communicator{std::move(member), {}};
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  library.handles.insert(comm);
  return comm;
}

void end_handle(Comm comm, const char* how, State state) {
  std::shared_ptr<Member> member;
  {
    Library& library = Library::instance();
    const std::lock_guard lock(library.mutex);
    member = std::move(comm->member);
    comm->member = nullptr;
    comm->ended = how;
  }
  if (member != nullptr) member->leave(state);
}

struct Counts {
  std::atomic<std::uint64_t> calls{0}, in_progress{0}, threads{0}, nanoseconds{0};
};
Counts counts;

template <class F>
Result answer(const F& f) {
  try {
    return f();
  } catch (const Refusal& refusal) {
    last_error = refusal.sentence;
    if (group.depth > 0 && group.failed == kSuccess) group.failed = refusal.result;
    return refusal.result;
  } catch (const std::exception& error) {
    last_error = error.what();
    return kUnhandledCudaError;
  }
}

// Every function of the library is called through this.
template <class F>
Result call(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  const Result result = answer(f);
  ++counts.calls;
  counts.in_progress += result == kInProgress ? 1 : 0;
  counts.nanoseconds += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  return result;
}

Result told(const std::shared_ptr<Member>& member, Result result) {
  if (result != kSuccess && result != kInProgress) last_error = member->error();
  return result;
}

// ---- Groups ---------------------------------------------------------------------------------------------------------

Result launch(Comm comm, const std::vector<Operation>& operations) {
  const std::shared_ptr<Member> member = member_of(comm);
  const InUse in_use(comm);
  return told(member, member->begin([raw = member.get(), operations] { return raw->launch(operations); }));
}

// Frees aborted communicators when the device is idle. NCCL would free one even during a call.
void reclaim(Comm comm) {
  for (int i = 0; i < 1000 && comm->in_use && library_version() < kGroupsAbortsFrom; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const InUse in_use(comm);
  end_handle(comm, "aborted", State::aborted);
}

Result abort(Comm comm) {
  member_of(comm)->signal_abort();
  if (group.depth > 0 && library_version() >= kGroupsAbortsFrom)
    group.aborted.push_back(comm);
  else
    reclaim(comm);
  return kSuccess;
}

Result finish_group() {
  Group ended = std::move(group);
  group.clear();
  for (const Comm comm : ended.aborted) reclaim(comm);
  if (ended.failed != kSuccess) return ended.failed;
  Result result = kSuccess;
  const auto note = [&](Result next) {
    if (result == kSuccess || (result == kInProgress && next != kSuccess)) result = next;
  };
  for (const Comm comm : ended.made) {  // their ranks join one after another, maybe in this same group
    const std::shared_ptr<Member> member = member_of(comm);
    while (member->place().blocking && member->is_busy() && member->poll() == kInProgress)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    note(told(member, member->poll()));
  }
  for (const auto& [comm, operations] : ended.operations) note(launch(comm, operations));
  return result;
}

Result add(Comm comm, const Operation& operation) {
  const std::shared_ptr<Member> member = idle_member_of(comm, to_text(operation).c_str());
  if (!group.made.empty())
    refuse(kInvalidUsage, member->place().name, ": ", to_text(operation), " in a group that makes communicators");
  {
    const InUse in_use(comm);
    member->check(operation);
  }
  if (group.depth == 0) return launch(comm, {operation});
  if (++group.count > kLargestGroup)
    refuse(kInvalidUsage, member->place().name, ": a group has more than ", kLargestGroup, " operations");
  auto found = std::ranges::find(group.operations, comm, [](const auto& entry) { return entry.first; });
  if (found == group.operations.end()) found = group.operations.insert(found, {comm, {}});
  found->second.push_back(operation);
  return kSuccess;
}

// ---- Communicators --------------------------------------------------------------------------------------------------

bool is_blocking(const Config* config, bool otherwise) {
  if (config == nullptr) return otherwise;
  if (config->magic != Config{}.magic || config->size < sizeof(std::size_t) + 3 * sizeof(int))
    refuse(kInvalidArgument, "a configuration was not initialised");
  return config->blocking == INT_MIN ? otherwise : config->blocking != 0;
}

Place place_of(int ranks, const UniqueId& id, int rank, const Config* config) {
  if (ranks < 1 || ranks > kMaxRanks) refuse(kInvalidArgument, ranks, " ranks: the stand-in knows 1 to ", kMaxRanks);
  if (rank < 0 || rank >= ranks) refuse(kInvalidArgument, "rank ", rank, " of ", ranks, " ranks");
  if (std::memcmp(id.bytes, kMagic, sizeof kMagic) != 0)
    refuse(kInvalidArgument, "rank ", rank, ": an id that ncclGetUniqueId has not made");
  Place place;
  place.rank = rank;
  place.size = ranks;
  place.device = program().device_index();
  place.blocking = is_blocking(config, true);
  place.splits_share = config != nullptr && config->split_share == 1;
  std::memcpy(&place.id, id.bytes + sizeof kMagic, sizeof place.id);
  char text[128];
  std::snprintf(text, sizeof text, "comm %04x", static_cast<unsigned>(place.id & 0xffff));
  place.name = text;
  program().device_name(text, sizeof text);
  place.device_name = text;
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  if (!library.used.insert({place.id, rank}).second)
    refuse(kInvalidUsage, place.name, ": rank ", rank, " uses an id for the second time");
  return place;
}

// Writes what NCCL logs with NCCL_DEBUG=INFO, to stdout or to NCCL_DEBUG_FILE.
void log_network() {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr || std::strcmp(level, "INFO") != 0) return;
  const char* pattern = std::getenv("NCCL_DEBUG_FILE");
  std::string file = pattern == nullptr ? "/dev/stdout" : pattern;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  if (const std::size_t at = file.find("%h"); at != file.npos) file.replace(at, 2, host);
  if (const std::size_t at = file.find("%p"); at != file.npos) file.replace(at, 2, std::to_string(::getpid()));
  std::ofstream(file, std::ios::app) << host << ':' << ::getpid() << " [0] NCCL INFO Using network Shared memory\n";
}

Result make(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (!group.operations.empty()) refuse(kInvalidUsage, "a communicator is made in a group that holds operations");
  log_network();
  auto member = std::make_shared<Member>(place_of(ranks, id, rank, config));
  member->register_memory();
  std::atomic_ref(*comm).store(add_handle(member));
  const auto arrive = [raw = member.get()] { return raw->has_all_ranks(); };
  if (group.depth == 0) return told(member, member->begin(arrive));
  group.made.push_back(*comm);
  member->prepare(arrive);
  return kSuccess;
}

Result split(Comm comm, int color, int key, Comm* part, Config* config) {
  const std::shared_ptr<Member> member = idle_member_of(comm, "ncclCommSplit");
  const std::string name = concat(member->place().name, ", rank ", member->place().rank);
  if (group.depth > 0) refuse(kInvalidUsage, name, ": the stand-in knows no split inside a group");
  if (color < kNoColor) refuse(kInvalidArgument, name, ": a split by the color ", color);
  const InUse in_use(comm);
  if (member->has_outstanding_work()) refuse(kInvalidUsage, name, ": a split while operations are outstanding");
  const bool blocking = is_blocking(config, member->place().blocking);
  const bool splits_share = config == nullptr ? member->place().splits_share : config->split_share == 1;
  std::atomic_ref(*part).store(nullptr);
  struct Part {
    bool is_described = false;
    std::shared_ptr<Member> member;
  };
  const auto made = std::make_shared<Part>();
  return told(member, member->begin([=, raw = member.get()] {
    if (!made->is_described) raw->describe_split(color, key);
    made->is_described = true;
    if (!raw->make_part(color, blocking, splits_share, made->member)) return false;
    if (made->member != nullptr) std::atomic_ref(*part).store(add_handle(made->member));
    return true;
  }));
}

Result finalize(Comm comm) {
  const std::shared_ptr<Member> member = idle_member_of(comm, "ncclCommFinalize");
  const InUse in_use(comm);
  if (member->place().blocking) member->finish_work();
  const Result result = member->begin([raw = member.get()] { return !raw->has_outstanding_work(); });
  member->finalize();
  return told(member, result);
}

Result destroy(Comm comm) {
  const std::shared_ptr<Member> member = member_of(comm);
  const InUse in_use(comm);
  if (!member->is_finalized() && member->poll() == kSuccess) member->finish_work();
  end_handle(comm, "destroyed", State::left);
  return kSuccess;
}

// Reports communicators that are left at the end, which tests would not notice otherwise.
struct LeakCheck {
  ~LeakCheck() {
    std::string leaks;
    for (const Communicator* comm : Library::instance().handles)
      if (comm->member != nullptr)
        leaks +=
            concat(leaks.empty() ? "" : ", ", comm->member->place().name, " (rank ", comm->member->place().rank, ")");
    if (leaks.empty()) return;
    std::fprintf(stderr, "stand-in for NCCL: at the end of the program these were not destroyed: %s\n", leaks.c_str());
    ::_exit(1);
  }
};
const LeakCheck leak_check;

// ---- A GPU that fails -----------------------------------------------------------------------------------------------

// ISOBAR_NCCL_STAND_IN_GPU=RANK:fail:N or RANK:stuck:N, for ranks that are processes: from the N-th query about work on
// that rank's device on, every query returns an error, or never returns.
struct GpuFault {
  std::string device;  // suffix of its name
  bool is_stuck = false;
  long questions = 0;
  static GpuFault& instance() {
    static auto* fault = new GpuFault(read());
    return *fault;
  }
  static GpuFault read() {
    const char* text = std::getenv("ISOBAR_NCCL_STAND_IN_GPU");
    std::istringstream words(text == nullptr ? "" : text);
    std::string rank, kind, number;
    std::getline(words, rank, ':');
    std::getline(words, kind, ':');
    std::getline(words, number, ':');
    return {rank.empty() ? "" : concat(" rank ", rank), kind == "stuck", std::atol(number.c_str())};
  }
};

const char* answer_as_gpu() {
  const GpuFault& fault = GpuFault::instance();
  static std::atomic<long> asked{0};
  char text[128];
  table->device_name(text, sizeof text);
  if (!std::string_view(text).ends_with(fault.device) || ++asked < fault.questions) return nullptr;
  while (fault.is_stuck) std::this_thread::sleep_for(std::chrono::hours(1));
  return "CUDA: cudaEventQuery: an illegal memory access was encountered";
}

// ---- Trace ----------------------------------------------------------------------------------------------------------

struct Trace {
  std::mutex mutex;
  std::vector<TraceEntry> entries;
  std::size_t cleared = 0;  // number of entries before the first one here
  std::uint64_t clock = 0;
  static Trace& instance() {
    static auto* trace = new Trace;
    return *trace;
  }
  void set(std::size_t entry, std::uint64_t TraceEntry::*time) {
    const std::lock_guard lock(mutex);
    if (entry >= cleared) entries[entry - cleared].*time = ++clock;
  }
};

void copy_text(char (&to)[64], const std::string& from) {
  std::snprintf(to, sizeof to, "%s", from.c_str());
}

}  // namespace

const emulator::StandInTable& program() {
  if (table == nullptr) refuse(kInternalError, "the stand-in was not given an emulator");
  return *table;
}

int library_version() {
  const char* text = std::getenv("ISOBAR_NCCL_STAND_IN_VERSION");
  return text == nullptr ? 22809 : std::atoi(text);
}

bool has_launch_order() {
  const char* text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return text != nullptr && std::strcmp(text, "1") == 0 && library_version() >= 22600;
}

void count_thread() {
  ++counts.threads;
}

std::uint64_t tick() {
  Trace& trace = Trace::instance();
  const std::lock_guard lock(trace.mutex);
  return ++trace.clock;
}

std::size_t trace_issued(const Place& place, const std::string& operation) {
  Trace& trace = Trace::instance();
  const std::lock_guard lock(trace.mutex);
  TraceEntry entry{};
  entry.rank = place.rank;
  entry.issued = ++trace.clock;
  copy_text(entry.communicator, place.name);
  copy_text(entry.operation, operation);
  trace.entries.push_back(entry);
  return trace.cleared + trace.entries.size() - 1;
}
void trace_begun(std::size_t entry) {
  Trace::instance().set(entry, &TraceEntry::begun);
}
void trace_ended(std::size_t entry) {
  Trace::instance().set(entry, &TraceEntry::ended);
}

void trace_times(std::size_t entry, std::uint64_t began, std::uint64_t ended) {
  Trace& trace = Trace::instance();
  const std::lock_guard lock(trace.mutex);
  if (entry < trace.cleared) return;
  trace.entries[entry - trace.cleared].began_ns = began;
  trace.entries[entry - trace.cleared].ended_ns = ended;
}

}  // namespace stand_in
}  // namespace isobar::nccl

// ---- The functions --------------------------------------------------------------------------------------------------

using namespace isobar::nccl;            // NOLINT: the names of the interface
using namespace isobar::nccl::stand_in;  // NOLINT
using isobar::Stream;

extern "C" {

bool isobar_stand_in_attach(const isobar::emulator::StandInTable* given) {
  using isobar::virtual_gpu::TableFunction;
  const auto of_gpu = reinterpret_cast<TableFunction>(::dlsym(RTLD_DEFAULT, isobar::virtual_gpu::kTableName));
  table = of_gpu == nullptr ? given : of_gpu(given);
  if (!GpuFault::instance().device.empty()) table->set_question(answer_as_gpu);
  return of_gpu != nullptr;
}
std::uint64_t isobar_nccl_tick() {
  return tick();
}
void isobar_nccl_clear_trace() {
  Trace& trace = Trace::instance();
  const std::lock_guard lock(trace.mutex);
  trace.cleared += trace.entries.size();
  trace.entries.clear();
  counts.calls = counts.in_progress = counts.threads = counts.nanoseconds = 0;
}
HostCounts isobar_nccl_host() {
  return {counts.calls, counts.in_progress, counts.threads, counts.nanoseconds};
}
std::size_t isobar_nccl_trace(TraceEntry* entries, std::size_t capacity) {
  Trace& trace = Trace::instance();
  const std::lock_guard lock(trace.mutex);
  std::copy_n(trace.entries.begin(), std::min(capacity, trace.entries.size()), entries);
  return trace.entries.size();
}

Result ncclGetVersion(int* version) {
  *version = library_version();
  return kSuccess;
}
Result ncclGetUniqueId(UniqueId* id) {
  *id = {};
  std::memcpy(id->bytes, kMagic, sizeof kMagic);
  return ::getrandom(id->bytes + sizeof kMagic, 8, 0) == 8 ? kSuccess : kSystemError;
}
Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  return call([&] { return make(comm, ranks, id, rank, config); });
}
Result ncclCommSplit(Comm comm, int color, int key, Comm* part, Config* config) {
  return call([&] { return split(comm, color, key, part, config); });
}
Result ncclCommFinalize(Comm comm) {
  return call([&] { return finalize(comm); });
}
Result ncclCommDestroy(Comm comm) {
  return call([&] { return destroy(comm); });
}
Result ncclCommAbort(Comm comm) {
  return call([&] { return abort(comm); });
}
Result ncclCommGetAsyncError(Comm comm, Result* error) {
  return call([&] {
    *error = member_of(comm)->look();
    return kSuccess;
  });
}
Result ncclCommCount(Comm comm, int* ranks) {
  return call([&] {
    *ranks = member_of(comm)->place().size;
    return kSuccess;
  });
}
Result ncclCommUserRank(Comm comm, int* rank) {
  return call([&] {
    *rank = member_of(comm)->place().rank;
    return kSuccess;
  });
}
const char* ncclGetErrorString(Result result) {
  constexpr const char* names[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
  return result >= 0 && result < 8 ? names[result] : "unknown result";
}
const char* ncclGetLastError(Comm comm) {
  thread_local std::string text;
  text = last_error;
  call([&] {
    if (comm != nullptr && !member_of(comm)->error().empty()) text = member_of(comm)->error();
    return kSuccess;
  });
  return text.c_str();
}
Result ncclAllReduce(const void* send, void* receive, std::size_t count, Type type, Op op, Comm comm, Stream stream) {
  return call([&] { return add(comm, {Verb::all_reduce, send, receive, count, type, op, 0, stream}); });
}
Result ncclReduce(const void* send, void* receive, std::size_t count, Type type, Op op, int root, Comm comm,
                  Stream stream) {
  return call([&] { return add(comm, {Verb::reduce, send, receive, count, type, op, root, stream}); });
}
Result ncclBroadcast(const void* send, void* receive, std::size_t count, Type type, int root, Comm comm,
                     Stream stream) {
  return call([&] { return add(comm, {Verb::broadcast, send, receive, count, type, kSum, root, stream}); });
}
Result ncclAllGather(const void* send, void* receive, std::size_t count, Type type, Comm comm, Stream stream) {
  return call([&] { return add(comm, {Verb::all_gather, send, receive, count, type, kSum, 0, stream}); });
}
Result ncclReduceScatter(const void* send, void* receive, std::size_t count, Type type, Op op, Comm comm,
                         Stream stream) {
  return call([&] { return add(comm, {Verb::reduce_scatter, send, receive, count, type, op, 0, stream}); });
}
Result ncclSend(const void* send, std::size_t count, Type type, int peer, Comm comm, Stream stream) {
  return call([&] { return add(comm, {Verb::send, send, nullptr, count, type, kSum, peer, stream}); });
}
Result ncclRecv(void* receive, std::size_t count, Type type, int peer, Comm comm, Stream stream) {
  return call([&] { return add(comm, {Verb::receive, nullptr, receive, count, type, kSum, peer, stream}); });
}
Result ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}
Result ncclGroupEnd() {
  if (group.depth == 0) return call([]() -> Result { refuse(kInvalidUsage, "ncclGroupEnd without ncclGroupStart"); });
  if (--group.depth > 0) return kSuccess;
  return call(finish_group);
}

}  // extern "C"
