// Streams, events and graphs of the virtual GPU, on the emulator's queues. No work runs at the call.
#include "kernels/emulator/streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "lab/stand_ins/cuda/driver.h"
#include "tests/harness/error_of.h"

namespace isobar::virtual_gpu {

// One operation of a graph, and the nodes that precede it.
struct Node {
  Operation operation;
  std::vector<std::size_t> after;
};
struct Recording {
  std::vector<Node> nodes;
  NodeOrder order = {};            // filled in when the capture ends
  std::size_t max_bytes_held = 0;  // maximum held by its own allocations, with nodes in the order of the calls
};
struct Capture {
  cudaStream_t origin;
  std::thread::id thread;
  std::shared_ptr<Recording> recording = std::make_shared<Recording>();
  std::map<cudaStream_t, std::vector<std::size_t>> tails = {};  // by stream in it: predecessors of its next node
};

}  // namespace isobar::virtual_gpu

struct CUstream_st {
  std::uint64_t id;  // unique: never used for another stream
  int device = isobar::virtual_gpu::current_device();
  int priority = 0;  // a lower number is a higher priority
  isobar::Stream queue = isobar::emulator::create_stream();
  std::shared_ptr<isobar::virtual_gpu::Capture> capture = nullptr;
  isobar::virtual_gpu::Clock clock = {};                               // of the next work
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);  // used by its work so far
};
struct CUevent_st {
  int device = isobar::virtual_gpu::current_device();
  bool has_time = true, is_recorded = false;
  isobar::emulator::Event event = {};
  isobar::virtual_gpu::Clock clock = {};
  std::shared_ptr<double> milliseconds = nullptr;            // of its stream, when the event was reached
  std::weak_ptr<isobar::virtual_gpu::Capture> capture = {};  // in which it was recorded
  bool is_captured = false;
  std::vector<std::size_t> nodes = {};
};
struct CUgraph_st {
  std::shared_ptr<isobar::virtual_gpu::Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<isobar::virtual_gpu::Recording> recording;
  int device = isobar::virtual_gpu::current_device();
  bool holds_memory = false;  // from its first launch until it is trimmed
  std::shared_ptr<std::atomic<int>> launches = std::make_shared<std::atomic<int>>(0);  // not run yet
};

namespace isobar::virtual_gpu {
namespace {

constexpr int kHighestPriority = -5;

// Handles that the program holds.
struct Handles {
  std::recursive_mutex mutex;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  std::map<int, std::unique_ptr<CUstream_st>> default_streams;  // by device
  std::uint64_t seed = number_setting("ISOBAR_VIRTUAL_GPU_SCHEDULE", 0);
  std::uint64_t drawn = 0;
  std::uint64_t streams_made = 0;
  Clock host;  // everything that the host has waited for; what it starts later comes after
  Handles() { emulator::draw_order(seed); }
  static Handles& instance() {
    static auto* handles = new Handles;
    return *handles;
  }
};

thread_local std::size_t captures_of_thread = 0;

CUstream_st& state_of(cudaStream_t stream) {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  if (stream == nullptr) {
    std::unique_ptr<CUstream_st>& own = handles.default_streams[current_device()];
    if (own == nullptr) own = std::make_unique<CUstream_st>(CUstream_st{.id = ++handles.streams_made});
    return *own;
  }
  if (!handles.streams.contains(stream))
    misuse(cudaErrorInvalidResourceHandle, "this stream does not exist (any more)");
  refuse_elsewhere(stream->device, "a stream");
  return *stream;
}

// A stream may wait for an event of any device.
CUevent_st& awaited_event(cudaEvent_t event) {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  if (!handles.events.contains(event)) misuse(cudaErrorInvalidResourceHandle, "this event does not exist (any more)");
  return *event;
}

CUevent_st& state_of(cudaEvent_t event) {
  CUevent_st& state = awaited_event(event);
  refuse_elsewhere(state.device, "an event");
  return state;
}

std::vector<Touch> all_pages_of(const SharedAllocation& allocation) {
  std::vector<Touch> touches;
  for (std::size_t page = 0; page < allocation->pages.size(); ++page) touches.push_back({allocation, page, true});
  return touches;
}

// An error of work breaks the context, as on a GPU.
void run_operation(int device, const Operation& operation, const std::shared_ptr<const Moment>& when) {
  try {
    check_mapped(operation);
    if (operation.frees != nullptr) note_touches(all_pages_of(operation.frees), when);
    const std::vector<Touch> touches = run_alone(operation);
    note_touches(operation.allocates != nullptr ? all_pages_of(operation.allocates) : touches, when);
  } catch (const Error& error) {
    const std::string whole = concat(error.what(), " (", operation.name, " in ", operation.site, ")");
    break_context(device, cudaErrorIllegalAddress, whole);
    throw Error(whole);
  }
}

// A GPU may run work before the host waits for it: with a seed, some work is run at once.
bool draws_progress() {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  if (handles.seed == 0) return false;
  return ((++handles.drawn * 0x9e3779b97f4a7c15u ^ handles.seed * 0xbf58476d1ce4e5b9u) >> 61) == 0;
}

// Checks made at the call.
void check_operands(int device, const Operation& operation) {
  for (const Operand& operand : operation.operands) {
    const SharedAllocation allocation = find_allocation(operand.data);
    const auto* begin = static_cast<const std::byte*>(operand.data);
    if (allocation == nullptr)
      misuse(cudaErrorInvalidValue, operation.name, ": ", operand.name, " is no memory of the device");
    if (allocation->is_freed)
      misuse(cudaErrorInvalidValue, operation.name, ": ", operand.name, " is freed memory: ", describe(*allocation));
    if (!may_access(device, *allocation))
      misuse(cudaErrorInvalidValue, operation.name, ": ", operand.name, " is memory of device ", allocation->device,
             ", which device ", device, " may not use: ", describe(*allocation));
    if (begin + operand.bytes > allocation->address + allocation->bytes)
      misuse(cudaErrorInvalidValue, operation.name, ": ", operand.name, " of ", operand.bytes, " bytes begins ",
             begin - allocation->address, " bytes into ", describe(*allocation));
  }
}

void note_synchronisation(cudaStream_t stream) {
  count(Count::synchronisations);
  list_work({.name = "synchronisation", .run = {}, .operands = {}, .site = site()}, stream);
}

void add_node(Capture& capture, cudaStream_t stream, Operation operation) {
  std::vector<std::size_t>& tail = capture.tails[stream];
  capture.recording->nodes.push_back({std::move(operation), tail});
  tail = {capture.recording->nodes.size() - 1};
}

// Runs the nodes of a graph in an order drawn among those that its edges allow; without a seed the last nodes first.
// Returns the milliseconds that they take.
double run_graph(int device, const Recording& recording, const Moment& launch) {
  const std::uint64_t seed = Handles::instance().seed;
  std::vector<std::size_t> missing(recording.nodes.size());
  std::vector<std::vector<std::size_t>> followers(recording.nodes.size());
  std::set<std::pair<std::uint64_t, std::size_t>> ready;
  const auto add = [&](std::size_t node) {
    ready.emplace(seed == 0 ? node : (node + 1) * (seed * 2 + 1) * 0x9e3779b97f4a7c15u, node);
  };
  for (std::size_t i = 0; i < recording.nodes.size(); ++i) {
    missing[i] = recording.nodes[i].after.size();
    for (const std::size_t before : recording.nodes[i].after) followers[before].push_back(i);
    if (missing[i] == 0) add(i);
  }
  double milliseconds = 0;
  while (!ready.empty()) {
    const auto next = std::prev(ready.end());
    const std::size_t node = next->second;
    ready.erase(next);
    const Operation& operation = recording.nodes[node].operation;
    Moment when = launch;
    when.order = &recording.order;
    when.node = node;
    when.what = concat(operation.name, " in ", operation.site);
    run_operation(device, operation, std::make_shared<const Moment>(std::move(when)));
    milliseconds += operation.milliseconds;
    for (const std::size_t follower : followers[node])
      if (--missing[follower] == 0) add(follower);
  }
  return milliseconds;
}

// All nodes from which a path leads to these.
std::set<std::size_t> ancestors(const Recording& recording, std::vector<std::size_t> nodes) {
  std::set<std::size_t> found;
  while (!nodes.empty()) {
    const std::size_t node = nodes.back();
    nodes.pop_back();
    if (!found.insert(node).second) continue;
    nodes.insert(nodes.end(), recording.nodes[node].after.begin(), recording.nodes[node].after.end());
  }
  return found;
}

// Edges lead from earlier nodes to later ones.
void complete(Recording& recording) {
  const std::size_t count = recording.nodes.size();
  std::size_t held = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<bool>& before = recording.order.emplace_back(count);
    for (const std::size_t node : recording.nodes[i].after) {
      before[node] = true;
      for (std::size_t other = 0; other < node; ++other)
        if (recording.order[node][other]) before[other] = true;
    }
    const Operation& operation = recording.nodes[i].operation;
    if (operation.allocates != nullptr) held += operation.allocates->bytes;
    if (operation.frees != nullptr) held -= std::min(held, operation.frees->bytes);
    recording.max_bytes_held = std::max(recording.max_bytes_held, held);
  }
}

std::shared_ptr<Recording> end_capture(cudaStream_t stream) {
  const std::shared_ptr<Capture> capture = state_of(stream).capture;
  if (capture == nullptr) misuse(cudaErrorIllegalState, "nothing is captured on this stream");
  if (capture->origin != stream)
    misuse(cudaErrorStreamCaptureUnjoined, "the capture is ended on another stream than it began on");
  if (capture->thread != std::this_thread::get_id())
    misuse(cudaErrorStreamCaptureWrongThread, "another thread began the capture");
  for (const auto& [member, tail] : capture->tails) state_of(member).capture = nullptr;
  --captures_of_thread;
  const std::set<std::size_t> joined = ancestors(*capture->recording, capture->tails.at(stream));
  for (const auto& [member, tail] : capture->tails)
    for (const std::size_t node : tail)
      if (!joined.contains(node))
        misuse(cudaErrorStreamCaptureUnjoined,
               "the stream that captures does not wait for what another one was given: ",
               capture->recording->nodes[node].operation.name, " in ", capture->recording->nodes[node].operation.site);
  complete(*capture->recording);
  return capture->recording;
}

Moment next_moment(CUstream_st& state, std::string what) {
  Moment when{.stream = state.id, .what = std::move(what)};
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  merge(state.clock, handles.host);
  when.follows = std::make_shared<const Clock>(state.clock);
  when.number = ++state.clock[state.id];
  return when;
}

// Enqueues work in the stream. `run` receives its moment and returns the milliseconds that it takes.
void submit(CUstream_st& state, std::string what, std::function<double(const Moment&)> run) {
  Moment when = next_moment(state, std::move(what));
  emulator::submit(state.queue,
                   [when = std::move(when), run = std::move(run), total = state.milliseconds] { *total += run(when); });
  if (draws_progress()) {
    emulator::Event now;
    now.record(state.queue);
    now.synchronize();
  }
}

// Work that lasts. A failure ends the stream; it breaks the context only if the program is wrong.
class Lasting final : public emulator::Work {
 public:
  Lasting(int device, Moment when, LastingOperation work)
      : device_(device), when_(std::make_shared<const Moment>(std::move(when))), work_(std::move(work)) {}
  void run(std::exception_ptr& failure) noexcept override {
    std::string wrong = failure != nullptr ? "" : testing::error_of([&] { check_mapped(work_.operation); });
    const bool dropped = failure != nullptr || !wrong.empty();
    const std::string said = work_.run(dropped);
    if (!dropped && said.empty())
      wrong = testing::error_of([&] { note_touches(whole_pages_of(work_.operation), when_); });
    if (!wrong.empty()) {
      wrong += concat(" (", work_.operation.name, " in ", work_.operation.site, ")");
      break_context(device_, cudaErrorIllegalAddress, wrong);
    }
    if (failure == nullptr && !(wrong + said).empty())
      failure = std::make_exception_ptr(Error(wrong.empty() ? said : wrong));
  }

 private:
  int device_;
  std::shared_ptr<const Moment> when_;
  LastingOperation work_;
};

// Records that the host has waited for everything in `clock`.
void note_wait(const Clock& clock) {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  merge(handles.host, clock);
}

}  // namespace

void queue(cudaStream_t stream, Operation operation) {
  CUstream_st& state = state_of(stream);
  operation.site = site();
  check_operands(state.device, operation);
  list_work(operation, stream);
  if (operation.handles_numbers && !computes()) operation.run = [] {};
  if (state.capture != nullptr) return add_node(*state.capture, stream, std::move(operation));
  std::string what = concat(operation.name, " in ", operation.site);
  submit(state, std::move(what), [device = state.device, operation = std::move(operation)](const Moment& when) {
    run_operation(device, operation, std::make_shared<const Moment>(when));
    return operation.milliseconds;
  });
}

void queue_lasting(cudaStream_t stream, LastingOperation work) {
  CUstream_st& state = state_of(stream);
  work.operation.site = site();
  check_operands(state.device, work.operation);
  list_work(work.operation, stream);
  if (state.capture != nullptr)
    misuse(cudaErrorStreamCaptureUnsupported, work.operation.name, " is given to a stream that is captured");
  Moment when = next_moment(state, concat(work.operation.name, " in ", work.operation.site));
  emulator::queue_work(state.queue, std::make_unique<Lasting>(state.device, std::move(when), std::move(work)));
}

bool is_stream(cudaStream_t stream) {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  return handles.streams.contains(stream);
}

struct Point::State {
  emulator::Event event = {};
  Clock clock = {};
};

Point::Point(cudaStream_t stream) : state_(std::make_unique<State>()) {
  CUstream_st& recorded = state_of(stream);
  state_->clock = recorded.clock;
  state_->event.record(recorded.queue);
}
Point::~Point() = default;

void Point::make_wait(cudaStream_t stream) const {
  CUstream_st& waiting = state_of(stream);
  merge(waiting.clock, state_->clock);
  state_->event.make_wait(waiting.queue);
}

void Point::run_up_to() const {
  testing::error_of([this] { state_->event.synchronize(); });
  note_wait(state_->clock);
}

bool Point::is_reached() const {
  return state_->event.is_reached();
}

bool Point::is_before(cudaStream_t stream) const {
  return state_->event.is_before(state_of(stream).queue);
}

void synchronize(cudaStream_t stream) {
  CUstream_st& state = state_of(stream);
  refuse_in_capture("waits for a stream");
  note_synchronisation(stream);
  emulator::synchronize(state.queue);
  note_wait(state.clock);
  note_synchronised(state.device);
}

const void* capture_of(cudaStream_t stream) {
  return state_of(stream).capture.get();
}

void refuse_in_capture(const char* what) {
  if (captures_of_thread > 0) misuse(cudaErrorStreamCaptureUnsupported, "a thread that captures a graph ", what);
}

void reset_streams() {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  for (const auto& [device, stream] : handles.default_streams) emulator::destroy_stream(stream->queue);
  handles.default_streams.clear();
  handles.streams.clear();
  handles.events.clear();
  handles.graphs.clear();
  handles.executables.clear();
  captures_of_thread = 0;
}

std::string leaked_handles() {
  Handles& handles = Handles::instance();
  const std::lock_guard lock(handles.mutex);
  const std::pair<std::size_t, const char*> kinds[] = {{handles.streams.size(), "streams"},
                                                       {handles.events.size(), "events"},
                                                       {handles.graphs.size(), "graphs"},
                                                       {handles.executables.size(), "executable graphs"}};
  std::string all;
  for (const auto& [count, kind] : kinds)
    if (count > 0) all += concat(all.empty() ? "" : ", ", count, " ", kind);
  return all.empty() ? "" : all + " are not destroyed";
}

}  // namespace isobar::virtual_gpu

using namespace isobar::virtual_gpu;

namespace {

template <class Handle>
void forget(std::set<Handle>& known, Handle handle, const char* what) {
  const std::lock_guard lock(Handles::instance().mutex);
  if (known.erase(handle) == 0) misuse(cudaErrorInvalidResourceHandle, "this ", what, " does not exist (any more)");
}

template <class Handle>
Handle keep(std::set<Handle>& known, Handle handle) {
  const std::lock_guard lock(Handles::instance().mutex);
  known.insert(handle);
  return handle;
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&] {
    refuse_in_capture("makes a stream");
    if (flags != cudaStreamNonBlocking)
      misuse(cudaErrorNotSupported, "the virtual GPU has only streams that do not wait for the default one");
    if (priority > 0 || priority < kHighestPriority)
      misuse(cudaErrorInvalidValue, "the priority ", priority, ", which no stream can have");  // CUDA clamps it
    Handles& handles = Handles::instance();
    const std::lock_guard lock(handles.mutex);
    *stream = keep(handles.streams, new CUstream_st{.id = ++handles.streams_made, .priority = priority});
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return call("cudaDeviceGetStreamPriorityRange", [&] {
    *lowest = 0;
    *highest = kHighestPriority;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call("cudaStreamGetPriority", [&] { *priority = state_of(stream).priority; });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&] {
    if (state_of(stream).capture != nullptr) misuse(cudaErrorIllegalState, "a stream is destroyed that is captured");
    forget(Handles::instance().streams, stream, "stream");
    isobar::emulator::destroy_stream(stream->queue);
    delete stream;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [&] { synchronize(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [&] {
    CUstream_st& waiting = state_of(stream);
    const CUevent_st& awaited = awaited_event(event);
    if (!awaited.is_recorded) misuse(cudaErrorInvalidValue, "a stream waits for an event that was never recorded");
    if (!awaited.is_captured) {
      if (waiting.capture != nullptr)
        misuse(cudaErrorStreamCaptureIsolation,
               "a stream that is captured waits for an event that was recorded outside of the capture");
      merge(waiting.clock, awaited.clock);
      return awaited.event.make_wait(waiting.queue);
    }
    const std::shared_ptr<Capture> capture = awaited.capture.lock();
    if (capture == nullptr || state_of(capture->origin).capture != capture)
      misuse(cudaErrorCapturedEvent, "a stream waits for an event of a capture that has ended");
    if (waiting.capture != nullptr && waiting.capture != capture)
      misuse(cudaErrorStreamCaptureIsolation, "a stream that is captured waits for an event of another capture");
    waiting.capture = capture;
    std::vector<std::size_t>& tail = capture->tails[stream];
    for (const std::size_t node : awaited.nodes)
      if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] {
    *event = keep(Handles::instance().events, new CUevent_st{.has_time = (flags & cudaEventDisableTiming) == 0});
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call("cudaEventCreate", [&] { *event = keep(Handles::instance().events, new CUevent_st); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [&] {
    state_of(event);
    forget(Handles::instance().events, event, "event");
    delete event;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&] {
    CUevent_st& recorded = state_of(event);
    CUstream_st& state = state_of(stream);
    recorded.is_recorded = true;
    recorded.is_captured = state.capture != nullptr;
    if (recorded.is_captured) {
      recorded.capture = state.capture;
      recorded.nodes = state.capture->tails[stream];
      return;
    }
    if (recorded.has_time) {
      recorded.milliseconds = std::make_shared<double>();
      isobar::emulator::submit(state.queue, [at = recorded.milliseconds, total = state.milliseconds] { *at = *total; });
    }
    recorded.clock = state.clock;
    recorded.event.record(state.queue);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&] {
    const CUevent_st& awaited = state_of(event);
    if (awaited.is_captured) misuse(cudaErrorCapturedEvent, "the host waits for an event of a graph");
    refuse_in_capture("waits for an event");
    note_synchronisation(nullptr);
    if (!awaited.is_recorded) return;
    awaited.event.synchronize();
    note_wait(awaited.clock);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] {
    const CUevent_st& asked = state_of(event);
    if (asked.is_captured) misuse(cudaErrorCapturedEvent, "the host looks at an event of a graph");
    refuse_in_capture("looks at an event");
    if (asked.is_recorded && !asked.event.is_reached()) refuse(cudaErrorNotReady, "not ready");
    note_wait(asked.clock);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&] {
    const CUevent_st &first = state_of(begin), &last = state_of(end);
    for (const CUevent_st* event : {&first, &last}) {
      if (!event->has_time) misuse(cudaErrorInvalidResourceHandle, "an event that keeps no time is asked for it");
      if (!event->is_recorded)
        misuse(cudaErrorInvalidResourceHandle, "the time of an event is asked for that was never recorded");
      if (event->is_captured) misuse(cudaErrorCapturedEvent, "the time of an event of a graph is asked for");
    }
    refuse_in_capture("asks for the time between two events");
    if (!first.event.is_reached() || !last.event.is_reached())
      misuse(cudaErrorNotReady, "the time between two events is asked for before they are reached");
    *milliseconds = static_cast<float>(*last.milliseconds - *first.milliseconds);
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] {
    if (stream == nullptr) misuse(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
    if (mode != cudaStreamCaptureModeThreadLocal)
      misuse(cudaErrorNotSupported, "the virtual GPU captures in the mode ThreadLocal only");
    CUstream_st& state = state_of(stream);
    if (state.capture != nullptr) misuse(cudaErrorIllegalState, "this stream is captured already");
    state.capture = std::make_shared<Capture>(Capture{.origin = stream, .thread = std::this_thread::get_id()});
    state.capture->tails[stream] = {};
    ++captures_of_thread;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return call("cudaStreamEndCapture",
              [&] { *graph = keep(Handles::instance().graphs, new CUgraph_st{end_capture(stream)}); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&] {
    *status = capture_of(stream) == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate",
              [&] { *executable = keep(Handles::instance().executables, new CUgraphExec_st{graph->recording}); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&] {
    forget(Handles::instance().graphs, graph, "graph");
    delete graph;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call("cudaGraphExecDestroy", [&] {
    forget(Handles::instance().executables, executable, "graph");
    delete executable;  // its memory stays with the device until a trim
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&] {
    {
      const std::lock_guard lock(Handles::instance().mutex);
      if (!Handles::instance().executables.contains(executable))
        misuse(cudaErrorInvalidResourceHandle, "this graph does not exist (any more)");
    }
    refuse_in_capture("launches a graph");
    count(Count::graphs);
    refuse_elsewhere(executable->device, "a graph");
    if (!executable->holds_memory) hold_for_graph(executable->device, executable->recording->max_bytes_held);
    executable->holds_memory = true;
    ++*executable->launches;
    submit(state_of(stream), "graph",
           [device = executable->device, recording = executable->recording,
            launches = executable->launches](const Moment& when) {
             --*launches;
             return run_graph(device, *recording, when);
           });
  });
}

// Frees the memory of graphs that are destroyed or not running.
cudaError_t cudaDeviceGraphMemTrim(int device) {
  return call("cudaDeviceGraphMemTrim", [&] {
    check_device(device);
    Handles& handles = Handles::instance();
    const std::lock_guard lock(handles.mutex);
    std::size_t in_use = 0;
    for (const cudaGraphExec_t executable : handles.executables) {
      if (executable->device != device || !executable->holds_memory) continue;
      executable->holds_memory = *executable->launches > 0;
      if (executable->holds_memory) in_use += executable->recording->max_bytes_held;
    }
    trim_graphs(device, in_use);
  });
}
