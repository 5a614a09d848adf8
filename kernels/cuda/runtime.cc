#include "kernels/cuda/runtime.h"

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/kernel.h"
#include "kernels/common/trace.h"
#include "kernels/emulator/streams.h"

#if ISOBAR_HAS_CUDA
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <nvtx3/nvToolsExt.h>
#endif

namespace isobar::gpu {

// An event of one kind of device.
struct Event::Native {
  virtual ~Native() = default;
  virtual void record(Stream stream) = 0;
  virtual void make_wait(Stream stream) const = 0;
  virtual void synchronize() const = 0;
  virtual bool is_reached() const = 0;
};

namespace {

// Functions that only CUDA can do; defined twice below.
Stream create_cuda_stream(Priority priority);
void destroy_cuda_stream(Device device, Stream stream) noexcept;
void copy_on_cuda(void* to, const void* from, std::size_t bytes, Stream stream);
void synchronize_cuda(Stream stream);
std::unique_ptr<Event::Native> create_cuda_event();

void open_range(const char* name) {
  if (trace_of_thread != nullptr) trace_of_thread->open(TraceEvent::Kind::range, name);
}
void close_range() {
  if (trace_of_thread != nullptr) trace_of_thread->close();
}

struct EmulatedEvent : Event::Native {
  void record(Stream stream) override { event.record(stream); }
  void make_wait(Stream stream) const override { event.make_wait(stream); }
  void synchronize() const override { event.synchronize(); }
  bool is_reached() const override { return event.is_reached(); }
  emulator::Event event;
};

}  // namespace

void copy(void* to, const void* from, std::size_t bytes, Device device, Stream stream) {
  if (!holds_values(device)) return;
  if (device.kind == DeviceKind::cuda) return copy_on_cuda(to, from, bytes, stream);
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device.kind == DeviceKind::emulator) return emulator::copy(to, from, bytes, stream);
  std::memcpy(to, from, bytes);
}

void synchronize(Device device, Stream stream) {
  if (device.kind == DeviceKind::cuda) return synchronize_cuda(stream);
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device.kind == DeviceKind::emulator) emulator::synchronize(stream);
}

OwnedStream::OwnedStream(Device device, Priority priority) : device_(device) {
  if (device.kind == DeviceKind::cuda) stream_ = create_cuda_stream(priority);
  if (device.kind != DeviceKind::emulator) return;
  if constexpr (ISOBAR_HAS_EMULATOR)
    stream_ = emulator::create_stream();
  else
    fail_not_built(device.kind);
}

OwnedStream::~OwnedStream() {
  if (device_.kind == DeviceKind::cuda) destroy_cuda_stream(device_, stream_);
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device_.kind == DeviceKind::emulator) emulator::destroy_stream(stream_);
}

Event::Event(Device device) {
  if (device.kind == DeviceKind::cuda) native_ = create_cuda_event();
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device.kind == DeviceKind::emulator) native_ = std::make_unique<EmulatedEvent>();
}
Event::~Event() = default;
Event::Event(Event&& other) noexcept = default;
Event& Event::operator=(Event&& other) noexcept = default;

void Event::record(Stream stream) {
  if (native_) native_->record(stream);
}
void Event::make_wait(Stream stream) const {
  if (native_) native_->make_wait(stream);
}
void Event::synchronize() const {
  if (native_) native_->synchronize();
}
bool Event::is_reached() const {
  return native_ == nullptr || native_->is_reached();
}

Graph::Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(executable_, other.executable_);
  return *this;
}

#if ISOBAR_HAS_CUDA
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report this error again
  throw_error("CUDA: ", call, ": ", cudaGetErrorString(status));
}

cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

std::string name_of_version(int number) {  // 13000 -> "13.0"
  return concat(number / 1000, '.', number % 1000 / 10);
}

cudaMemPool_t default_pool(int index) {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
  return pool;
}

// By default the pool returns freed memory at every synchronisation, and the next step must ask the driver for it
// again.
void keep_freed_memory(int index) {
  std::uint64_t everything = ~std::uint64_t{0};
  check(cudaMemPoolSetAttribute(default_pool(index), cudaMemPoolAttrReleaseThreshold, &everything),
        "cudaMemPoolSetAttribute");
}

// By default only the pool's own GPU may use its memory; this adds another GPU.
void let_use_memory(int owner, int user) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, user, owner), "cudaDeviceCanAccessPeer");
  if (can == 0) return;  // NCCL then goes through the host
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = user;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  check(cudaMemPoolSetAccess(default_pool(owner), &access, 1), "cudaMemPoolSetAccess");
}

// Between the GPUs of this process's threads. A process with one GPU, as ranks have, touches no other one.
void share_memory_within_process(int index) {
  static std::mutex mutex;
  static auto* used = new std::set<int>;
  const std::lock_guard lock(mutex);
  if (!used->insert(index).second) return;
  for (const int other : *used) {
    if (other == index) continue;
    let_use_memory(index, other);
    let_use_memory(other, index);
  }
}

void copy_on_cuda(void* to, const void* from, std::size_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "cudaMemcpyAsync");
}

void synchronize_cuda(Stream stream) {
  check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize");
}

Stream create_cuda_stream(Priority priority) {
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::highest ? highest : lowest),
        "cudaStreamCreateWithPriority");
  return stream;
}

// By device and stream.
struct Workspaces {
  std::mutex mutex;
  std::map<std::pair<int, Stream>, void*> memory;
  static Workspaces& instance() {
    static auto* workspaces = new Workspaces;  // outlives every stream
    return *workspaces;
  }
};

// Another stream may get the same handle.
void free_workspace(int index, Stream stream) noexcept {
  Workspaces& workspaces = Workspaces::instance();
  const std::lock_guard lock(workspaces.mutex);
  const auto found = workspaces.memory.find({index, stream});
  if (found == workspaces.memory.end()) return;
  free(found->second, stream);
  workspaces.memory.erase(found);
}

void destroy_cuda_stream(Device device, Stream stream) noexcept {
  free_workspace(device.index, stream);
  cudaStreamDestroy(native(stream));
}

class CudaEvent final : public Event::Native {
 public:
  CudaEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void record(Stream stream) override {
    check(cudaEventRecord(event_, native(stream)), "cudaEventRecord");
    is_recorded_ = true;
  }
  void make_wait(Stream stream) const override {
    check_recorded();
    check(cudaStreamWaitEvent(native(stream), event_, 0), "cudaStreamWaitEvent");
  }
  void synchronize() const override {
    check_recorded();
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }
  bool is_reached() const override {
    check_recorded();
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }

 private:
  // CUDA treats such an event as reached.
  void check_recorded() const { ISOBAR_CHECK(is_recorded_, "somebody waits for an event that was never recorded"); }
  cudaEvent_t event_ = nullptr;
  bool is_recorded_ = false;
};

std::unique_ptr<Event::Native> create_cuda_event() {
  return std::make_unique<CudaEvent>();
}

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return count;
  cudaGetLastError();
  const int driver = driver_version();
  if (status == cudaErrorNoDevice || (status == cudaErrorInsufficientDriver && driver == 0)) return 0;
  ISOBAR_CHECK(status != cudaErrorInsufficientDriver, "the NVIDIA driver is too old: it is for CUDA ",
               name_of_version(driver), ", and this isobar was built with CUDA ", name_of_version(runtime_version()),
               "; update the driver, build isobar with an older CUDA, or use --device cpu");
  throw_error("the NVIDIA GPU cannot be used: ", cudaGetErrorString(status), "; --device cpu does without it");
}

Description describe(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {properties.name, properties.major, properties.minor, properties.totalGlobalMem};
}

void set_device(int index) {
  const Description gpu = describe(index);
  ISOBAR_CHECK(gpu.major >= 8, "GPU ", index, ", ", gpu.name, ", has compute capability ", gpu.major, '.', gpu.minor,
               ", and isobar's kernels need 8.0 (A100) or later; --device cpu does without it");
  check(cudaSetDevice(index), "cudaSetDevice");
  keep_freed_memory(index);
  share_memory_within_process(index);
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

void trim_memory(int index) {
  check(cudaDeviceGraphMemTrim(index), "cudaDeviceGraphMemTrim");
  check(cudaMemPoolTrimTo(default_pool(index), 0), "cudaMemPoolTrimTo");
}

int runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

void* allocate(std::size_t bytes, int index, Stream stream) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaMallocAsync(&data, bytes, native(stream));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(concat("out of memory on GPU ", index, ": ", bytes,
                             " bytes were asked for; a smaller global_batch_size, grad_accumulation or recompute may "
                             "help"));
  }
  check(status, "cudaMallocAsync");
  return data;
}

void free(void* data, Stream stream) noexcept {
  if (data != nullptr) cudaFreeAsync(data, native(stream));
}

bool is_captured(Stream stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &capture), "cudaStreamIsCapturing");
  return capture != cudaStreamCaptureStatusNone;
}

void* workspace(std::size_t bytes, int index, Stream stream) {
  Workspaces& workspaces = Workspaces::instance();
  const std::lock_guard lock(workspaces.mutex);
  void*& memory = workspaces.memory[{index, stream}];
  if (memory != nullptr) return memory;
  ISOBAR_CHECK(!is_captured(stream),
               "a graph is being captured on a stream that has no workspace yet: run one step first");
  return memory = allocate(bytes, index, stream);
}

void* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "cudaMallocHost");
  return data;
}

void free_pinned(void* data) noexcept {
  cudaFreeHost(data);
}

Timer::Timer() {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  const cudaError_t status = cudaEventCreate(&end);
  if (status != cudaSuccess) cudaEventDestroy(begin);
  check(status, "cudaEventCreate");
  begin_ = begin;
  end_ = end;
}

Timer::~Timer() {
  cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

void Timer::start(Stream stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(begin_), native(stream)), "cudaEventRecord");
}

float Timer::stop(Stream stream) {
  float milliseconds = 0;
  check(cudaEventRecord(static_cast<cudaEvent_t>(end_), native(stream)), "cudaEventRecord");
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)), "cudaEventSynchronize");
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)),
        "cudaEventElapsedTime");
  return milliseconds;
}

Graph::~Graph() {
  if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

void Graph::launch(Stream stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), native(stream)), "cudaGraphLaunch");
}

Capture::Capture(Stream stream) : stream_(stream) {
  ISOBAR_CHECK(stream != nullptr, "a graph cannot be captured on the default stream");
  check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

Capture::~Capture() {
  if (!is_open_) return;
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(native(stream_), &graph) == cudaSuccess) cudaGraphDestroy(graph);
  cudaGetLastError();
}

Graph Capture::end() {
  is_open_ = false;
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(native(stream_), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return Graph(executable);
}

void profiler_start() {
  cudaProfilerStart();
}
void profiler_stop() {
  cudaProfilerStop();
}

Range::Range(const char* name) {
  nvtxRangePushA(name);
  open_range(name);
}
Range::~Range() {
  close_range();
  nvtxRangePop();
}

#else

namespace {

[[noreturn]] void no_cuda() {
  throw_error("device cuda: this build of isobar has no CUDA");
}

void copy_on_cuda(void*, const void*, std::size_t, Stream) {
  no_cuda();
}
void synchronize_cuda(Stream) {
  no_cuda();
}
Stream create_cuda_stream(Priority) {
  no_cuda();
}
void destroy_cuda_stream(Device, Stream) noexcept {}
std::unique_ptr<Event::Native> create_cuda_event() {
  no_cuda();
}

}  // namespace

int device_count() {
  return 0;
}
Description describe(int) {
  no_cuda();
}
void set_device(int) {
  no_cuda();
}
std::size_t free_memory() {
  no_cuda();
}
void trim_memory(int) {
  no_cuda();
}
int runtime_version() {
  return 0;
}
int driver_version() {
  return 0;
}
void* allocate(std::size_t, int, Stream) {
  no_cuda();
}
void free(void*, Stream) noexcept {}
bool is_captured(Stream) {
  return false;
}
void* workspace(std::size_t, int, Stream) {
  no_cuda();
}
void* allocate_pinned(std::size_t) {
  no_cuda();
}
void free_pinned(void*) noexcept {}
Timer::Timer() {
  no_cuda();
}
Timer::~Timer() = default;
void Timer::start(Stream) {
  no_cuda();
}
float Timer::stop(Stream) {
  no_cuda();
}
Graph::~Graph() = default;
void Graph::launch(Stream) const {
  no_cuda();
}
Capture::Capture(Stream) {
  no_cuda();
}
Capture::~Capture() = default;
Graph Capture::end() {
  no_cuda();
}
void profiler_start() {}
void profiler_stop() {}
Range::Range(const char* name) {
  open_range(name);
}
Range::~Range() {
  close_range();
}

#endif

}  // namespace isobar::gpu
