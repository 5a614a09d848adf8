// The functions of the CUDA runtime that the engine needs, without its headers. In a build without CUDA, and on a
// machine without a driver, device_count() is 0, and everything else that needs a device is an Error.
//
// Functions of a Device also work for the emulator; its streams and events are in kernels/emulator/streams.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/common/check.h"
#include "kernels/common/device.h"
#include "kernels/common/stream.h"

namespace isobar::gpu {

// 0 if there is no driver, no device, or no CUDA in this build. Error if there is a GPU that cannot be used: the driver
// is too old, or the GPU is forbidden, busy or broken.
int device_count();

struct Description {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::size_t memory_bytes = 0;
};
Description describe(int index);
// For this thread. Error, with its name, for a GPU that is too old for the kernels. If threads of one process have
// several GPUs, each of these may use the memory of the others, as NCCL does between ranks that are threads.
void set_device(int index);
std::size_t free_memory();
// Returns freed memory to the device, and the memory that captured graphs hold between two launches, if their work has
// ended. A graph that is launched again allocates again.
void trim_memory(int index);
int runtime_version();  // 13000 for 13.0; 0 in a build without CUDA
int driver_version();

struct OutOfMemory : Error {
  using Error::Error;
};

// Stream-ordered memory: valid for later work on `stream`, in the order of the calls. Can be captured in a graph.
// OutOfMemory if the device has too little.
void* allocate(std::size_t bytes, int index, Stream stream);
void free(void* data, Stream stream) noexcept;
// Whether a graph is being captured on the stream of a GPU.
bool is_captured(Stream stream);

// Scratch memory of a stream, shared by all work on it: allocated at the first call, freed with the stream
// (OwnedStream); that of the default stream is never freed. `bytes` is the same at every call. Error if a graph that is
// being captured would own it.
void* workspace(std::size_t bytes, int index, Stream stream);
void* allocate_pinned(std::size_t bytes);  // host memory that copies reach without staging
void free_pinned(void* data) noexcept;

// In any direction between the host and that device, or within it; asynchronous, in the order of the stream. On the CPU
// it copies at once. The device meta has nothing to copy.
void copy(void* to, const void* from, std::size_t bytes, Device device, Stream stream);

// The host waits for all earlier work of the stream. Throws the Error of that work. On the CPU there is nothing to wait
// for.
void synchronize(Device device, Stream stream);

// Waits where an error cannot be reported, as in a destructor. The device has then failed, so the next use of it
// reports the error.
template <class F>
void quietly(const F& wait) noexcept {
  try {
    wait();
  } catch (...) {
  }
}

// A stream's priority for the GPU's blocks: blocks of the highest priority start before other waiting ones, so that
// messages of few blocks do not wait for a large product.
enum class Priority : std::uint8_t { normal, highest };

// A new stream, which does not synchronise with the default stream. On the CPU it is null.
class OwnedStream {
 public:
  explicit OwnedStream(Device device, Priority priority = Priority::normal);
  ~OwnedStream();  // its work still runs to the end
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }
  Device device() const { return device_; }

 private:
  Device device_;
  Stream stream_ = nullptr;
};

// A point in the work of a stream. On the CPU, where work is done at the call, its functions do nothing.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(Stream stream);           // the point after all earlier work of the stream
  void make_wait(Stream stream) const;  // later work of the stream runs after the point
  void synchronize() const;             // the host waits for the point
  bool is_reached() const;              // does not wait

  struct Native;  // runtime.cc

 private:
  std::unique_ptr<Native> native_;  // null on the CPU
};

// Milliseconds between two points of a stream.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start(Stream stream);
  float stop(Stream stream);  // waits

 private:
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

// A captured sequence of launches and copies that can be run again.
class Graph {
 public:
  Graph() = default;
  explicit Graph(void* executable) : executable_(executable) {}
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  void launch(Stream stream) const;

 private:
  void* executable_ = nullptr;
};

// While it lives and has not ended, work that this thread gives the stream is recorded and does not run. Error on the
// default stream, which CUDA cannot capture.
class Capture {
 public:
  explicit Capture(Stream stream);
  ~Capture();  // drops the recording, if an error came before the end
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Graph end();

 private:
  Stream stream_;
  bool is_open_ = true;
};

// The window that `nsys -c cudaProfilerApi` records.
void profiler_start();
void profiler_stop();

// A named range on the timeline of Nsight Systems (NVTX); without a profiler it costs a nanosecond.
class Range {
 public:
  explicit Range(const char* name);
  explicit Range(const std::string& name) : Range(name.c_str()) {}
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace isobar::gpu
