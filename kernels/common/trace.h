// A trace of what one thread does: kernels, messages between ranks and named ranges, one within another, with their
// times. While no trace is on, a call costs the look at one variable of the thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/common/operands.h"

namespace isobar {

struct TraceEvent {
  enum class Kind : std::uint8_t { range, kernel, message };

  Kind kind = Kind::range;
  std::string name;
  double begin = 0, seconds = 0;  // since the trace began
  Cost cost = {};                 // of a kernel by its cost model; of a message its bytes
  // Of a kernel the tensors that it reads and writes, in the order of its arguments; of a message what this rank gives.
  CallOperands operands = {};
};

// As long as it lives, it is the trace of this thread. A GPU runs behind its host: `wait` waits for it, whenever the
// time of a kernel or a message is taken, so that kernels do not overlap in a trace.
class Trace {
 public:
  explicit Trace(std::function<void()> wait = {});
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void open(TraceEvent::Kind kind, const std::string& name);
  // Of the innermost event that is open, which begins now: what it took to describe it is not its time.
  void describe(const Cost& cost, CallOperands operands);
  void close();

  // In the order of their beginnings.
  const std::vector<TraceEvent>& events() const { return events_; }
  // Whether it should end: viewers open files of some hundred MB, and an event takes a few hundred bytes there.
  bool is_full() const { return events_.size() >= kMostEvents; }
  static constexpr std::size_t kMostEvents = 500'000;

 private:
  double now(TraceEvent::Kind kind) const;

  std::function<void()> wait_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<TraceEvent> events_;
  std::vector<std::size_t> open_;
};

extern constinit thread_local Trace* trace_of_thread;  // null: none

// An event from its making to its end.
class TracedCall {
 public:
  // over: of a message, the group of ranks; null: none.
  TracedCall(TraceEvent::Kind kind, const char* name, const char* over = nullptr) : trace_(trace_of_thread) {
    if (trace_ != nullptr) trace_->open(kind, over == nullptr ? name : std::string(name) + " over " + over);
  }
  ~TracedCall() {
    if (trace_ != nullptr) trace_->close();
  }
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

  bool is_on() const { return trace_ != nullptr; }
  void describe(const Cost& cost, CallOperands operands) const { trace_->describe(cost, std::move(operands)); }

 private:
  Trace* trace_;
};

}  // namespace isobar
