// Copies from global to shared memory that do not go through registers (sm_80 and later).
//
// cp_async_16 starts one, cp_async_commit closes a group of them, cp_async_wait<N> waits until at most N groups of this
// thread are in flight. Other threads see the data only after a barrier that follows the wait.
#pragma once

#include <cstdint>

#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

#if defined(ISOBAR_EMULATE)

// Until the wait the destination holds NaN: tests then find a thread that reads it too early, or needs its old
// contents.
inline void cp_async_16(void* shared, const void* global, bool valid = true, ISOBAR_SITE) {
  check_aligned(shared, 16, site);
  check_aligned(global, 16, site);
  start_copy({shared, valid ? load_bytes(global) : Bytes16{}});
  store_bytes(shared, {{~0ull, ~0ull}});
}

inline void cp_async_commit() {
  commit_copies();
}

template <int kInFlight>
void cp_async_wait() {
  for (const Copy& copy : landing_copies(kInFlight)) {
    one_access(copy.to, sizeof(Bytes16), false);  // an access is counted where it starts
    store_bytes(copy.to, copy.bytes);
  }
}

#else

// Copies 16 bytes, both addresses 16-byte aligned. Not valid: writes zeros, and does not read global.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid = true) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kInFlight>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight) : "memory");
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
