// Work beside the current stream: what does not depend on it runs while it goes on.
//
//     SideStream side(device);
//     Pending sums = side.run([&] { ... });  // follows all that the current stream was given so far
//     ...                                    // the current stream goes on
//     sums.wait();                           // from here on it follows the work of the body
#pragma once

#include <memory>

#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

// Work of a side stream that a stream has yet to wait for. Until it does, that stream must not write what the body
// reads, nor touch what it writes, and all tensors that the body uses must live.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&&) = delete;
  // Waits, if nobody has. Throws what wait() does, but not while another error is on its way.
  ~Pending() noexcept(false);

  // Makes the stream that was current at SideStream::run wait for the work. The host does not wait, but where that
  // stream is the emulator's default one, which runs everything at the call. Later calls do nothing.
  void wait();

 private:
  friend class SideStream;
  using SharedStream = std::shared_ptr<const gpu::OwnedStream>;
  Pending() = default;
  Pending(std::unique_ptr<gpu::Event> done, SharedStream waiting);

  std::unique_ptr<gpu::Event> done_;  // null: nothing is left to wait for
  SharedStream waiting_;
};

// A stream beside the current one, on a device, of the highest priority: what is small and has to be in time goes
// there. On the CPU, where there are no streams, the body simply runs.
class SideStream {
 public:
  explicit SideStream(Device device);

  // Calls body(), with the side stream as the current one: its launches and allocations go there, behind all that the
  // stream that is current now was given. When it throws, the current stream waits for what it launched.
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
  Pending join() const;  // for which the current stream is to wait

  std::shared_ptr<const gpu::OwnedStream> stream_;  // null on the CPU
};

}  // namespace isobar
