#include "bench/memory.h"

#include <chrono>
#include <cstring>
#include <new>

#include "kernels/common/check.h"
#include "kernels/common/parallel.h"
#if defined(ISOBAR_HAS_CUDA)
#include <cuda_runtime.h>
#endif

namespace isobar::bench {
namespace {

constexpr std::align_val_t kAlignment{256};

double seconds_on_host(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Even for n in the hundreds of millions the numbers do not repeat visibly: the fractional parts of k·golden ratio.
template <class T>
std::vector<T> evenly_spread(std::int64_t n, double low, double high) {
  std::vector<T> values(static_cast<std::size_t>(n));
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15ull;
  parallel_for(n, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double unit = static_cast<double>(static_cast<std::uint64_t>(i) * kGoldenRatio >> 11) * 0x1p-53;
      values[static_cast<std::size_t>(i)] = T(static_cast<float>(low + (high - low) * unit));
    }
  });
  return values;
}

#if defined(ISOBAR_HAS_CUDA)
void check(cudaError_t status, const char* what) {
  ISOBAR_CHECK(status == cudaSuccess, what, " failed: ", cudaGetErrorString(status));
}

double seconds_on_gpu(const std::function<void()>& call) {
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  check(cudaEventRecord(start), "cudaEventRecord");
  call();
  check(cudaEventRecord(stop), "cudaEventRecord");
  check(cudaEventSynchronize(stop), "waiting for the device");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return milliseconds * 1e-3;
}
#endif

bool is_on_host(Device device) {
  return device.kind != DeviceKind::cuda;
}

}  // namespace

void require_device(Device device) {
  if (is_on_host(device)) return;
#if defined(ISOBAR_HAS_CUDA)
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  ISOBAR_CHECK(status == cudaSuccess && count > 0, "the device cuda is not available: ",
               status == cudaSuccess ? "this machine has no GPU" : cudaGetErrorString(status));
#else
  fail("the device cuda is not available: this build has no CUDA");
#endif
}

Memory::~Memory() {
  for (void* buffer : buffers_) {
#if defined(ISOBAR_HAS_CUDA)
    if (!is_on_host(device_)) {
      cudaFree(buffer);
      continue;
    }
#endif
    ::operator delete(buffer, kAlignment);
  }
}

void* Memory::allocate(std::size_t bytes) {
  void* buffer = nullptr;
#if defined(ISOBAR_HAS_CUDA)
  if (!is_on_host(device_)) check(cudaMalloc(&buffer, bytes), "cudaMalloc");
#endif
  if (is_on_host(device_)) buffer = ::operator new(bytes, kAlignment);
  buffers_.push_back(buffer);
  return buffer;
}

void* Memory::copy_of(const void* host, std::size_t bytes) {
  void* buffer = allocate(bytes);
#if defined(ISOBAR_HAS_CUDA)
  if (!is_on_host(device_)) {
    check(cudaMemcpy(buffer, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return buffer;
  }
#endif
  std::memcpy(buffer, host, bytes);
  return buffer;
}

void* Memory::uniform(std::int64_t n, DType dtype, double low, double high) {
  return visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::vector<T> values = evenly_spread<T>(n, low, high);
    return copy_of(values.data(), values.size() * sizeof(T));
  });
}

void copy_on_device(Device device, void* to, const void* from, std::size_t bytes) {
#if defined(ISOBAR_HAS_CUDA)
  if (!is_on_host(device)) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
    return;
  }
#endif
  static_cast<void>(device);
  parallel_for(static_cast<std::int64_t>(bytes), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

double seconds_of(Device device, const std::function<void()>& call) {
#if defined(ISOBAR_HAS_CUDA)
  if (!is_on_host(device)) return seconds_on_gpu(call);
#endif
  static_cast<void>(device);
  return seconds_on_host(call);
}

}  // namespace isobar::bench
