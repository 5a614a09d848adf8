// A trace of what one thread does: kernels, messages between ranks and named ranges, one within another, with their
// times. While no trace is on, a call costs the look at one variable of the thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/cost.h"

namespace isobar {

struct TraceEvent {
  enum class Kind : std::uint8_t { range, kernel, message };

  Kind kind = Kind::range;
  std::string name;
  double begin = 0, seconds = 0;  // since the trace began
  Cost cost = {};                 // of a kernel by its cost model; of a message its bytes
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
  // Of the innermost event that is open.
  void set_cost(const Cost& cost) { events_[open_.back()].cost = cost; }
  void close();

  // In the order of their beginnings.
  const std::vector<TraceEvent>& events() const { return events_; }

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
  void set_cost(const Cost& cost) const { trace_->set_cost(cost); }

 private:
  Trace* trace_;
};

}  // namespace isobar
