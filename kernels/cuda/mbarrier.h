// Barriers in shared memory that count arrivals of threads and bytes of copies (compute capability 9.0 and later),
// named barriers of a part of a block, and other instructions for kernels with different roles.
//
//   Mbarrier       phases 0, 1, 2, ...: a phase ends when `arrivals` threads have arrived and all expected bytes have
//                  landed. wait(parity) waits for the end of the current phase if it has that parity; else it returns
//                  at once. A thread that waits for one phase after the other passes 0, 1, 0, ... A thread that first
//                  waits for the barrier to be free passes 1, 0, 1, ...: phase -1 counts as ended
//   memory         what a thread did before it arrives happens before what another one does after its wait
#pragma once

#include <cstdint>

#include "kernels/cuda/platform.h"

#if defined(ISOBAR_EMULATE)
#include "kernels/emulator/async_proxy.h"
#include "kernels/emulator/warpgroup.h"
#endif

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// Must be in dynamic shared memory. One thread makes them and calls mbarrier_init_fence(); then the block synchronises.
struct Mbarrier {
  std::uint64_t word;

#if defined(ISOBAR_EMULATE)
  void init(int arrivals, ISOBAR_SITE) {
    number() = init_mbarrier(this, arrivals, site);
  }
  void arrive(ISOBAR_SITE) {
    arrive_at_mbarrier(number(), 0, site);
  }
  void arrive_and_expect(int bytes, ISOBAR_SITE) {
    arrive_at_mbarrier(number(), bytes, site);
  }
  void wait(int parity, ISOBAR_SITE) {
    wait_for_mbarrier(number(), parity, site);
  }
  // The word. The thread does not access it as memory: only the instructions of mbarriers do.
  std::uint64_t& number() {
    one_access(&word, sizeof word, false);
    return word;
  }
#else
  __device__ __forceinline__ std::uint32_t address() {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&word));
  }
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // Arrives, and adds the bytes of future copies to those that the phase expects.
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ void wait(int parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@ended bra done;\n"
        "bra again;\n"
        "done:\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
#endif
};

#if defined(ISOBAR_EMULATE)

inline void mbarrier_init_fence() {
  publish_mbarriers();
}
inline void bar_sync(int id, int threads, ISOBAR_SITE) {
  sync_named_barrier(id, threads, site);
}
inline void bar_arrive(int id, int threads, ISOBAR_SITE) {
  arrive_at_named_barrier(id, threads, site);
}
template <int kCount>
void fewer_registers(ISOBAR_SITE) {
  set_registers(kCount, false, site);
}
template <int kCount>
void more_registers(ISOBAR_SITE) {
  set_registers(kCount, true, site);
}
inline bool elect_one(ISOBAR_SITE) {
  exchange(kAllLanes, 0, site);
  return self->lane == 0;
}
inline void fence_async_proxy() {
  publish_shared_memory();
}

#else

__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Named barriers 1 to 15 of a block (0 is __syncthreads) open when this number of threads, in whole warps, has arrived.
// bar_arrive does not wait.
__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Sets the number of registers of each thread of this warpgroup: a multiple of 8, 24 to 256. All its threads call it.
template <int kCount>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// True for one lane of the warp.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t is_elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(is_elected));
  return is_elected != 0;
}

// After a barrier with the threads that start TMA and wgmma, these can read what this thread has written to shared
// memory, and overwrite what it has read.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
