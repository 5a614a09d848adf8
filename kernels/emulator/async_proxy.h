// What copies behind the back of the threads of a block, since compute capability 9.0: tiles of tensors by TMA, and the
// mbarriers that tell when they have landed. kernels/cuda/mbarrier.h and tensor_map.h are what kernels call.
//
// Stricter than a GPU on purpose. A tile lands when no thread can go on without one, in an order that the schedule
// draws, and its place is NaN until then. A wait that could take one phase of an mbarrier for another, arrivals and
// bytes that an mbarrier does not expect, an mbarrier that is used before it is made known, shared memory that threads
// have written and a product or a copy reads without a proxy fence between: all are errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

namespace isobar::emulator {

struct Barrier;

// ---- mbarriers ------------------------------------------------------------------------------------------------------

// What stands in the eight bytes of an mbarrier in shared memory, from its making on.
std::uint64_t make_mbarrier(const void* at, int arrivals, const std::source_location& site);
// Those that the running thread has made may be used now.
void publish_mbarriers();
// One arrival, and the announcement of so many bytes.
void arrive_at_mbarrier(std::uint64_t word, int bytes, const std::source_location& site);
// Waits for the end of the phase of that parity: the one after the phase that this thread waited for last. Before the
// first, parity 1 is a phase that has ended.
void wait_for_mbarrier(std::uint64_t word, int parity, const std::source_location& site);

// ---- Tensor maps ----------------------------------------------------------------------------------------------------

inline constexpr int kMostDimensions = 5;

struct TensorMapShape {
  const void* base = nullptr;
  int element_bytes = 2;
  int dimensions = 0;
  std::uint64_t size[kMostDimensions] = {};        // in elements, the innermost first
  std::uint64_t stride[kMostDimensions - 1] = {};  // in bytes, of dimensions 1 and up
  std::uint32_t box[kMostDimensions] = {};         // of a tile, in elements
  std::uint32_t element_step[kMostDimensions] = {1, 1, 1, 1, 1};
  bool swizzle = false;  // 128 bytes; else none
};
struct alignas(16) TensorMap {
  std::uint64_t word[16] = {};
};

// Fills `map`, of 128 bytes. Returns null, or what CUDA's documentation forbids in such a shape.
const char* encode_tensor_map(void* map, const TensorMapShape& shape);

// ---- Copies ---------------------------------------------------------------------------------------------------------

// Starts the copy of the box at those coordinates, zeros where it leaves the tensor; the mbarrier is told its bytes.
void load_tile(void* to, const void* map, std::uint64_t mbarrier, const int* coordinates, int dimensions,
               const std::source_location& site);
// Starts the copy of bytes that lie one behind the other.
void load_bytes_in_bulk(void* to, const void* from, int bytes, std::uint64_t mbarrier,
                        const std::source_location& site);

// What threads have written to shared memory can be read by products and copies from now on. (Here: what all threads of
// the block have written.)
void publish_shared_memory();

// Errors where a product would read bytes that are not shared memory of the block, or were not made known.
void check_async_read(const void* from, std::size_t bytes, const std::source_location& site);

// ---- What the scheduler calls ---------------------------------------------------------------------------------------

inline constexpr std::size_t kSharedAlignment = 1024;  // of dynamic shared memory: the swizzle's pattern

// The address of a byte as swizzled tiles have it: bits 4 to 6 are changed by bits 7 to 9.
constexpr std::size_t swizzled(std::size_t address) {
  return address ^ (address >> 3 & 0x70);
}

void reset_async_proxy();                               // a block begins
bool land_a_copy();                                     // false where none is in flight
const char* left_by_copies();                           // what is wrong with a block that has ended, else null
std::string describe_mbarrier(const Barrier& barrier);  // "" for other barriers

}  // namespace isobar::emulator
