// One rank's use of NCCL: its communicators, the thread that looks at them, and the first error, which ends them all.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.h"
#include "comm/nccl/nccl_ranks.h"
#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar::nccl {

// A communicator of the library; null before it exists, and from its end on.
struct Handle {
  Comm comm = nullptr;
  std::vector<int> members;  // its ranks' numbers in the world
  bool is_ready = false;     // all its ranks have come
};

class Session {
 public:
  using Operation = std::function<Result(Comm comm)>;

  explicit Session(const NcclRanks& options);
  ~Session();  // after the last communicator
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Device device() const { return device_; }
  // Where the emulator's null stream is the current one: that one runs everything at the call, which NCCL never does.
  const std::shared_ptr<const gpu::OwnedStream>& own_stream() const { return own_stream_; }

  // New communicators; `make` calls NCCL, which writes handle.comm then or later. `parent` is null for the first one.
  std::shared_ptr<Handle> create(const std::shared_ptr<Handle>& parent, std::vector<int> members,
                                 const std::string& what, const std::function<Result(Comm parent, Comm* made)>& make);
  // After all that it was given; aborts where there has been an error, or one is on its way through this thread.
  void destroy(const std::shared_ptr<Handle>& handle) noexcept;

  // Lets `operation` put work into the stream. `what` names it for messages. Returns when the work is in the stream.
  void enqueue(const std::shared_ptr<Handle>& handle, Stream stream, const std::string& what,
               const Operation& operation);
  void wait_for_operations();  // the host waits for all that were enqueued

  // Ends all communication. `own`: this rank has found it out, and on_failure hears of it.
  void fail(const std::string& why, bool own) noexcept;
  bool has_failed() const;
  void throw_if_failed() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Operated {  // an operation in a stream
    explicit Operated(Device device) : begin(device), end(device) {}
    std::string what;
    std::vector<int> members;
    gpu::Event begin, end;
    std::optional<Clock::time_point> seen;  // when it was first seen to have begun
  };
  using Lock = std::unique_lock<std::mutex>;

  void end(Lock& lock, const std::string& why, bool own);
  void check(const Lock& lock) const;
  void settle(Lock& lock, Handle& handle, Result result, const std::string& what);
  void watch();
  void look(Lock& lock);
  bool look_at_operations(Lock& lock);
  void end_late(Lock& lock, const std::shared_ptr<Operated>& late);
  std::string sentence(const Handle& handle, Result result, const std::string& what) const;

  const Api& api_;
  const NcclRanks options_;
  const Device device_;
  const std::chrono::duration<double> timeout_;
  std::shared_ptr<const gpu::OwnedStream> own_stream_;

  mutable std::mutex mutex_;  // held in every call of the library
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Handle>> handles_;
  std::list<std::shared_ptr<Operated>> operated_;
  std::string failure_;  // the first; empty: none
  bool is_over_ = false;
  std::thread watcher_;
};

}  // namespace isobar::nccl
