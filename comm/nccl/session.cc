#include "comm/nccl/session.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/sentence.h"
#include "kernels/emulator/devices.h"

namespace isobar::nccl {
namespace {

constexpr std::chrono::milliseconds kLook{20};    // period of a thread
constexpr std::chrono::microseconds kSpin{50};    // busy waiting for a call in progress
constexpr std::chrono::microseconds kPoll{200};   // between two queries after that
constexpr std::chrono::seconds kLeave{5};         // for the rank's thread to leave a call that is aborted
constexpr std::chrono::milliseconds kBlind{500};  // without an answer of the GPU
constexpr int kGroupsAbortsFrom = 22200;          // in older versions ncclCommAbort in a group waits at once

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// While it lives, the rank's thread is in calls of the library, and no communicator that it uses is freed.
class Session::Calling {
 public:
  Calling(Session& session, const std::shared_ptr<Handle>& handle, const std::string& what, bool makes_group)
      : session_(session), handle_(handle) {
    Lock lock(session_.mutex_);
    session_.check(lock);
    comm_ = handle->comm;
    session_.call_ = Call{what, handle->members, Clock::now(), makes_group};
  }
  ~Calling() { leave(); }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  // Null if the library has not written it yet.
  Comm comm() {
    if (comm_ == nullptr) comm_ = std::atomic_ref(handle_->written).load();
    return comm_;
  }
  void leave() {
    if (!std::exchange(is_in_, false)) return;
    const std::lock_guard lock(session_.mutex_);
    session_.call_.reset();
    if (!session_.failure_.empty()) session_.wake_.notify_all();  // the watcher waits for it
  }

 private:
  Session& session_;
  const std::shared_ptr<Handle> handle_;
  Comm comm_ = nullptr;
  bool is_in_ = true;
};

Session::Session(const NcclRanks& options)
    : api_(api()), options_(options), device_(options.device), timeout_(options.timeout_seconds) {
  api_.GetVersion(&version_);
  make_current();
  if (device_.kind == DeviceKind::emulator) own_stream_ = std::make_shared<gpu::OwnedStream>(device_);
  looker_ = std::thread([this] { run_thread(false, [this](Lock& lock) { look(lock); }); });
  watcher_ = std::thread([this] { run_thread(true, [this](Lock& lock) { watch(lock); }); });
}

Session::~Session() {
  if (root_ != nullptr) destroy(root_);
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  looker_.join();
  watcher_.join();
}

// The current device is per thread: a thread without one would create a context on the first GPU.
void Session::make_current() const {
  if (device_.kind == DeviceKind::cuda) gpu::set_device(device_.index);
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device_.kind == DeviceKind::emulator) emulator::set_device(device_.index, options_.device_name);
}

// ---- The first error ------------------------------------------------------------------------------------------------

void Session::note(const Lock&, const std::string& why, bool own) {
  if (!failure_.empty()) return;
  failure_ = why;
  reports_ = own;
  wake_.notify_all();
}

void Session::fail(const std::string& why, bool own) noexcept {
  note(Lock(mutex_), why, own);
}

bool Session::has_failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

// Throws after the other ranks have been notified, so that the first cause is reported first.
void Session::check(Lock& lock) const {
  if (failure_.empty()) return;
  wake_.wait(lock, [this] { return is_reported_; });
  throw Error(failure_);
}

void Session::throw_if_failed() const {
  Lock lock(mutex_);
  check(lock);
}

std::string Session::sentence(Comm comm, Result result, const std::string& what) const {
  const char* detail = api_.GetLastError(comm);
  const std::string cause = result == kRemoteError ? "a rank has failed or left" : api_.GetErrorString(result);
  return concat(what, ": NCCL: ", cause, detail == nullptr || *detail == '\0' ? "" : concat(": ", detail));
}

// ---- Calls of the rank ----------------------------------------------------------------------------------------------

// Waits until a nonblocking communicator has completed its operation, and leaves the call.
void Session::finish(Calling& calling, Result result, const std::string& what) {
  const Clock::time_point begin = Clock::now();
  while (result == kInProgress) {
    const Comm comm = calling.comm();
    const Result asked = comm == nullptr ? kSuccess : api_.CommGetAsyncError(comm, &result);
    if (asked != kSuccess) result = asked;
    if (result != kInProgress) break;
    if (Clock::now() - begin < kSpin) {
      pause();
      continue;
    }
    Lock lock(mutex_);
    if (!failure_.empty()) break;
    wake_.wait_for(lock, kPoll);
  }
  const std::string wrong = result == kSuccess || result == kInProgress ? "" : sentence(calling.comm(), result, what);
  calling.leave();
  Lock lock(mutex_);
  if (!wrong.empty()) note(lock, wrong, true);
  check(lock);
}

std::shared_ptr<Handle> Session::create(const std::shared_ptr<Handle>& parent, std::vector<int> members,
                                        const std::string& what,
                                        const std::function<Result(Comm parent, Comm* made)>& make) {
  auto handle = std::make_shared<Handle>();
  handle->members = std::move(members);
  {
    const std::lock_guard lock(mutex_);
    handles_.push_back(handle);
  }
  {
    Calling calling(*this, parent == nullptr ? handle : parent, what, true);
    finish(calling, make(calling.comm(), &handle->written), what);
  }
  if (parent != nullptr) {
    Calling calling(*this, handle, what, true);
    finish(calling, kInProgress, what);
  }
  Lock lock(mutex_);
  check(lock);
  handle->comm = handle->written;
  return handle;
}

std::shared_ptr<Handle> Session::create_world(const UniqueId& id) {
  const std::string what = "the start of NCCL";
  std::vector<int> all(static_cast<std::size_t>(options_.ranks));
  std::iota(all.begin(), all.end(), 0);
  root_ = create(nullptr, all, what, [&](Comm, Comm* made) {
    Config config;
    config.blocking = 0;
    config.split_share = 1;  // the split has the same ranks and takes no memory of its own
    return api_.CommInitRankConfig(made, options_.ranks, id, options_.rank, &config);
  });
  return split(root_, 0, options_.rank, std::move(all), what);
}

std::shared_ptr<Handle> Session::split(const std::shared_ptr<Handle>& parent, int color, int key,
                                       std::vector<int> members, const std::string& what) {
  const std::shared_ptr<Handle> part = create(parent, std::move(members), what, [&](Comm from, Comm* made) {
    Config config;
    config.blocking = 1;
    config.split_share = 0;
    return api_.CommSplit(from, color, key, made, &config);
  });
  const std::lock_guard lock(mutex_);
  part->is_watched = true;
  return part;
}

void Session::destroy(const std::shared_ptr<Handle>& handle) noexcept {
  {
    Lock lock(mutex_);
    handle->is_watched = false;
    if (std::uncaught_exceptions() > 0) note(lock, "this rank has left by an error", false);
  }
  try {
    const std::string what = "the end of a group";
    Calling calling(*this, handle, what, true);
    finish(calling, api_.CommFinalize(calling.comm()), what);
    Lock lock(mutex_);
    check(lock);
    const Comm finalized = std::exchange(handle->comm, nullptr);
    handle->written = nullptr;
    lock.unlock();
    api_.CommDestroy(finalized);
  } catch (const Error&) {  // the watcher aborts all
    Lock lock(mutex_);
    wake_.wait(lock, [this] { return is_aborted_; });
  }
  const std::lock_guard lock(mutex_);
  std::erase(handles_, handle);
}

std::shared_ptr<Session::StreamOperation> Session::take_events() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::shared_ptr<StreamOperation> taken = std::move(free_.back());
      free_.pop_back();
      return taken;
    }
  }
  return std::make_shared<StreamOperation>(device_);
}

void Session::enqueue(const std::shared_ptr<Handle>& handle, Stream stream, const std::string& what,
                      const Operation& operation) {
  const std::shared_ptr<StreamOperation> operated = take_events();
  operated->what = what;
  operated->members = handle->members;
  operated->seen.reset();
  {
    Calling calling(*this, handle, what, false);
    operated->begin.record(stream);
    finish(calling, operation(calling.comm()), what);
  }
  operated->end.record(stream);
  const std::lock_guard lock(mutex_);
  in_flight_.push_back(operated);
}

void Session::wait_for_operations() {
  std::list<std::shared_ptr<StreamOperation>> open;
  {
    Lock lock(mutex_);
    check(lock);
    open = in_flight_;
  }
  for (const std::shared_ptr<StreamOperation>& operated : open) operated->end.synchronize();
  throw_if_failed();
}

// ---- The threads ----------------------------------------------------------------------------------------------------

template <class F>
void Session::run_thread(bool aborts, const F& turn) noexcept {
  bool is_on_device = false;
  Lock lock(mutex_);
  for (;;) {
    try {
      if (!is_on_device) {
        lock.unlock();
        make_current();
        is_on_device = true;
        lock.lock();
      }
      for (;;) {
        if (is_over_ && (failure_.empty() || is_aborted_ || !aborts)) return;
        turn(lock);
        if (!is_over_) wake_.wait_for(lock, kLook);
      }
    } catch (...) {
      const std::string why = sentence_of_current_exception();
      is_on_device = true;  // tried once
      if (!lock.owns_lock()) lock.lock();
      if (!aborts) queried_at_.reset();
      note(lock, in_flight_.empty() ? why : concat(in_flight_.front()->what, ": ", why), true);
    }
  }
}

// The looker: queries which operations streams have reached, and which have ended.
void Session::look(Lock& lock) {
  if (!failure_.empty() || in_flight_.empty()) return;
  const std::vector<std::shared_ptr<StreamOperation>> asked(in_flight_.begin(), in_flight_.end());
  std::vector<bool> has_begun, has_ended;
  queried_at_ = Clock::now();
  lock.unlock();
  for (const std::shared_ptr<StreamOperation>& operated : asked) {
    has_ended.push_back(operated->end.is_reached());
    has_begun.push_back(has_ended.back() || operated->seen || operated->begin.is_reached());
  }
  lock.lock();
  queried_at_.reset();
  auto at = in_flight_.begin();  // other threads only append
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (has_begun[i] && !asked[i]->seen) asked[i]->seen = Clock::now();
    if (has_ended[i]) {
      free_.push_back(asked[i]);
      at = in_flight_.erase(at);
    } else {
      ++at;
    }
  }
}

// The watcher.
void Session::watch(Lock& lock) {
  if (failure_.empty() && watch_outside(lock)) watch_times(lock);
  if (failure_.empty()) {
    const std::string what = in_flight_.empty() ? "between two calls" : in_flight_.front()->what;
    for (const std::shared_ptr<Handle>& handle : handles_) {
      Result result = kSuccess;
      if (!handle->is_watched || handle->comm == nullptr) continue;
      const Result asked = api_.CommGetAsyncError(handle->comm, &result);
      if (asked != kSuccess) result = asked;
      if (result != kSuccess && result != kInProgress) note(lock, sentence(handle->comm, result, what), true);
    }
  }
  if (!failure_.empty() && !is_aborted_) abort(lock);
}

namespace {

// The operation that was seen to begin first; null if none has begun.
template <class List>
auto first_begun(const List& operated) -> typename List::value_type {
  typename List::value_type first = nullptr;
  for (const auto& each : operated)
    if (each->seen && (first == nullptr || *each->seen < *first->seen)) first = each;
  return first;
}

}  // namespace

// Passes the streams' current call to `watch`, which returns failures elsewhere. False: there is one.
bool Session::watch_outside(Lock& lock) {
  if (!options_.watch) return true;
  const auto first = first_begun(in_flight_);
  const std::string place = first == nullptr ? "" : first->what;
  lock.unlock();
  const std::string why = options_.watch(place);
  lock.lock();
  if (!why.empty()) note(lock, why, false);
  return failure_.empty();
}

void Session::watch_times(Lock& lock) {
  const auto is_late = [&](Clock::time_point since) { return Clock::now() - since > timeout_; };
  const auto first = first_begun(in_flight_);
  if (call_ && call_->makes_group && is_late(call_->since)) {
    note(lock, concat(call_->what, ": a rank has not come within ", timeout_.count(), " s"), true);
  } else if (queried_at_ && Clock::now() - *queried_at_ > kBlind) {  // the known progress of streams is out of date
    if (!is_late(*queried_at_)) return;
    const std::string what = in_flight_.empty() ? "between two calls" : in_flight_.front()->what;
    note(lock, concat(what, ": the GPU has not answered within ", timeout_.count(), " s"), true);
  } else if (first != nullptr && is_late(*first->seen)) {
    const bool is_excused = find_late_ranks(lock, std::string(first->what), std::vector(first->members));
    if (is_excused && std::ranges::find(in_flight_, first) != in_flight_.end()) first->seen = Clock::now();
  } else if (call_ && !call_->makes_group && is_late(call_->since)) {
    if (find_late_ranks(lock, std::string(call_->what), std::vector(call_->members)) && call_)
      call_->since = Clock::now();
  }
}

// True: a rank that has not joined works alone, and the call may take as long again.
bool Session::find_late_ranks(Lock& lock, const std::string& what, const std::vector<int>& members) {
  if (!options_.on_late) {
    note(lock, concat(what, " has not ended within ", timeout_.count(), " s: a rank has not come to it"), true);
    return false;
  }
  lock.unlock();  // asking the others takes a while
  const std::string sentence = options_.on_late(what, members);
  lock.lock();
  if (!sentence.empty()) note(lock, sentence, false);
  return sentence.empty();
}

// ---- The end by an error --------------------------------------------------------------------------------------------

std::vector<Comm> Session::take_communicators(const Lock&) {
  std::vector<Comm> taken;
  for (const std::shared_ptr<Handle>& handle : handles_) {
    if (handle->comm == nullptr) handle->comm = std::atomic_ref(handle->written).load();
    if (handle->comm == nullptr) continue;
    taken.push_back(handle->comm);
    handle->comm = handle->written = nullptr;
  }
  return taken;
}

bool Session::wait_until_no_call(Lock& lock) {
  return wake_.wait_for(lock, kLeave, [this] { return !call_; });
}

// ncclCommAbort signals the communicator's kernels and calls to end, and then waits until the device is idle. That
// never happens if another communicator's kernel waits for a rank that does not join. In a group all are signalled
// before anything is waited for or freed; before NCCL 2.22 there is a thread for each instead.
void Session::abort(Lock& lock) {
  const std::string why = failure_;
  lock.unlock();
  if (reports_ && options_.on_failure)
    gpu::quietly([&] { options_.on_failure(why); });  // before other ranks can see the abort
  lock.lock();
  is_reported_ = true;
  wake_.notify_all();
  std::vector<Comm> comms = take_communicators(lock);
  lock.unlock();
  if (version_ >= kGroupsAbortsFrom) {
    api_.GroupStart();
    for (const Comm comm : comms) api_.CommAbort(comm);
    lock.lock();
    const bool may_free = wait_until_no_call(lock);
    comms = take_communicators(lock);  // made by the call that has returned
    lock.unlock();
    for (const Comm comm : comms) api_.CommAbort(comm);
    // If the group is not ended, nothing is freed: a call that has not returned still uses the memory.
    if (may_free) api_.GroupEnd();
  } else {
    std::vector<std::thread> threads;
    for (const Comm comm : comms)
      threads.emplace_back([this, comm] {
        gpu::quietly([this] { make_current(); });  // a GPU that has failed returns an error at every call
        api_.CommAbort(comm);
      });
    for (std::thread& thread : threads) thread.join();
  }
  lock.lock();
  is_aborted_ = true;
  wake_.notify_all();
}

}  // namespace isobar::nccl
