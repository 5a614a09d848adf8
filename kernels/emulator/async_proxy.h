// Copies that are asynchronous to the threads of a block, since compute capability 9.0: tiles of tensors with TMA, and
// the mbarriers that report their end. Kernels call kernels/cuda/mbarrier.h and tensor_map.h.
//
// It is stricter than a GPU on purpose. A tile lands when no thread can continue without it, in an order that the
// schedule draws; until then its destination is NaN. Errors are: a wait that could confuse two phases of an mbarrier;
// arrivals and bytes that an mbarrier does not expect; an mbarrier that is used before it is published; shared memory
// that threads have written and a product or copy reads without a proxy fence in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

namespace isobar::emulator {

struct Barrier;

// ---- mbarriers ------------------------------------------------------------------------------------------------------

// Initialises an mbarrier in shared memory; returns the contents of its eight bytes.
std::uint64_t init_mbarrier(const void* at, int arrivals, const std::source_location& site);
// The mbarriers that the running thread has made may be used from now on.
void publish_mbarriers();
// One arrival; the phase expects `bytes` more.
void arrive_at_mbarrier(std::uint64_t word, int bytes, const std::source_location& site);
// Waits for the end of the phase with that parity: the one after the phase that this thread waited for last. Before the
// first wait, a phase of parity 1 counts as ended.
void wait_for_mbarrier(std::uint64_t word, int parity, const std::source_location& site);

// ---- Tensor maps ----------------------------------------------------------------------------------------------------

inline constexpr int kMaxDimensions = 5;

struct TensorMapShape {
  const void* base = nullptr;
  int element_bytes = 2;
  int dimensions = 0;
  std::uint64_t size[kMaxDimensions] = {};        // in elements, the innermost first
  std::uint64_t stride[kMaxDimensions - 1] = {};  // in bytes, of dimensions 1 and up
  std::uint32_t box[kMaxDimensions] = {};         // of a tile, in elements
  std::uint32_t element_step[kMaxDimensions] = {1, 1, 1, 1, 1};
  bool swizzle = false;  // 128 bytes; else none
};
struct alignas(16) TensorMap {
  std::uint64_t word[16] = {};
};

// Fills `map`, of 128 bytes. Returns null, or the rule of CUDA's documentation that such a shape breaks.
const char* encode_tensor_map(void* map, const TensorMapShape& shape);

// ---- Copies ---------------------------------------------------------------------------------------------------------

// Starts the copy of the box at those coordinates, zeros outside the tensor; the mbarrier receives its bytes.
void load_tile(void* to, const void* map, std::uint64_t mbarrier, const int* coordinates, int dimensions,
               const std::source_location& site);
// Starts the copy of contiguous bytes.
void load_bytes_in_bulk(void* to, const void* from, int bytes, std::uint64_t mbarrier,
                        const std::source_location& site);

// From now on products and copies can read what threads have written to shared memory. (In the emulator: what all
// threads of the block have written.)
void publish_shared_memory();

// An error if a product would read bytes that are not shared memory of the block, or were not published.
void check_async_read(const void* from, std::size_t bytes, const std::source_location& site);

// ---- Called by the scheduler ----------------------------------------------------------------------------------------

inline constexpr std::size_t kSharedAlignment = 1024;  // for dynamic shared memory: the swizzle's pattern

// The address of a byte in swizzled tiles: bits 4 to 6 are xored with bits 7 to 9.
constexpr std::size_t swizzled(std::size_t address) {
  return address ^ (address >> 3 & 0x70);
}

void reset_async_proxy();                               // at the beginning of a block
bool land_a_copy();                                     // false if none is in flight
const char* error_of_copies();                          // the error of a block that has ended, else null
std::string describe_mbarrier(const Barrier& barrier);  // "" for other barriers

}  // namespace isobar::emulator
