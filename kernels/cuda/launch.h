// The only way to start a kernel, and the helpers by which a kernel finds its work.
//
//   launch("layernorm_fwd", layernorm_fwd_kernel<T>, grid, block, dynamic_shared_bytes, stream, arguments...);
//
// An empty grid launches nothing. A failure throws an Error with the kernel's name: at the call if the launch itself
// fails, else at the next wait for the stream. With ISOBAR_SYNC=1 in the environment the host waits for every launch,
// except for those that a graph records.
// Each launch opens an NVTX range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "kernels/common/math.h"
#include "kernels/common/stream.h"
#include "kernels/cuda/platform.h"

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)
#include "kernels/emulator/streams.h"
#else
#include <nvtx3/nvToolsExt.h>

#include "kernels/common/check.h"
#endif

namespace isobar::ISOBAR_CUDA_NAMESPACE {

inline bool synchronous_launches() {
  static const bool on = [] {
    const char* value = std::getenv("ISOBAR_SYNC");
    return value != nullptr && *value != '\0' && *value != '0';
  }();
  return on;
}

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 size, std::size_t dynamic_shared,
            Stream stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  check_limits(name, grid, size, dynamic_shared);
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  const Call call{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
  const auto body = [](const void* data) {
    const Call& c = *static_cast<const Call*>(data);
    std::apply(c.kernel, c.parameters);
  };
  submit(stream, [=] { run_grid(name, grid, size, dynamic_shared, body, &call); });
  if (synchronous_launches()) synchronize(stream);
}

#else

inline void check_kernel(const char* name, const char* when, cudaError_t status) {
  ISOBAR_CHECK(status == cudaSuccess, "kernel ", name, " failed ", when, ": ", cudaGetErrorString(status));
}

inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 size, std::size_t dynamic_shared,
            Stream stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t kSharedWithoutAsking = 48 << 10;
  if (dynamic_shared > kSharedWithoutAsking) {
    check_kernel(name, "to get its shared memory",
                 cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(dynamic_shared)));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = size;
  config.dynamicSmemBytes = dynamic_shared;
  config.stream = static_cast<cudaStream_t>(stream);
  nvtxRangePushA(name);
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  nvtxRangePop();
  check_kernel(name, "to start", status);
  if (synchronous_launches() && !is_captured(config.stream))
    check_kernel(name, "while it ran", cudaStreamSynchronize(config.stream));
}

#endif

// This thread's number in a one-dimensional grid, and the number of threads. The 64-bit grid-stride loop is
// for (std::int64_t i = global_thread(); i < n; i += global_threads()).
__device__ __forceinline__ std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t global_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// The number of blocks that cover n items if each takes per_block of them at a time; at most max_blocks.
inline int blocks_for(std::int64_t n, std::int64_t per_block, int max_blocks = 2048) {
  const std::int64_t blocks = ceil_div(n, per_block);
  return static_cast<int>(blocks < max_blocks ? blocks : max_blocks);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
