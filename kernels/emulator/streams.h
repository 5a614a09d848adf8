// Streams and events of the emulator device. Plain C++: whoever queues work need not see the device API.
//
// A stream is a queue. Launches and copies are put into it with their arguments by value, and nothing runs at the call.
// Work runs when somebody waits: for a stream (synchronize, destroy_stream) or for an event. Then
//
//   - only what the wait needs runs: the stream up to that point, and what events make it wait for;
//   - of the work that is needed and may run, that which was queued last goes first; or the choice is drawn, where
//     draw_order() was given a seed.
//
// So work runs as late as waits and events allow, and in the order of the program only where a stream or an event
// demands it: a forgotten event is a wrong number, always the same one. The null stream runs everything at the call.
//
// Work that throws ends its stream: what follows in it, and in streams that wait for it, is dropped, and every later
// wait for it throws the same error. An error that nobody waits for is lost when the stream is destroyed.
//
// Any thread may give work to any stream and wait for it; the thread that waits runs the work, and holds no lock
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

// One thing that a stream was given.
class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // failure: of earlier work of the stream, or null. Work that fails sets it; where it is set, only what must happen
  // in any case is done.
  virtual void run(std::exception_ptr& failure) noexcept = 0;

 private:
  friend struct Queue;
  friend class Streams;
  virtual const Mark* awaited() const { return nullptr; }  // what must be reached before it runs
  std::unique_ptr<Work> next_;
  std::uint64_t number_ = 0;  // in the order of the calls, over all streams
};

// Draws the order in which work of different streams runs, from now on; 0: what was queued last goes first.
void draw_order(std::uint64_t seed);

Stream create_stream();
void destroy_stream(Stream stream) noexcept;  // runs what is left
void synchronize(Stream stream);              // runs all that the stream was given. Throws its error
bool is_idle(Stream stream);                  // whether all that the stream was given has run

// Gives work to a stream. Needs no memory. Error where the stream is none of the emulator's.
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
  void make_wait(Stream stream) const;  // what the stream is given from now on runs when the point is reached
  void synchronize() const;             // runs what leads to the point. Throws the error of that work
  bool is_reached() const;              // runs nothing
  // Whether what the stream is given from now on runs after the point because streams and events say so.
  bool is_before(Stream stream) const;

 private:
  const Mark& mark() const;
  std::shared_ptr<Mark> mark_;
};

}  // namespace isobar::emulator
