// How numbers lie in a file, and their conversion to the numbers that programs compute with.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/common/dtype.h"

namespace isobar {

struct NumberFormat {
  enum class Kind : std::uint8_t { signed_integer, unsigned_integer, floating } kind = Kind::floating;
  std::size_t bytes = 4;  // integers: 1, 2, 4 or 8; floating (IEEE 754): 2, 4 or 8
  std::endian order = std::endian::little;

  friend bool operator==(const NumberFormat&, const NumberFormat&) = default;
};

// Whether numbers of `dtype` (fp32 or fp64) in memory have the same bytes.
bool same_bytes(const NumberFormat& format, DType dtype);

// Writes `count` numbers to `to`, which has `dtype`: fp32 or fp64. What fp32 or fp64 cannot hold exactly is rounded to
// the nearest; what is larger than any fp32 becomes an infinity.
void convert(const NumberFormat& format, const std::byte* from, std::int64_t count, DType dtype, void* to);

}  // namespace isobar
