#include "bench/memory.h"

#include <chrono>
#include <cstring>
#include <new>

#include "kernels/common/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cuda/runtime.h"

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

double seconds_on_gpu(const std::function<void()>& call) {
  gpu::Timer timer;
  timer.start(nullptr);
  call();
  return timer.stop(nullptr) * 1e-3;
}

bool is_on_host(Device device) {
  return device.kind != DeviceKind::cuda;
}

}  // namespace

void require_device(Device device) {
  ISOBAR_CHECK(is_on_host(device) || gpu::device_count() > 0, "the device cuda is not available: ",
               ISOBAR_HAS_CUDA ? "there is no NVIDIA GPU, or no driver for it" : "this build has no CUDA");
  if (!is_on_host(device)) gpu::set_device(device.index);  // freed memory stays the process's, as in a run
}

Memory::~Memory() {
  for (void* buffer : buffers_) {
    if (is_on_host(device_))
      ::operator delete(buffer, kAlignment);
    else
      gpu::free(buffer, nullptr);
  }
  for (void* buffer : pinned_) gpu::free_pinned(buffer);
}

void* Memory::allocate(std::size_t bytes) {
  buffers_.push_back(is_on_host(device_) ? ::operator new(bytes, kAlignment)
                                         : gpu::allocate(bytes, device_.index, nullptr));
  return buffers_.back();
}

void* Memory::copy_of(const void* host, std::size_t bytes) {
  void* buffer = allocate(bytes);
  if (is_on_host(device_)) {
    std::memcpy(buffer, host, bytes);
  } else {
    gpu::copy(buffer, host, bytes, device_, nullptr);
    gpu::synchronize(device_, nullptr);
  }
  return buffer;
}

void* Memory::pinned(std::size_t bytes) {
  if (!is_on_host(device_)) pinned_.push_back(gpu::allocate_pinned(bytes));
  void* const buffer = is_on_host(device_) ? allocate(bytes) : pinned_.back();
  std::memset(buffer, 0, bytes);
  return buffer;
}

void* Memory::uniform(std::int64_t n, DType dtype, double low, double high) {
  return visit_floating(dtype, [&]<class T>(Type<T>) {
    const std::vector<T> values = evenly_spread<T>(n, low, high);
    return copy_of(values.data(), values.size() * sizeof(T));
  });
}

void copy_on_device(Device device, void* to, const void* from, std::size_t bytes) {
  if (!is_on_host(device)) return gpu::copy(to, from, bytes, device, nullptr);
  parallel_for(static_cast<std::int64_t>(bytes), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void wait_for(Device device) {
  gpu::synchronize(device, nullptr);
}

double seconds_of(Device device, const std::function<void()>& call) {
  return is_on_host(device) ? seconds_on_host(call) : seconds_on_gpu(call);
}

}  // namespace isobar::bench
