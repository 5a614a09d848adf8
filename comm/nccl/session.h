// One rank's use of NCCL: its communicators, the threads that watch them, and the first error, which ends all.
//
// There are three threads. The rank's own thread calls the library and enqueues work in streams. The looker queries
// events for the progress of streams; if the GPU is stuck, it may never get an answer. The watcher does neither: it is
// notified of failures, on this rank and elsewhere, and only it aborts. The mutex guards shared state and is not held
// in any call that may block.
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

// A communicator of the library.
struct Handle {
  Comm comm = nullptr;       // null before it exists, and after its end
  Comm written = nullptr;    // by the library, in the call that creates it or later, from any thread
  std::vector<int> members;  // its ranks' numbers in the world
  bool is_watched = false;   // all its ranks have joined, and a call has ended when it returns
};

class Session {
 public:
  using Operation = std::function<Result(Comm comm)>;

  explicit Session(const NcclRanks& options);
  ~Session();  // after the last communicator
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Device device() const { return device_; }
  int max_grouped() const { return options_.max_grouped; }
  // Used if the emulator's null stream is current: that stream runs work at the call, which NCCL never does.
  const std::shared_ptr<const gpu::OwnedStream>& own_stream() const { return own_stream_; }

  // Creates the world. Nonblocking, so that a rank that never joins does not block the others for ever. Calls use a
  // split of it, and return when their work is in the stream.
  std::shared_ptr<Handle> create_world(const UniqueId& id);
  std::shared_ptr<Handle> split(const std::shared_ptr<Handle>& parent, int color, int key, std::vector<int> members,
                                const std::string& what);
  // Called after all its operations. After an error, or if this thread throws one, everything is aborted.
  void destroy(const std::shared_ptr<Handle>& handle) noexcept;

  // Runs `operation`, which enqueues work in the stream, and returns when that is enqueued. `what` names it in
  // messages.
  void enqueue(const std::shared_ptr<Handle>& handle, Stream stream, const std::string& what,
               const Operation& operation);
  void wait_for_operations();  // the host waits for all enqueued operations

  // Ends all communication soon. `own`: this rank has found the error, and on_failure is called with it.
  void fail(const std::string& why, bool own) noexcept;
  bool has_failed() const;
  void throw_if_failed() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  struct StreamOperation {  // an operation in a stream
    explicit StreamOperation(Device device) : begin(device), end(device) {}
    std::string what;
    std::vector<int> members;
    gpu::Event begin, end;
    std::optional<Clock::time_point> seen;  // when it was first seen to have begun
  };
  struct Call {  // of the library, by the rank's thread
    std::string what;
    std::vector<int> members;
    Clock::time_point since;
    bool makes_group = false;
  };
  class Calling;

  std::shared_ptr<Handle> create(const std::shared_ptr<Handle>& parent, std::vector<int> members,
                                 const std::string& what, const std::function<Result(Comm parent, Comm* made)>& make);
  void make_current() const;
  void note(const Lock& lock, const std::string& why, bool own);
  void check(Lock& lock) const;
  void finish(Calling& calling, Result result, const std::string& what);
  std::string sentence(Comm comm, Result result, const std::string& what) const;
  std::shared_ptr<StreamOperation> take_events();

  template <class F>
  void run_thread(bool aborts, const F& turn) noexcept;
  void look(Lock& lock);
  void watch(Lock& lock);
  bool watch_outside(Lock& lock);
  void watch_times(Lock& lock);
  bool find_late_ranks(Lock& lock, const std::string& what, const std::vector<int>& members);
  void abort(Lock& lock);
  std::vector<Comm> take_communicators(const Lock& lock);
  bool wait_until_no_call(Lock& lock);

  const Api& api_;
  const NcclRanks options_;
  const Device device_;
  const std::chrono::duration<double> timeout_;
  int version_ = 0;  // of the library
  std::shared_ptr<const gpu::OwnedStream> own_stream_;
  std::shared_ptr<Handle> root_;  // the world is a split of it

  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;
  std::vector<std::shared_ptr<Handle>> handles_;
  std::list<std::shared_ptr<StreamOperation>> in_flight_;
  std::vector<std::shared_ptr<StreamOperation>> free_;  // with events that may be recorded again
  std::optional<Call> call_;                            // the call that the rank's thread is in
  std::optional<Clock::time_point> queried_at_;         // since when the looker waits for an answer
  std::string failure_;                                 // the first; empty: none
  bool reports_ = false;                                // on_failure is called with it
  bool is_reported_ = false, is_aborted_ = false;
  bool is_over_ = false;
  std::thread looker_, watcher_;
};

}  // namespace isobar::nccl
