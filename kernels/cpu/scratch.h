// Scratch memory of a thread: kept between calls and only ever grown, so that a kernel neither faults in fresh pages
// every time nor holds more than its largest call needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobar::cpu {

// What the memory is for. Two users that are alive on one thread at the same time must name different slots.
enum class Scratch : std::uint8_t { gemm_b, gemm_partial, gemm_a, attention_shared, attention };
inline constexpr int kScratchSlots = 5;

// At least `bytes` bytes at a 64-byte boundary, contents undefined; valid on this thread until it asks for the same
// slot again or ends. Other threads may use it meanwhile.
void* scratch(Scratch slot, std::size_t bytes);

}  // namespace isobar::cpu
