#include "comm/nccl/session.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/common/check.h"

namespace isobar::nccl {
namespace {

constexpr std::chrono::milliseconds kLook{20};   // between two looks of the watcher
constexpr std::chrono::microseconds kPoll{200};  // between two questions to a communicator that is in progress

}  // namespace

Session::Session(const NcclRanks& options)
    : api_(api()), options_(options), device_(options.device), timeout_(options.timeout_seconds) {
  if (device_.kind == DeviceKind::emulator) own_stream_ = std::make_shared<gpu::OwnedStream>(device_);
  watcher_ = std::thread([this] { watch(); });
}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  watcher_.join();
}

// ---- The end by an error --------------------------------------------------------------------------------------------

void Session::end(Lock& lock, const std::string& why, bool own) {
  if (!failure_.empty()) return;
  failure_ = why;
  if (own && options_.on_failure) {  // before other ranks can see the abort, so that the first cause is told first
    lock.unlock();
    options_.on_failure(why);
    lock.lock();
  }
  for (const std::shared_ptr<Handle>& handle : handles_)
    if (handle->comm != nullptr) api_.CommAbort(std::exchange(handle->comm, nullptr));
  operated_.clear();
  wake_.notify_all();
}

void Session::fail(const std::string& why, bool own) noexcept {
  Lock lock(mutex_);
  end(lock, why, own);
}

bool Session::has_failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

void Session::check(const Lock&) const {
  if (!failure_.empty()) throw Error(failure_);
}

void Session::throw_if_failed() const {
  check(Lock(mutex_));
}

std::string Session::sentence(const Handle& handle, Result result, const std::string& what) const {
  const char* detail = api_.GetLastError(handle.comm);
  const std::string cause = result == kRemoteError ? "a rank has failed or left" : api_.GetErrorString(result);
  return concat(what, ": NCCL: ", cause, detail == nullptr || *detail == '\0' ? "" : concat(": ", detail));
}

// ---- What the rank asks for -----------------------------------------------------------------------------------------

// Waits until a communicator that is not blocking has done what it was asked for.
void Session::settle(Lock& lock, Handle& handle, Result result, const std::string& what) {
  const Clock::time_point limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_);
  while (result == kInProgress && failure_.empty()) {
    if (Clock::now() > limit) end(lock, concat(what, ": a rank has not come within ", timeout_.count(), " s"), true);
    wake_.wait_for(lock, kPoll);
    if (!failure_.empty()) break;
    const Result asked = api_.CommGetAsyncError(handle.comm, &result);
    if (asked != kSuccess) result = asked;
  }
  if (failure_.empty() && result != kSuccess) end(lock, sentence(handle, result, what), true);
  check(lock);
}

std::shared_ptr<Handle> Session::create(const std::shared_ptr<Handle>& parent, std::vector<int> members,
                                        const std::string& what,
                                        const std::function<Result(Comm parent, Comm* made)>& make) {
  auto handle = std::make_shared<Handle>();
  handle->members = std::move(members);
  Lock lock(mutex_);
  check(lock);
  handles_.push_back(handle);
  const Result result = make(parent == nullptr ? nullptr : parent->comm, &handle->comm);
  settle(lock, parent == nullptr ? *handle : *parent, result, what);
  if (parent != nullptr) settle(lock, *handle, kInProgress, what);
  handle->is_ready = true;
  return handle;
}

void Session::destroy(const std::shared_ptr<Handle>& handle) noexcept {
  Lock lock(mutex_);
  handle->is_ready = false;  // the watcher leaves it alone
  try {
    if (failure_.empty() && std::uncaught_exceptions() == 0 && handle->comm != nullptr) {
      settle(lock, *handle, api_.CommFinalize(handle->comm), "the end of a group");
      if (handle->comm != nullptr) api_.CommDestroy(std::exchange(handle->comm, nullptr));
    }
  } catch (const Error&) {  // all are aborted
  }
  if (handle->comm != nullptr) api_.CommAbort(std::exchange(handle->comm, nullptr));
  std::erase(handles_, handle);
}

void Session::enqueue(const std::shared_ptr<Handle>& handle, Stream stream, const std::string& what,
                      const Operation& operation) {
  auto operated = std::make_shared<Operated>(device_);
  operated->what = what;
  operated->members = handle->members;
  Lock lock(mutex_);
  check(lock);
  operated->begin.record(stream);
  settle(lock, *handle, operation(handle->comm), what);
  operated->end.record(stream);
  operated_.push_back(std::move(operated));
}

void Session::wait_for_operations() {
  std::list<std::shared_ptr<Operated>> open;
  {
    const Lock lock(mutex_);
    check(lock);
    open = operated_;
  }
  for (const std::shared_ptr<Operated>& operated : open) operated->end.synchronize();
  throw_if_failed();
}

// ---- The watcher ----------------------------------------------------------------------------------------------------

void Session::watch() {
  Lock lock(mutex_);
  while (!is_over_) {
    wake_.wait_for(lock, kLook);
    if (!is_over_ && failure_.empty()) look(lock);
  }
}

void Session::look(Lock& lock) {
  if (!look_at_operations(lock)) return;
  const std::string what = operated_.empty() ? "between two calls" : operated_.front()->what;
  for (const std::shared_ptr<Handle>& handle : handles_) {
    Result result = kSuccess;
    if (!handle->is_ready || handle->comm == nullptr) continue;
    const Result asked = api_.CommGetAsyncError(handle->comm, &result);
    if (asked != kSuccess) result = asked;
    if (result != kSuccess && result != kInProgress) return end(lock, sentence(*handle, result, what), true);
  }
}

// Tells where the streams are. False where that has ended all communication.
bool Session::look_at_operations(Lock& lock) {
  const Clock::time_point now = Clock::now();
  operated_.remove_if([](const std::shared_ptr<Operated>& operated) { return operated->end.is_reached(); });
  std::shared_ptr<Operated> first;  // of those that a stream has come to
  for (const std::shared_ptr<Operated>& operated : operated_) {
    if (!operated->seen && operated->begin.is_reached()) operated->seen = now;
    if (operated->seen && (first == nullptr || *operated->seen < *first->seen)) first = operated;
  }
  if (options_.watch)
    if (const std::string why = options_.watch(first == nullptr ? "" : first->what); !why.empty()) {
      end(lock, why, false);
      return false;
    }
  if (first == nullptr || now - *first->seen <= timeout_) return true;
  end_late(lock, first);
  return false;
}

void Session::end_late(Lock& lock, const std::shared_ptr<Operated>& late) {
  const std::string itself =
      concat(late->what, " has not ended within ", timeout_.count(), " s: a rank has not come to it");
  if (!options_.on_late) return end(lock, itself, true);
  lock.unlock();  // the others are asked, which takes a while
  const std::string sentence = options_.on_late(late->what, late->members);
  lock.lock();
  if (sentence.empty())
    late->seen = Clock::now();
  else
    end(lock, sentence, false);
}

}  // namespace isobar::nccl
