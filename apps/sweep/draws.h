// The numbers that a sweep draws. They are the same on every machine: random bits are Philox 4x32-10
// (kernels/common/rng.h), and only operations that IEEE 754 rounds correctly are applied to them (products, quotients,
// square roots, fused multiply-adds).
//
// A draw depends on the seed, the parameter's name and the number of the draw only. So a larger count keeps the earlier
// draws, and another parameter changes none of this one's.
#pragma once

#include <cstdint>
#include <string_view>

namespace isobar {

// 32 random bits: word `draw` of the stream whose number is the XXH64 of the name.
std::uint32_t drawn_bits(std::uint64_t seed, std::string_view parameter, std::uint64_t draw);

// low + (high - low) u, with u = bits / 2^32.
double uniform_of(std::uint32_t bits, double low, double high);

// low (high / low)^u, with u = bits / 2^32. Both bounds are above 0.
double log_uniform_of(std::uint32_t bits, double low, double high);

// One of the numbers 0 .. n - 1, all with the same probability up to n / 2^32. n is 1 to 2^32.
std::uint64_t index_of(std::uint32_t bits, std::uint64_t n);

}  // namespace isobar
