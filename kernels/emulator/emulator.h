// A small emulator of the CUDA execution model, for kernels compiled by the host compiler: docs/cuda_on_the_cpu.md.
//
// One fiber per CUDA thread, one block after another, all on the OS thread that launches or waits. A fiber runs until
// it reaches a barrier or a warp collective that others have not reached; the schedule chooses the next fiber
// (kernels/emulator/schedule.h). All names are CUDA's own, so that a .cu file needs no second version.
//
// It is stricter than a GPU on purpose. Dynamic shared memory starts as NaN. Asynchronous copies land only at their
// wait. A shuffle reads NaN from absent lanes. Errors are: threads of a block at different barriers, lanes of a warp at
// different collectives, and misaligned 16-byte accesses. An error becomes an isobar::Error with the kernel, the block,
// the threads and the source lines: launch() throws it, or, on a stream, the wait for that stream
// (kernels/emulator/streams.h).
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
// Blocks run one after another, so a plain static is shared by exactly the threads of a block. AddressSanitizer puts
// red zones around it.
#define __shared__ static

#define threadIdx (::isobar::emulator::self->index)

#define ISOBAR_DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(::isobar::emulator::block.dynamic_shared)

// The last parameter of every function that can wait: the place of the call in the kernel.
#define ISOBAR_SITE const std::source_location& site = std::source_location::current()

namespace isobar::emulator {

// ---- Vector types ---------------------------------------------------------------------------------------------------

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define ISOBAR_VECTOR_TYPES(T, name)                                \
  struct alignas(2 * sizeof(T)) name##2 {                           \
    T x, y;                                                         \
  };                                                                \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { \
    T x, y, z, w;                                                   \
  };                                                                \
  constexpr name##2 make_##name##2(T x, T y) {                      \
    return {x, y};                                                  \
  }                                                                 \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) {            \
    return {x, y, z, w};                                            \
  }
ISOBAR_VECTOR_TYPES(float, float)
ISOBAR_VECTOR_TYPES(double, double)
ISOBAR_VECTOR_TYPES(int, int)
ISOBAR_VECTOR_TYPES(unsigned, uint)
#undef ISOBAR_VECTOR_TYPES

// ---- The running thread ---------------------------------------------------------------------------------------------

struct ThreadState {
  uint3 index;
  int warp, lane;
};
struct BlockState {
  uint3 index;
  dim3 size, grid;
  unsigned char* dynamic_shared;
};
extern const ThreadState* self;  // the CUDA thread that runs now
extern BlockState block;         // and its block
inline constexpr const uint3& blockIdx = block.index;
inline constexpr const dim3 &blockDim = block.size, &gridDim = block.grid;

// Stops the launch with an Error: what is wrong, in which thread, and where.
[[noreturn]] void fail_in_kernel(const char* what, const std::source_location& site);
[[noreturn]] void fail_in_kernel(const char* what);  // if the source line is not known

// For a build that counts memory accesses (lab/accesses): the next accesses of the running thread to these bytes, in
// steps of 16, are one access on a GPU. With `counts` false they are none.
#if defined(ISOBAR_COUNT_ACCESSES)
void one_access(const void* pointer, std::size_t bytes, bool counts = true);
#else
inline void one_access(const void*, std::size_t, bool = true) {}
#endif

// For an access of this number of bytes.
inline void check_aligned(const void* pointer, std::size_t bytes, const std::source_location& site) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0) fail_in_kernel("misaligned access", site);
  one_access(pointer, bytes);
}

// ---- Barriers and collectives ---------------------------------------------------------------------------------------

// Waits for all live threads of the block; returns for how many of them `vote` was true.
int block_barrier(bool vote, const std::source_location& site);

// Waits for all live lanes of the mask.
void warp_barrier(unsigned mask, const std::source_location& site);

// The exchange of a warp's lanes: deposits[lane], and the result of `combine` (called once for all lanes).
using Combine = void (*)(const void* deposits, void* result);
struct Exchange {
  const void* deposits;
  const void* result;
};
inline constexpr std::size_t kDepositBytes = 32, kResultBytes = 16 * 8 * sizeof(float);

// Deposits `bytes` (at most kDepositBytes) and waits for all live lanes of the mask. Orders no memory, like CUDA's.
Exchange exchange_bytes(unsigned mask, const void* mine, std::size_t bytes, Combine combine,
                        const std::source_location& site);

template <class Value>
const Value* exchange(unsigned mask, const Value& mine, const std::source_location& site) {
  static_assert(sizeof(Value) <= kDepositBytes && std::is_trivially_copyable_v<Value>);
  return static_cast<const Value*>(exchange_bytes(mask, &mine, sizeof(Value), nullptr, site).deposits);
}

inline void __syncthreads(ISOBAR_SITE) {
  block_barrier(false, site);
}
inline int __syncthreads_count(int predicate, ISOBAR_SITE) {
  return block_barrier(predicate != 0, site);
}
inline int __syncthreads_or(int predicate, ISOBAR_SITE) {
  return block_barrier(predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate, ISOBAR_SITE) {
  return block_barrier(predicate == 0, site) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, ISOBAR_SITE) {
  warp_barrier(mask, site);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, ISOBAR_SITE) {
  const int base = self->lane & ~(width - 1);
  return exchange(mask, value, site)[base | (source & (width - 1))];
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, ISOBAR_SITE) {
  const int lane = self->lane, source = lane ^ bits;
  return exchange(mask, value, site)[source / width > lane / width ? lane : source];
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, ISOBAR_SITE) {
  const int lane = self->lane, source = lane + static_cast<int>(distance);
  return exchange(mask, value, site)[source / width > lane / width ? lane : source];
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, ISOBAR_SITE) {
  const int lane = self->lane, steps = static_cast<int>(distance);
  return exchange(mask, value, site)[(lane & (width - 1)) < steps ? lane : lane - steps];
}

inline unsigned __ballot_sync(unsigned mask, int predicate, ISOBAR_SITE) {
  const std::uint32_t* votes = exchange(mask, std::uint32_t{predicate != 0}, site);
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= (votes[lane] == 1u ? 1u : 0u) << lane;
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate, ISOBAR_SITE) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, ISOBAR_SITE) {
  return __ballot_sync(mask, predicate == 0, site) == 0;
}

// ---- Atomics and fences ---------------------------------------------------------------------------------------------

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (old < value && !cell.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (value < old && !cell.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
inline void __threadfence() {}  // blocks run one after another: memory is always coherent between them

// ---- Loads, arithmetic ----------------------------------------------------------------------------------------------

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}

using std::isfinite;
using std::isinf;
using std::isnan;

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
constexpr unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
constexpr float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
constexpr int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
constexpr float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
constexpr int __popc(unsigned x) {
  return std::popcount(x);
}
constexpr int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
constexpr int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
constexpr unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}

// ---- Instructions of the wrappers in mma.h and async_copy.h ---------------------------------------------------------

// 16x8 products of fragments; `deposits` are the lanes' {a[4], b[2]} words, `result` is float[16][8].
void combine_mma_bf16(const void* deposits, void* result);
void combine_mma_fp16(const void* deposits, void* result);
void combine_mma_tf32(const void* deposits, void* result);

// Sixteen bytes of any type, moved as two words: ThreadSanitizer does not see a memcpy or memset of a fixed size.
struct Bytes16 {
  std::uint64_t word[2];
};
using AnyWord [[gnu::may_alias]] = std::uint64_t;

inline Bytes16 load_bytes(const void* from) {
  const auto* words = static_cast<const AnyWord*>(from);
  return {{words[0], words[1]}};
}
inline void store_bytes(void* to, const Bytes16& bytes) {
  auto* words = static_cast<AnyWord*>(to);
  words[0] = bytes.word[0];
  words[1] = bytes.word[1];
}

// Copies of the running thread that have started and not landed, in groups.
struct Copy {
  void* to;
  Bytes16 bytes;
};
void start_copy(const Copy& copy);
void commit_copies();
// Takes the copies of all groups but the last `groups_in_flight`; they are valid until the next call.
std::span<const Copy> landing_copies(std::size_t groups_in_flight);

// ---- The launch -----------------------------------------------------------------------------------------------------

// Throws Error if no GPU since Ampere can launch such a grid.
void check_limits(const char* kernel, const dim3& grid, const dim3& size, std::size_t dynamic_shared);

// Calls body(arguments) as every thread of a grid within those limits. Throws Error if the kernel breaks a rule.
void run_grid(const char* kernel, const dim3& grid, const dim3& size, std::size_t dynamic_shared,
              void (*body)(const void*), const void* arguments);

}  // namespace isobar::emulator
