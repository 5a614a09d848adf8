// Work on a second stream, at the same time as work on the current stream that does not depend on it.
//
//     SideStream side(device);
//     Pending sums = side.run([&] { ... });  // runs after all earlier work of the current stream
//     ...                                    // the current stream continues
//     sums.wait();                           // later work of the current stream runs after the body
#pragma once

#include <memory>

#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

// Work of a side stream that another stream has not waited for yet. Before wait(), that stream must not write what the
// body reads, nor touch what it writes, and all tensors that the body uses must stay alive.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&&) = delete;
  // Waits if wait() was not called. Throws what wait() throws, but not during stack unwinding.
  ~Pending() noexcept(false);

  // The stream that was current at SideStream::run waits for the work. The host does not wait, except for the
  // emulator's default stream, which runs work at the call. Later calls do nothing.
  void wait();

 private:
  friend class SideStream;
  using SharedStream = std::shared_ptr<const gpu::OwnedStream>;
  Pending() = default;
  Pending(std::unique_ptr<gpu::Event> done, SharedStream waiting);

  std::unique_ptr<gpu::Event> done_;  // null: nothing to wait for
  SharedStream waiting_;
};

// A stream beside the current one, on a device, with the highest priority: for small work that must be in time. The CPU
// has no streams; there the body runs at once.
class SideStream {
 public:
  explicit SideStream(Device device);

  // Calls body() with the side stream as the current one: its launches and allocations go there, after all earlier work
  // of the stream that is current now. If it throws, the current stream waits for what it launched.
  template <class F>
  Pending run(const F& body) {
    fork();
    try {
      const StreamScope scope(stream_ == nullptr ? share_current_stream() : stream_);
      body();
    } catch (...) {
      join().wait();
      throw;
    }
    return join();
  }

 private:
  void fork() const;     // the side stream waits for the current one
  Pending join() const;  // the current stream waits for it

  std::shared_ptr<const gpu::OwnedStream> stream_;  // null on the CPU
};

}  // namespace isobar
