#include "kernels/common/trace.h"

#include <utility>

namespace isobar {

constinit thread_local Trace* trace_of_thread = nullptr;

Trace::Trace(std::function<void()> wait) : wait_(std::move(wait)) {
  trace_of_thread = this;
}

Trace::~Trace() {
  if (trace_of_thread == this) trace_of_thread = nullptr;
}

double Trace::now(TraceEvent::Kind kind) const {
  if (wait_ && kind != TraceEvent::Kind::range) wait_();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Trace::open(TraceEvent::Kind kind, const std::string& name) {
  open_.push_back(events_.size());
  events_.push_back({.kind = kind, .name = name});
  events_[open_.back()].begin = now(kind);
}

void Trace::describe(const Cost& cost, CallOperands operands) {
  TraceEvent& event = events_[open_.back()];
  event.cost = cost;
  event.operands = std::move(operands);
  event.begin = now(event.kind);
}

void Trace::close() {
  if (open_.empty()) return;  // of a range that was open before the trace began
  TraceEvent& event = events_[open_.back()];
  open_.pop_back();
  event.seconds = now(event.kind) - event.begin;
}

}  // namespace isobar
