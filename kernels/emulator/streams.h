// Streams and events of the emulator device. Plain C++: code that queues work does not need the device API.
//
// A stream is a queue. Launches and copies are queued with their arguments by value, and nothing runs at the call. Work
// runs at a wait: for a stream (synchronize, destroy_stream) or for an event. Then
//
//   - only what the wait needs runs: the stream up to that point, and the work before events that it waits for;
//   - of the needed work that may run, the work that was queued last runs first; after draw_order() with a seed the
//     choice is random.
//
// So work runs as late as waits and events allow, and in program order only if a stream or an event requires it: a
// missing event gives a wrong number, the same one every time. The null stream runs everything at the call.
//
// An error ends its stream: later work in it, and in streams that wait for it, is dropped, and every later wait for it
// throws the same error. An error without a later wait is lost when the stream is destroyed.
//
// Any thread may queue work on any stream and wait for it. The waiting thread runs the work, and holds no lock
// meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "kernels/common/stream.h"

namespace isobar::emulator {

struct Mark;  // streams.cc

// One piece of work of a stream.
class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // failure: the error of earlier work of the stream, or null. Work that fails sets it. If it is set already, run()
  // does only what must always be done.
  virtual void run(std::exception_ptr& failure) noexcept = 0;

 private:
  friend struct Queue;
  friend class Streams;
  virtual const Mark* awaited() const { return nullptr; }  // the point that must be reached before it runs
  std::unique_ptr<Work> next_;
  std::uint64_t number_ = 0;  // in the order of the calls, over all streams
};

// From now on, draws the order in which work of different streams runs; 0: what was queued last runs first.
void draw_order(std::uint64_t seed);

Stream create_stream();
void destroy_stream(Stream stream) noexcept;  // runs the remaining work
void synchronize(Stream stream);              // runs all its work. Throws its error
bool is_idle(Stream stream);                  // whether all its work has run

// Queues work on a stream. Needs no memory. Error if the stream is not one of the emulator's.
void queue_work(Stream stream, std::unique_ptr<Work> work);

// The same for a function without arguments, which is kept by value.
template <class F>
void submit(Stream stream, F f) {
  class Call final : public Work {
   public:
    explicit Call(F&& f) : f_(std::move(f)) {}
    void run(std::exception_ptr& failure) noexcept override {
      if (failure) return;
      try {
        f_();
      } catch (...) {
        failure = std::current_exception();
      }
    }

   private:
    F f_;
  };
  if (stream == nullptr)
    f();
  else
    queue_work(stream, std::make_unique<Call>(std::move(f)));
}

void copy(void* to, const void* from, std::size_t bytes, Stream stream);

// A point in the work of a stream: that of the last record().
class Event {
 public:
  void record(Stream stream);
  void make_wait(Stream stream) const;  // later work of the stream runs after the point is reached
  void synchronize() const;             // runs the work up to the point. Throws its error
  bool is_reached() const;              // runs nothing
  // Whether streams and events guarantee that later work of the stream runs after the point.
  bool is_before(Stream stream) const;

 private:
  const Mark& mark() const;
  std::shared_ptr<Mark> mark_;
};

}  // namespace isobar::emulator
