// The few things the engine asks of the CUDA runtime, without its headers. In a build without CUDA, and on a machine
// without a driver, device_count() is 0 and everything else that needs a device is an Error.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/common/device.h"

namespace isobar::gpu {

int device_count();  // 0 where there is no driver, no device, or no CUDA in this build

struct Description {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::size_t memory_bytes = 0;
};
Description describe(int index);
void set_device(int index);
std::size_t free_memory();
int runtime_version();  // 13000 for 13.0; 0 in a build without CUDA
int driver_version();

// Stream-ordered memory: valid for work that follows on `stream`, in the order of the calls. Can be captured in a
// graph.
void* allocate(std::size_t bytes, int index, Stream stream);
void free(void* data, Stream stream) noexcept;
void* allocate_pinned(std::size_t bytes);  // host memory that copies reach without staging
void free_pinned(void* data) noexcept;

void copy(void* to, const void* from, std::size_t bytes, Stream stream);  // any direction, asynchronous
void synchronize(Stream stream);
Stream create_stream();
void destroy_stream(Stream stream) noexcept;

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
void begin_capture(Stream stream);
Graph end_capture(Stream stream);

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
