// Scratch memory of a thread. It is kept between calls and only grows, so that a kernel does not fault in new pages
// every time, and holds no more than its largest call needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobar::cpu {

// The use of the memory. Two uses at the same time on one thread must have different slots.
enum class Scratch : std::uint8_t { gemm_b, gemm_partial, gemm_a, conv_taps, attention_shared, attention };
inline constexpr int kScratchSlots = 6;

// At least `bytes` bytes at a 64-byte boundary, contents undefined. Valid until this thread requests the same slot
// again or ends. Other threads may use the memory meanwhile.
void* scratch(Scratch slot, std::size_t bytes);

}  // namespace isobar::cpu
