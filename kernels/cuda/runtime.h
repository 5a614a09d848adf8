// The few things the engine asks of the CUDA runtime, without its headers. In a build without CUDA, and on a machine
// without a driver, device_count() is 0 and everything else that needs a device is an Error.
//
// What takes a Device works for the emulator too, whose streams and events are in kernels/emulator/streams.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/common/device.h"
#include "kernels/common/stream.h"

namespace isobar::gpu {

// 0 where there is no driver, no device, or no CUDA in this build. Error where there is a GPU that cannot be used: the
// driver is too old, it is forbidden, busy or broken.
int device_count();

struct Description {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::size_t memory_bytes = 0;
};
Description describe(int index);
// Of this thread. Error naming a GPU that is older than the kernels. Where threads of one process have several GPUs,
// each of these may use the memory of the others, as NCCL does between ranks that are threads.
void set_device(int index);
std::size_t free_memory();
// Gives back what was freed, and what captured graphs hold between two launches, where work has ended. A graph that is
// launched again takes memory again.
void trim_memory(int index);
int runtime_version();  // 13000 for 13.0; 0 in a build without CUDA
int driver_version();

// Stream-ordered memory: valid for work that follows on `stream`, in the order of the calls. Can be captured in a
// graph.
void* allocate(std::size_t bytes, int index, Stream stream);
void free(void* data, Stream stream) noexcept;
// Whether a graph is being captured on the stream of a GPU.
bool is_captured(Stream stream);

// Scratch memory of a stream for whoever gives it work: made at the first call, freed with the stream (OwnedStream),
// that of the default stream never. `bytes` is the same at every call. Error where a graph that is being captured would
// own it.
void* workspace(std::size_t bytes, int index, Stream stream);
void* allocate_pinned(std::size_t bytes);  // host memory that copies reach without staging
void free_pinned(void* data) noexcept;

// Any direction between the host and that device, or within it; asynchronous: it happens in the order of the stream.
// On the CPU at once. The device meta has nothing to copy.
void copy(void* to, const void* from, std::size_t bytes, Device device, Stream stream);

// The host waits for all that the stream was given. Throws an Error of that work. On the CPU nothing waits.
void synchronize(Device device, Stream stream);

// Waits where an error has nobody to be told to, as in a destructor: the device has failed, as whoever uses it next
// will see.
template <class F>
void quietly(const F& wait) noexcept {
  try {
    wait();
  } catch (...) {
  }
}

// What a stream has for the GPU's blocks: those of the highest are started before others that wait, so that messages of
// few blocks do not stand behind a large product.
enum class Priority : std::uint8_t { normal, highest };

// A stream of its own, which waits for the default stream no more than for any other. The one of the CPU is null.
class OwnedStream {
 public:
  explicit OwnedStream(Device device, Priority priority = Priority::normal);
  ~OwnedStream();  // what it was given still runs
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }
  Device device() const { return device_; }

 private:
  Device device_;
  Stream stream_ = nullptr;
};

// A point in the work of a stream. On the CPU, where work is done at the call, all of it does nothing.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(Stream stream);           // the point behind all that the stream was given so far
  void make_wait(Stream stream) const;  // what the stream is given from now on runs after the point
  void synchronize() const;             // the host waits for the point
  bool is_reached() const;              // at once

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

// While it lives and has not ended, what this thread gives the stream is recorded and does not run. Error on the
// default stream, which CUDA cannot capture.
class Capture {
 public:
  explicit Capture(Stream stream);
  ~Capture();  // drops what was recorded, where an error came between
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

// A named range on the timeline of Nsight Systems (NVTX); costs a nanosecond when nobody listens.
class Range {
 public:
  explicit Range(const char* name);
  explicit Range(const std::string& name) : Range(name.c_str()) {}
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace isobar::gpu
