// The virtual GPU (lab/stand_ins/cuda): its results, and that every misuse is an error that names call and site.
#define ISOBAR_EMULATE
#define ISOBAR_VIRTUAL_GPU
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/storage.h"
#include "engine/stream.h"
#include "kernels/common/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/timing.h"
#include "kernels/emulator/streams.h"
#include "kernels/gemm/algorithms.h"
#include "kernels/gemm/gemm.h"
#include "lab/stand_ins/cuda/driver.h"
#include "lab/virtual_gpu/fresh_context.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar::cuda {
namespace {

__global__ void add_kernel(int n, const float* x, float* y) {
  const int i = static_cast<int>(global_thread());
  if (i < n) y[i] += x[i];
}

void add(int n, const float* x, float* y, Stream stream) {
  launch("add", add_kernel, ceil_div(n, 32), 32, 0, stream, n, x, y);
}

}  // namespace
}  // namespace isobar::cuda

namespace isobar {
namespace {

using testing::ContainsSubstring;

constexpr int kN = 100;
constexpr std::size_t kBytes = kN * sizeof(float);

float* allocate(Stream stream = nullptr) {
  return static_cast<float*>(gpu::allocate(kBytes, 0, stream));
}

void set(float* to, float value, Stream stream) {
  const std::vector<float> values(kN, value);
  gpu::copy(to, values.data(), kBytes, kGpu, stream);
}

std::vector<float> read(const float* from, Stream stream) {
  std::vector<float> values(kN);
  gpu::copy(values.data(), from, kBytes, kGpu, stream);
  return values;
}

struct Setting {
  Setting(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Setting() { ::unsetenv(name_); }
  const char* name_;
};

}  // namespace

TEST_CASE("virtual GPU: kernels and copies, in the order of a stream") {
  const FreshContext whole;
  const gpu::OwnedStream stream(kGpu);
  float *x = allocate(stream.get()), *y = allocate(stream.get());
  set(x, 1, stream.get());
  set(y, 2, stream.get());
  for (int i = 0; i < 3; ++i) cuda::add(kN, x, y, stream.get());
  CHECK(read(y, stream.get()) == std::vector<float>(kN, 5));
  gpu::free(x, stream.get());
  gpu::free(y, stream.get());
}

TEST_CASE("virtual GPU: nothing runs before it must, and memory is NaN until it is written") {
  const FreshContext whole;
  const gpu::OwnedStream stream(kGpu);
  float* y = allocate(stream.get());
  auto* host = static_cast<float*>(gpu::allocate_pinned(kBytes));
  host[0] = 3;
  gpu::copy(host, y, kBytes, kGpu, stream.get());
  CHECK(std::isnan(host[0]));
  set(y, 4, stream.get());
  gpu::copy(host, y, kBytes, kGpu, stream.get());
  CHECK(std::isnan(host[0]));
  gpu::synchronize(kGpu, stream.get());
  CHECK(host[0] == 4);
  gpu::free_pinned(host);
  gpu::free(y, stream.get());
}

TEST_CASE("virtual GPU: a graph with a fork runs as often as it is launched") {
  const FreshContext whole;
  const gpu::OwnedStream stream(kGpu), side(kGpu);
  float *x = allocate(stream.get()), *y = allocate(stream.get());
  set(x, 1, stream.get());
  set(y, 0, stream.get());
  gpu::Graph graph;
  {
    gpu::Event fork(kGpu), join(kGpu);
    gpu::Capture capture(stream.get());
    float* inside = allocate(stream.get());
    gpu::copy(inside, x, kBytes, kGpu, stream.get());
    fork.record(stream.get());
    fork.make_wait(side.get());
    cuda::add(kN, inside, y, side.get());
    join.record(side.get());
    join.make_wait(stream.get());
    gpu::free(inside, stream.get());
    graph = capture.end();
  }
  for (int i = 0; i < 3; ++i) graph.launch(stream.get());
  CHECK(read(y, stream.get()) == std::vector<float>(kN, 3));
}

TEST_CASE("virtual GPU: misuse is an error that names the call and what is wrong") {
  struct Case {
    const char* name;
    std::function<void(Stream, Stream)> act;  // with two streams
    const char* sentence;
    const char* call;
  };
  const auto pinned = [] { return static_cast<float*>(gpu::allocate_pinned(kBytes)); };
  const auto event_of = [](Stream s) {
    cudaEvent_t event = nullptr;
    cudaEventCreate(&event);
    cudaEventRecord(event, static_cast<cudaStream_t>(s));
    return event;
  };
  const auto elapsed = [](cudaEvent_t begin, cudaEvent_t end) {
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    gpu::free_memory();
  };
  const Case cases[] = {
      {"use after free",
       [](Stream s, Stream) {
         float *x = allocate(s), *y = allocate(s);
         gpu::free(x, s);
         cuda::add(kN, x, y, s);
       },
       "freed memory: 400 bytes", "cudaLaunchKernelExC in add"},
      {"memory of another stream, without an event",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(other);
         cuda::add(kN, x, y, other);
         gpu::synchronize(kGpu, other);
       },
       "which its stream has not allocated yet", "kernel add in add"},
      {"freed in one stream before another has used it",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(s);
         gpu::synchronize(kGpu, s);
         cuda::add(kN, x, y, other);
         gpu::free(x, s);
         gpu::synchronize(kGpu, s);
         gpu::synchronize(kGpu, other);
       },
       "which is freed: 400 bytes", "kernel add in add"},
      {"freed twice",
       [](Stream s, Stream) {
         float* x = allocate(s);
         gpu::free(x, s);
         gpu::free(x, s);
         gpu::synchronize(kGpu, s);
       },
       "memory is freed twice", "cudaFreeAsync"},
      {"a kernel that writes behind an allocation",
       [](Stream s, Stream) {
         float *x = allocate(s), *y = allocate(s);
         cuda::add(kN, x, y + 1000, s);  // far enough to be on the next page
         gpu::synchronize(kGpu, s);
       },
       "no memory of the device", "cudaLaunchKernelExC in add"},
      {"a kernel that runs over the end of an allocation",
       [](Stream s, Stream) {
         float *x = allocate(s), *y = allocate(s);
         cuda::add(2000, x, y, s);
         gpu::synchronize(kGpu, s);
       },
       "touches what lies behind 400 bytes", "kernel add, block (32,0,0): thread"},
      {"a source that is changed in flight",
       [&](Stream s, Stream) {
         float *x = allocate(s), *source = pinned();
         source[0] = 1;
         gpu::copy(x, source, kBytes, kGpu, s);
         source[0] = 2;
         gpu::synchronize(kGpu, s);
       },
       "the source of a copy to the device was changed", "copy to the device"},
      {"a copy behind an allocation",
       [](Stream s, Stream) {
         float* x = allocate(s);
         gpu::copy(x + 1, std::vector<float>(kN).data(), kBytes, kGpu, s);
       },
       "its destination of 400 bytes begins 4 bytes into 400 bytes", "cudaMemcpyAsync"},
      {"a copy to the host from what is no memory",
       [](Stream s, Stream) { gpu::copy(allocate(s), allocate(s) + 1000, 4, kGpu, s); }, "no memory of the device",
       "cudaMemcpyAsync"},
      {"a stream that is destroyed",
       [](Stream s, Stream) {
         Stream gone = nullptr;
         {
           const gpu::OwnedStream stream(kGpu);
           gone = stream.get();
         }
         gpu::copy(allocate(s), allocate(s), kBytes, kGpu, gone);
       },
       "this stream does not exist", "cudaMemcpyAsync"},
      {"a wait while capturing",
       [](Stream s, Stream) {
         gpu::Capture capture(s);
         gpu::synchronize(kGpu, s);
       },
       "a thread that captures a graph waits for a stream", "cudaStreamSynchronize"},
      {"a copy to ordinary memory while capturing",
       [](Stream s, Stream) {
         float* x = allocate(s);
         gpu::Capture capture(s);
         read(x, s);
       },
       "copies to ordinary memory of the host", "cudaMemcpyAsync"},
      {"a copy from ordinary memory while capturing",
       [](Stream s, Stream) {
         float* x = allocate(s);
         gpu::Capture capture(s);
         set(x, 1, s);
       },
       "would copy from ordinary memory", "cudaMemcpyAsync"},
      {"pinning memory while capturing",
       [&](Stream s, Stream) {
         gpu::Capture capture(s);
         pinned();
       },
       "pins memory", "cudaMallocHost"},
      {"a capture on the default stream",
       [](Stream, Stream) {
         cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal);
         gpu::free_memory();
       },
       "the default stream cannot be captured", "cudaStreamBeginCapture"},
      {"a capture in a capture",
       [](Stream s, Stream) {
         const gpu::Capture first(s);
         const gpu::Capture second(s);
       },
       "captured already", "cudaStreamBeginCapture"},
      {"a stream that is forked in a capture and not joined",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(s);
         gpu::Event fork(kGpu);
         gpu::Capture capture(s);
         fork.record(s);
         fork.make_wait(other);
         cuda::add(kN, x, y, other);
         capture.end();
       },
       "does not wait for what another one was given: kernel add", "cudaStreamEndCapture"},
      {"an event from outside of a capture",
       [](Stream s, Stream other) {
         gpu::Event event(kGpu);
         event.record(other);
         gpu::Capture capture(s);
         event.make_wait(s);
       },
       "recorded outside of the capture", "cudaStreamWaitEvent"},
      {"an event of a capture that has ended",
       [](Stream s, Stream other) {
         gpu::Event event(kGpu);
         gpu::Capture capture(s);
         event.record(s);
         capture.end();
         event.make_wait(other);
       },
       "an event of a capture that has ended", "cudaStreamWaitEvent"},
      {"the host looks at an event of a capture",
       [](Stream s, Stream) {
         gpu::Event event(kGpu);
         gpu::Capture capture(s);
         event.record(s);
         event.is_reached();
       },
       "looks at an event of a graph", "cudaEventQuery"},
      {"the time of an event that was never recorded",
       [&](Stream s, Stream) {
         cudaEvent_t begin = event_of(s), end = nullptr;
         cudaEventCreate(&end);
         elapsed(begin, end);
       },
       "the time of an event is asked for that was never recorded", "cudaEventElapsedTime"},
      {"the time of an event that was not reached", [&](Stream s, Stream) { elapsed(event_of(s), event_of(s)); },
       "asked for before they are reached", "cudaEventElapsedTime"},
      {"a time while capturing",
       [&](Stream s, Stream) {
         cudaEvent_t begin = event_of(s), end = event_of(s);
         gpu::synchronize(kGpu, s);
         gpu::Capture capture(s);
         elapsed(begin, end);
       },
       "a thread that captures a graph asks for the time", "cudaEventElapsedTime"},
      {"the time of an event of a capture",
       [&](Stream s, Stream) {
         gpu::Capture capture(s);
         cudaEvent_t begin = event_of(s), end = event_of(s);
         elapsed(begin, end);
       },
       "the time of an event of a graph is asked for", "cudaEventElapsedTime"},
      {"memory from outside that is freed in a capture",
       [](Stream s, Stream) {
         float* x = allocate(s);
         gpu::Capture capture(s);
         gpu::free(x, s);
         capture.end();
       },
       "that a graph has not allocated is freed in it", "cudaFreeAsync"},
      {"a graph that is launched twice with memory that it does not free",
       [](Stream s, Stream) {
         gpu::Capture capture(s);
         allocate(s);
         const gpu::Graph graph = capture.end();
         graph.launch(s);
         graph.launch(s);
         gpu::synchronize(kGpu, s);
       },
       "launched again before the memory of its last launch is freed", "allocation"},
      {"a block that no GPU can launch",
       [](Stream s, Stream) {
         float* x = allocate(s);
         cuda::launch("too wide", cuda::add_kernel, 1, 2000, 0, s, kN, x, x);
       },
       "a block of 2000", "cudaLaunchKernelExC in too wide"},
      {"a read of what another stream writes",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(other);
         set(y, 0, other);
         gpu::synchronize(kGpu, s);  // both are allocated
         gpu::synchronize(kGpu, other);
         cuda::add(kN, y, x, s);
         cuda::add(kN, x, y, other);
         gpu::synchronize(kGpu, s);
         gpu::synchronize(kGpu, other);
       },
       "and neither waits for the other: 400 bytes", "kernel add in add"},
      {"a write of what another stream reads, by a copy",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(s);
         gpu::synchronize(kGpu, s);
         gpu::copy(y, x, kBytes, kGpu, s);
         set(x, 1, other);
         gpu::synchronize(kGpu, s);
         gpu::synchronize(kGpu, other);
       },
       "writes memory that copy within the device in no range reads", "copy to the device in no range"},
      {"an event that was recorded too early",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(s);
         gpu::Event event(kGpu);
         event.record(s);
         set(x, 1, s);
         event.make_wait(other);
         gpu::copy(y, x, kBytes, kGpu, other);
         gpu::synchronize(kGpu, s);
         gpu::synchronize(kGpu, other);
       },
       "reads memory that copy to the device in no range writes", "copy within the device in no range"},
      {"memory that is used on a stream that does not wait for its allocation",
       [](Stream s, Stream other) {
         float* x = allocate(s);
         gpu::Event event(kGpu);
         event.record(s);
         event.synchronize();  // the host's wait orders later work: this is allowed
         set(x, 1, other);
         gpu::synchronize(kGpu, other);
         float* y = allocate(s);
         event.record(s);
         set(y, 1, other);
         gpu::synchronize(kGpu, s);
         gpu::synchronize(kGpu, other);
       },
       "writes memory that allocation in no range writes", "copy to the device in no range"},
      {"a free that does not wait for another stream",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(s);
         gpu::synchronize(kGpu, s);
         gpu::copy(y, x, kBytes, kGpu, other);
         gpu::synchronize(kGpu, other);
         gpu::copy(y, x, kBytes, kGpu, other);
         gpu::Event event(kGpu);
         event.record(other);
         while (!event.is_reached()) gpu::synchronize(kGpu, other);  // the host has waited: allowed
         gpu::free(y, s);
         gpu::copy(x, x, kBytes, kGpu, other);
         gpu::free(x, s);
         gpu::synchronize(kGpu, other);
         gpu::synchronize(kGpu, s);
       },
       "writes memory that copy within the device in no range", "free in no range"},
      {"two branches of a graph that nothing orders",
       [](Stream s, Stream other) {
         float *x = allocate(s), *y = allocate(s);
         set(x, 1, s);
         set(y, 1, s);
         gpu::Event fork(kGpu), join(kGpu);
         gpu::Capture capture(s);
         fork.record(s);
         fork.make_wait(other);
         cuda::add(kN, x, y, other);
         cuda::add(kN, x, y, s);
         join.record(other);
         join.make_wait(s);
         capture.end().launch(s);
         gpu::synchronize(kGpu, s);
       },
       "memory that kernel add in add writes, and neither waits for the other", "kernel add in add"},
      {"a kernel that is given memory of the host",
       [](Stream s, Stream) {
         const std::vector<float> x(kN);
         cuda::add(kN, x.data(), allocate(s), s);
       },
       "a pointer among its parameters is memory of the host", "cudaLaunchKernelExC in add"},
      {"pinned memory that is none", [](Stream s, Stream) { gpu::free_pinned(allocate(s)), gpu::free_memory(); },
       "not pinned is freed", "cudaFreeHost"},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const FreshContext whole;
    const gpu::OwnedStream stream(kGpu), other(kGpu);
    CHECK_THROWS_WITH(c.act(stream.get(), other.get()), ContainsSubstring(c.sentence) && ContainsSubstring(c.call));
    // Any later call fails too, with the same sentence.
    CHECK_THROWS_WITH(gpu::free_memory(), ContainsSubstring(c.sentence));
  }
}

TEST_CASE("virtual GPU: what two streams only read, or what an event orders, is no misuse") {
  const FreshContext whole;
  const gpu::OwnedStream stream(kGpu), side(kGpu);
  float *x = allocate(stream.get()), *y = allocate(stream.get()), *z = allocate(stream.get());
  for (float* data : {x, y, z}) set(data, 1, stream.get());
  gpu::Event fork(kGpu), join(kGpu);
  fork.record(stream.get());
  fork.make_wait(side.get());
  cuda::add(kN, x, y, stream.get());
  cuda::add(kN, x, z, side.get());
  join.record(side.get());
  join.make_wait(stream.get());
  cuda::add(kN, z, x, stream.get());
  CHECK(read(x, stream.get()) == std::vector<float>(kN, 3));
  for (float* data : {x, y, z}) gpu::free(data, stream.get());
}

TEST_CASE("virtual GPU: a program that has not freed everything ends with status 70") {
  const auto status_of = [](const std::function<void()>& body) {
    const FreshContext whole;
    const pid_t child = fork();
    if (child == 0) {
      body();
      std::exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  CHECK(status_of([] { gpu::free(allocate(), nullptr); }) == 0);
  CHECK(status_of([] { allocate(); }) == 70);
  CHECK(status_of([] { gpu::allocate_pinned(kBytes); }) == 70);
  CHECK(status_of([] { new gpu::OwnedStream(kGpu); }) == 70);
  CHECK(status_of([] { new gpu::Event(kGpu); }) == 70);
}

TEST_CASE("virtual GPU: a pool keeps what is freed until it is trimmed, where it was told so") {
  const FreshContext whole;
  gpu::set_device(0);
  const std::size_t free = gpu::free_memory();
  gpu::free(gpu::allocate(free, 0, nullptr), nullptr);
  gpu::synchronize(kGpu, nullptr);
  CHECK(gpu::free_memory() == 0);
  gpu::trim_memory(0);
  CHECK(gpu::free_memory() == free);
}

TEST_CASE("virtual GPU: the host that touches the device's memory ends there") {
  const FreshContext whole;
  const gpu::OwnedStream stream(kGpu);
  const float* x = allocate(stream.get());
  gpu::synchronize(kGpu, stream.get());
  for (const bool touches : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      ::signal(SIGSEGV, SIG_DFL);
      _exit(touches && *static_cast<const volatile float*>(x) > 0 ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) == touches);
  }
}

TEST_CASE("virtual GPU: the n-th call of a function can be made to fail") {
  const FreshContext whole;
  const Setting fail("ISOBAR_VIRTUAL_GPU_FAIL", "cudaMemGetInfo:2:46");
  gpu::free_memory();
  CHECK_THROWS_WITH(gpu::free_memory(),
                    ContainsSubstring("cudaMemGetInfo") && ContainsSubstring("busy or unavailable"));
  gpu::free_memory();  // no misuse: the context is intact
}

TEST_CASE("virtual GPU: memory runs out where it says") {
  const FreshContext whole;
  const std::size_t free = gpu::free_memory();
  CHECK_THROWS_WITH(gpu::allocate(free + 1, 0, nullptr), ContainsSubstring("out of memory on GPU 0"));
  void* all = gpu::allocate(free, 0, nullptr);
  CHECK(gpu::free_memory() == 0);
  gpu::free(all, nullptr);
  gpu::synchronize(kGpu, nullptr);
  CHECK(gpu::free_memory() == free);
}

// ---- Several devices, and a GPU that fails for good -----------------------------------------------------------------

namespace {

void in_thread(const std::function<void()>& body) {
  std::thread(body).join();
}

}  // namespace

TEST_CASE("virtual GPU: the current device is a thread's own, and each has memory of its own") {
  const FreshContext whole;
  const Setting two("ISOBAR_VIRTUAL_GPU_DEVICES", "2");
  CHECK(gpu::device_count() == 2);
  gpu::set_device(1);
  const std::size_t free = gpu::free_memory();
  void* data = gpu::allocate(free, 1, nullptr);
  CHECK(gpu::free_memory() == 0);
  int of_other = -1;
  in_thread([&] {
    cudaGetDevice(&of_other);
    CHECK(gpu::free_memory() == free);
  });
  CHECK(of_other == 0);
  gpu::free(data, nullptr);
  gpu::synchronize({DeviceKind::cuda, 1}, nullptr);
  CHECK_THROWS_WITH(gpu::set_device(2), ContainsSubstring("there is no device 2"));
}

TEST_CASE("virtual GPU: a thread that has chosen no device makes a context on the first one, as is told") {
  const FreshContext whole;
  const Setting two("ISOBAR_VIRTUAL_GPU_DEVICES", "2");
  gpu::set_device(1);
  gpu::free_memory();
  CHECK(virtual_gpu::context_uses().size() == 1);
  CHECK(virtual_gpu::context_uses().front().device == 1);
  in_thread([] { gpu::device_count(); });  // only a query
  CHECK(virtual_gpu::context_uses().size() == 1);
  in_thread([] { gpu::free_memory(); });
  REQUIRE(virtual_gpu::context_uses().size() == 2);
  CHECK(virtual_gpu::context_uses().back().device == 0);
  CHECK(virtual_gpu::context_uses().back().call == "cudaMemGetInfo");
}

TEST_CASE("virtual GPU: what belongs to another device than the thread's is refused") {
  constexpr Device kThird{DeviceKind::cuda, 2};
  struct Case {
    const char* name;
    std::function<void(Stream, gpu::Event&, float*)> act;  // objects of device 2, used by a thread of device 0
    const char* sentence;
  };
  const Case cases[] = {
      {"an event is asked", [](Stream, gpu::Event& event, float*) { (void)event.is_reached(); },
       "an event of device 2 is used by a thread whose device is 0 (cudaEventQuery"},
      {"an event is recorded", [](Stream s, gpu::Event& event, float*) { event.record(s); }, "cudaEventRecord"},
      {"a stream is waited for", [&](Stream s, gpu::Event&, float*) { gpu::synchronize(kThird, s); },
       "a stream of device 2 is used by a thread whose device is 0 (cudaStreamSynchronize"},
      {"memory is allocated in a stream", [](Stream s, gpu::Event&, float*) { allocate(s); }, "cudaMallocAsync"},
      {"a kernel is given memory",
       [](Stream, gpu::Event&, float* x) {
         const gpu::OwnedStream own(kGpu);
         cuda::add(kN, x, allocate(own.get()), own.get());
       },
       "memory of device 2, which device 0 may not use"}};
  for (const Case& c : cases) {
    INFO(c.name);
    const FreshContext whole;
    const Setting three("ISOBAR_VIRTUAL_GPU_DEVICES", "3");
    cudaSetDevice(2);  // not gpu::set_device, which would let devices use each other's memory
    const gpu::OwnedStream stream(kThird);
    gpu::Event event(kThird);
    event.record(stream.get());
    float* x = allocate(stream.get());
    std::string said;
    in_thread([&] { said = testing::error_of([&] { c.act(stream.get(), event, x); }); });
    CHECK_THAT(said, ContainsSubstring(c.sentence));
  }
}

TEST_CASE("virtual GPU: devices that threads of one process have may use each other's memory") {
  const FreshContext whole;
  const Setting two("ISOBAR_VIRTUAL_GPU_DEVICES", "2");
  constexpr Device kSecond{DeviceKind::cuda, 1};
  gpu::set_device(0);
  const gpu::OwnedStream stream(kGpu);
  float* x = allocate(stream.get());
  set(x, 2, stream.get());
  gpu::synchronize(kGpu, stream.get());
  in_thread([&] {
    gpu::set_device(1);
    const gpu::OwnedStream own(kSecond);
    float* y = allocate(own.get());
    gpu::copy(y, x, kBytes, kSecond, own.get());
    std::vector<float> values(kN);
    gpu::copy(values.data(), y, kBytes, kSecond, own.get());
    CHECK(values == std::vector<float>(kN, 2));
    gpu::free(y, own.get());
  });
  gpu::free(x, stream.get());
}

TEST_CASE("virtual GPU: from a call on, every call of a device can be made to fail") {
  const FreshContext whole;
  const Setting two("ISOBAR_VIRTUAL_GPU_DEVICES", "2");
  const Setting fail("ISOBAR_VIRTUAL_GPU_FAIL", "cudaMemGetInfo:2:700:on:1");
  gpu::set_device(1);
  gpu::free_memory();
  in_thread([] {
    gpu::set_device(0);
    for (int i = 0; i < 3; ++i) gpu::free_memory();
  });
  CHECK_THROWS_WITH(gpu::free_memory(), ContainsSubstring("cudaMemGetInfo: an illegal memory access"));
  CHECK_THROWS_WITH(allocate(), ContainsSubstring("cudaMallocAsync: an illegal memory access"));
  CHECK_THROWS_WITH(gpu::OwnedStream({DeviceKind::cuda, 1}), ContainsSubstring("an illegal memory access"));
  in_thread([] {
    gpu::set_device(0);
    gpu::free_memory();
  });
}

TEST_CASE("virtual GPU: a side stream has the highest priority") {
  const FreshContext whole;
  const auto priority_of = [](Stream stream) {
    int priority = 1;
    cudaStreamGetPriority(static_cast<cudaStream_t>(stream), &priority);
    return priority;
  };
  int lowest = 0, highest = 0, of_side = 1;
  cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  SideStream side(kGpu);
  side.run([&] { of_side = priority_of(current_stream()); }).wait();
  CHECK(of_side == highest);
  CHECK(priority_of(gpu::OwnedStream(kGpu).get()) == lowest);
  CHECK(highest < lowest);
}

TEST_CASE("virtual GPU: what a graph holds is given back between two launches, and when it is dropped") {
  const FreshContext whole;
  gpu::set_device(0);
  const gpu::OwnedStream stream(kGpu);
  constexpr std::size_t kMuch = std::size_t{1} << 20;
  const std::size_t free = gpu::free_memory();
  gpu::Graph graph;
  {
    gpu::Capture capture(stream.get());
    gpu::free(gpu::allocate(kMuch, 0, stream.get()), stream.get());
    graph = capture.end();
  }
  for (int i = 0; i < 2; ++i) {
    graph.launch(stream.get());
    gpu::trim_memory(0);
    CHECK(gpu::free_memory() == free - kMuch);  // it has not run
    gpu::synchronize(kGpu, stream.get());
    CHECK(gpu::free_memory() == free - kMuch);
    gpu::trim_memory(0);
    CHECK(gpu::free_memory() == free);
  }
  graph.launch(stream.get());
  gpu::synchronize(kGpu, stream.get());
  graph = {};
  CHECK(gpu::free_memory() == free - kMuch);
  gpu::trim_memory(0);
  CHECK(gpu::free_memory() == free);
}

// ---- Host code ------------------------------------------------------------------------------------------------------

TEST_CASE("virtual GPU: a driver and a GPU that are too old, and a GPU that cannot be used, are named") {
  const FreshContext whole;
  CHECK(gpu::device_count() == 1);
  {
    const Setting driver("ISOBAR_VIRTUAL_GPU_DRIVER", "0");
    CHECK(gpu::device_count() == 0);
  }
  {
    const Setting hidden("CUDA_VISIBLE_DEVICES", "");
    CHECK(gpu::device_count() == 0);
  }
  {
    const Setting driver("ISOBAR_VIRTUAL_GPU_DRIVER", "12020");
    CHECK_THROWS_WITH(gpu::device_count(), ContainsSubstring("driver is too old: it is for CUDA 12.2") &&
                                               ContainsSubstring("built with CUDA 13.0"));
  }
  {
    const Setting turing("ISOBAR_VIRTUAL_GPU_CAPABILITY", "75");
    CHECK_THROWS_WITH(gpu::set_device(0), ContainsSubstring("GPU 0, virtual GPU, has compute capability 7.5") &&
                                              ContainsSubstring("need 8.0"));
  }
  const auto count_after = [](int code) {
    cudaDeviceReset();
    const Setting fail("ISOBAR_VIRTUAL_GPU_FAIL", concat("cudaGetDeviceCount:1:", code));
    return gpu::device_count();
  };
  CHECK(count_after(cudaErrorNoDevice) == 0);
  CHECK_THROWS_WITH(count_after(cudaErrorNotPermitted), ContainsSubstring("cannot be used: operation not permitted"));
  CHECK_THROWS_WITH(count_after(cudaErrorDevicesUnavailable), ContainsSubstring("is/are busy or unavailable"));
  CHECK_THROWS_WITH(count_after(cudaErrorECCUncorrectable), ContainsSubstring("uncorrectable ECC error"));
}

TEST_CASE(
    "virtual GPU: memory that another stream used is freed behind its work, also where there is no event to be had") {
  const auto stream_of = [] { return std::make_shared<gpu::OwnedStream>(kGpu); };
  for (const char* call : {"cudaEventCreateWithFlags:1", "cudaEventRecord:1", "cudaStreamWaitEvent:1"}) {
    INFO(call);
    const FreshContext whole;
    const auto own = stream_of(), other = stream_of();
    float* y = allocate(other->get());
    set(y, 1, other->get());
    std::unique_ptr<Storage> x;
    {
      const StreamScope scope(own);
      x = std::make_unique<Storage>(kBytes, kGpu);
      set(static_cast<float*>(x->data()), 2, own->get());
      gpu::synchronize(kGpu, own->get());
    }
    {
      const StreamScope scope(other);
      cuda::add(kN, static_cast<const float*>(x->data()), y, other->get());
      const Setting fail("ISOBAR_VIRTUAL_GPU_FAIL", call);
      x.reset();
    }
    gpu::synchronize(kGpu, own->get());  // the memory is free now, and unowned
    CHECK(read(y, other->get()) == std::vector<float>(kN, 3));
    gpu::free(y, other->get());
    gpu::synchronize(kGpu, other->get());
  }
}

TEST_CASE("virtual GPU: an error in a capture leaves the stream as it was") {
  const FreshContext whole;
  const gpu::OwnedStream stream(kGpu);
  float* x = allocate(stream.get());
  CHECK_THROWS_WITH(
      [&] {
        const gpu::Capture capture(stream.get());
        gpu::allocate(std::size_t{1} << 50, 0, stream.get());
      }(),
      ContainsSubstring("out of memory"));
  set(x, 1, stream.get());
  CHECK(read(x, stream.get()) == std::vector<float>(kN, 1));
  gpu::free(x, stream.get());
  gpu::synchronize(kGpu, stream.get());
}

TEST_CASE("virtual GPU: an algorithm serves what it was chosen for, and is asked for again where it failed") {
  const FreshContext whole;
  constexpr std::int64_t kSize = 16;
  const gpu::OwnedStream stream(kGpu);
  const auto matrix = [&](std::int64_t n) {
    auto* data = static_cast<float*>(gpu::allocate(static_cast<std::size_t>(n) * sizeof(float), 0, stream.get()));
    const std::vector<float> ones(static_cast<std::size_t>(n), 1);
    gpu::copy(data, ones.data(), ones.size() * sizeof(float), kGpu, stream.get());
    return data;
  };
  float *a = matrix(kSize * kSize), *b = matrix(kSize * kSize), *c = matrix(kSize * kSize), *bias = matrix(kSize + 1);
  const auto multiply = [&](int shift) {
    cuda::gemm({.m = kSize, .n = kSize, .k = kSize, .a = a, .b = b, .bias = bias + shift, .c = c}, stream.get());
  };
  {
    const Setting fail("ISOBAR_VIRTUAL_GPU_FAIL", "cublasLtMatmulAlgoGetHeuristic:1");
    CHECK_THROWS_WITH(multiply(0), ContainsSubstring("cuBLASLt could not choose an algorithm"));  // then asked again
  }
  for (const int shift : {0, 1}) {
    multiply(shift);
    std::vector<float> result(kSize * kSize);
    gpu::copy(result.data(), c, result.size() * sizeof(float), kGpu, stream.get());
    CHECK(result == std::vector<float>(kSize * kSize, kSize + 1));
  }
}

namespace {

// Products of small matrices on a stream. Their sums depend on the order: 2^24 + 1 is 2^24 in fp32.
class Products {
 public:
  Products() {
    std::vector<float> values(kSize * kSize, 1);
    for (std::size_t i = 0; i < values.size(); i += 7) values[i] = 0x1p24f;
    for (float** matrix : {&a_, &b_, &c_}) {
      *matrix = static_cast<float*>(gpu::allocate(values.size() * sizeof(float), 0, stream_.get()));
      gpu::copy(*matrix, values.data(), values.size() * sizeof(float), kGpu, stream_.get());
      for (float& value : values) value = -value / 3;
    }
    cuda::use_gemm_algorithms(kGpu, {});
  }
  ~Products() {
    cuda::use_gemm_algorithms(kGpu, {});
    for (float* matrix : {a_, b_, c_}) gpu::free(matrix, stream_.get());
  }

  Stream stream() const { return stream_.get(); }
  void multiply(Grad mode = Grad::overwrite) const {
    cuda::gemm({.m = kSize, .n = kSize, .k = kSize, .a = a_, .b = b_, .c = c_, .mode = mode}, stream_.get());
  }
  std::vector<float> result() const {
    std::vector<float> values(kSize * kSize);
    gpu::copy(values.data(), c_, values.size() * sizeof(float), kGpu, stream_.get());
    return values;
  }
  float milliseconds() const {
    gpu::Timer timer;
    timer.start(stream_.get());
    multiply();
    return timer.stop(stream_.get());
  }

 private:
  static constexpr std::int64_t kSize = 16;
  const gpu::OwnedStream stream_{kGpu};
  float *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
};

// The digit in which the stand-in stores an algorithm's number among its candidates: the last of the sixth word.
char& variant_in(std::string& algorithm) {
  return algorithm.at(6 * 16 - 1);
}

}  // namespace

TEST_CASE("virtual GPU: a product takes the fastest candidate, the same one when it is given, and no other") {
  const FreshContext whole;
  const Products products;
  std::set<std::string> taken;
  for (const int seed : {0, 1, 2, 3, 4, 5}) {
    const Setting durations("ISOBAR_VIRTUAL_GPU_DURATIONS", std::to_string(seed));
    cuda::use_gemm_algorithms(kGpu, {});
    {
      const cuda::AlgorithmTiming timing(kGpu);
      products.multiply();
    }
    const std::vector<float> timed = products.result();
    const cuda::GemmAlgorithms chosen = cuda::gemm_algorithms_in_use(kGpu);
    REQUIRE(chosen.size() == 1);
    const float least = products.milliseconds();
    std::string algorithm = chosen.begin()->second;
    taken.insert(algorithm);
    for (const char variant : {'0', '1', '2'}) {
      INFO("seed " << seed << ", variant " << variant);
      std::string other = algorithm;
      variant_in(other) = variant;
      cuda::use_gemm_algorithms(kGpu, {{chosen.begin()->first, other}});
      CHECK(products.milliseconds() >= least);
      CHECK(cuda::gemm_algorithms_in_use(kGpu).begin()->second == other);
      CHECK((products.result() == timed) == (other == algorithm));
    }
  }
  CHECK(taken.size() > 1);
}

TEST_CASE("virtual GPU: a candidate that cannot be run is passed over, and cannot be taken without a sentence") {
  const FreshContext whole;
  const Products products;
  for (const int seed : {0, 1, 2, 3}) {
    const Setting durations("ISOBAR_VIRTUAL_GPU_DURATIONS", std::to_string(seed));
    for (const char* bad : {"0", "1", "2"}) {
      const Setting fails("ISOBAR_VIRTUAL_GPU_BAD_CANDIDATE", bad);
      cuda::use_gemm_algorithms(kGpu, {});
      const cuda::AlgorithmTiming timing(kGpu);
      products.multiply();
      INFO("seed " << seed << ", candidate " << bad << " fails");
      std::string algorithm = cuda::gemm_algorithms_in_use(kGpu).begin()->second;
      CHECK(variant_in(algorithm) != *bad);
    }
  }
  const Setting fails("ISOBAR_VIRTUAL_GPU_BAD_CANDIDATE", "0");
  cuda::use_gemm_algorithms(kGpu, {});
  CHECK_THROWS_AS(products.multiply(), Error);  // the first guess, if nothing is timed
}

// dW = dyᵀ·x of ones, and the gradient of the bias: 32 everywhere, in every variant.
class SummedProducts {
 public:
  SummedProducts() {
    const std::vector<bf16> ones(kRows * kSize, bf16(1.0f));
    for (bf16** matrix : {&dy_, &x_}) {
      *matrix = static_cast<bf16*>(gpu::allocate(ones.size() * sizeof(bf16), 0, stream_.get()));
      gpu::copy(*matrix, ones.data(), ones.size() * sizeof(bf16), kGpu, stream_.get());
    }
    for (float** out : {&dw_, &db_})
      *out = static_cast<float*>(gpu::allocate(kSize * kSize * sizeof(float), 0, stream_.get()));
    cuda::use_gemm_algorithms(kGpu, {});
  }
  ~SummedProducts() {
    cuda::use_gemm_algorithms(kGpu, {});
    for (bf16* matrix : {dy_, x_}) gpu::free(matrix, stream_.get());
    for (float* out : {dw_, db_}) gpu::free(out, stream_.get());
  }

  void multiply(Grad mode) const {
    cuda::gemm({.m = kSize,
                .n = kSize,
                .k = kRows,
                .transpose_a = true,
                .in_dtype = DType::bf16,
                .out_dtype = DType::fp32,
                .a = dy_,
                .b = x_,
                .c = dw_,
                .a_sums = db_,
                .mode = mode},
               stream_.get());
  }
  float milliseconds() const {
    gpu::Timer timer;
    timer.start(stream_.get());
    multiply(Grad::overwrite);
    return timer.stop(stream_.get());
  }
  // Whether all elements of dw and of db have these values.
  bool holds(float dw, float db) const {
    const auto all_are = [&](const float* data, std::size_t count, float value) {
      std::vector<float> values(count);
      gpu::copy(values.data(), data, count * sizeof(float), kGpu, stream_.get());
      return std::all_of(values.begin(), values.end(), [&](float x) { return x == value; });
    };
    return all_are(dw_, kSize * kSize, dw) && all_are(db_, kSize, db);
  }

 private:
  static constexpr std::int64_t kSize = 16, kRows = 32;
  const gpu::OwnedStream stream_{kGpu};
  bf16 *dy_ = nullptr, *x_ = nullptr;
  float *dw_ = nullptr, *db_ = nullptr;
};

TEST_CASE("virtual GPU: sums of A are made by the product or apart, whichever is faster, and as was given") {
  const FreshContext whole;
  const SummedProducts products;
  const auto summed = [] {  // the algorithm in use for the product that can compute the sums
    for (const auto& [words, algorithm] : cuda::gemm_algorithms_in_use(kGpu))
      if (words.find("epilogue 512") != std::string::npos && words.find("added") == std::string::npos)
        return std::pair(words, algorithm);
    return std::pair(std::string(), std::string());
  };
  std::set<bool> apart;
  for (const int seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    INFO("seed " << seed);
    const Setting durations("ISOBAR_VIRTUAL_GPU_DURATIONS", std::to_string(seed));
    cuda::use_gemm_algorithms(kGpu, {});
    {
      const cuda::AlgorithmTiming timing(kGpu);
      products.multiply(Grad::overwrite);
      CHECK(products.holds(32, 32));
      products.multiply(Grad::accumulate);
      CHECK(products.holds(64, 32));
    }
    const cuda::GemmAlgorithms chosen = cuda::gemm_algorithms_in_use(kGpu);
    const auto [words, algorithm] = summed();
    REQUIRE(!words.empty());
    apart.insert(algorithm == "sums apart");
    const float least = products.milliseconds();
    cuda::use_gemm_algorithms(kGpu, chosen);
    CHECK(products.milliseconds() == least);
    CHECK(cuda::gemm_algorithms_in_use(kGpu).at(words) == algorithm);
    cuda::GemmAlgorithms other = chosen;
    other.at(words) = "sums apart";
    cuda::use_gemm_algorithms(kGpu, other);
    CHECK(products.milliseconds() >= least);
    CHECK(products.holds(32, 32));
  }
  CHECK(apart.size() == 2);
}

TEST_CASE("virtual GPU: timing adds to a product no more than once") {
  const FreshContext whole;
  const Products products;
  products.multiply();
  const std::vector<float> before = products.result();
  products.multiply(Grad::accumulate);
  const std::vector<float> once = products.result();
  {
    const cuda::AlgorithmTiming timing(kGpu);
    products.multiply();
    products.multiply(Grad::accumulate);
    CHECK(cuda::gemm_algorithms_in_use(kGpu).size() == 2);
  }
  const std::vector<float> result = products.result();
  for (std::size_t i = 0; i < once.size(); ++i) {
    INFO(i << ": before " << before[i]);
    CHECK(result[i] == testing::Approx(once[i]).epsilon(1e-5));
  }
}

TEST_CASE("virtual GPU: a product for which an algorithm is given that does not fit takes the library's first guess") {
  const FreshContext whole;
  const Products products;
  products.multiply();
  const std::vector<float> guessed = products.result();
  CHECK(cuda::gemm_algorithms_in_use(kGpu).empty());
  {
    const cuda::AlgorithmTiming timing(kGpu);
    products.multiply();  // a new guess when candidates may be timed
  }
  const auto [product, algorithm] = *cuda::gemm_algorithms_in_use(kGpu).begin();
  std::string for_another_shape = algorithm, unknown = algorithm;
  for_another_shape.front() = for_another_shape.front() == '0' ? '1' : '0';
  variant_in(unknown) = '9';
  for (const std::string& wrong : {std::string(), std::string(128, 'g'), std::string(128, 'f'), algorithm + "0",
                                   algorithm.substr(1), for_another_shape, unknown}) {
    INFO(wrong);
    cuda::use_gemm_algorithms(kGpu, {{product, wrong}});
    products.multiply();
    CHECK(products.result() == guessed);
    CHECK(cuda::gemm_algorithms_in_use(kGpu).empty());
    cuda::use_gemm_algorithms(kGpu, {{product, wrong}});
    const cuda::AlgorithmTiming timing(kGpu);
    products.multiply();
    CHECK(cuda::gemm_algorithms_in_use(kGpu) == cuda::GemmAlgorithms{{product, algorithm}});
  }
}

TEST_CASE("virtual GPU: nothing is timed while a graph is being captured") {
  const FreshContext whole;
  const Products products;
  products.multiply();
  const std::vector<float> guessed = products.result();
  cuda::use_gemm_algorithms(kGpu, {});
  const cuda::AlgorithmTiming timing(kGpu);
  gpu::Capture capture(products.stream());
  products.multiply();
  const gpu::Graph graph = capture.end();
  graph.launch(products.stream());
  CHECK(products.result() == guessed);
  CHECK(cuda::gemm_algorithms_in_use(kGpu).empty());
}

}  // namespace isobar
