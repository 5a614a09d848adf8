#include "data/files/number_format.h"

#include <cstring>
#include <type_traits>

#include "kernels/common/check.h"

namespace isobar {
namespace {

template <std::size_t kBytes>
struct Bits;
template <>
struct Bits<1> {
  using Type = std::uint8_t;
  static Type reversed(Type bits) { return bits; }
};
template <>
struct Bits<2> {
  using Type = std::uint16_t;
  static Type reversed(Type bits) { return __builtin_bswap16(bits); }
};
template <>
struct Bits<4> {
  using Type = std::uint32_t;
  static Type reversed(Type bits) { return __builtin_bswap32(bits); }
};
template <>
struct Bits<8> {
  using Type = std::uint64_t;
  static Type reversed(Type bits) { return __builtin_bswap64(bits); }
};

template <class Stored, bool kReversed, class To>
void convert_all(const std::byte* from, std::int64_t count, To* to) {
  using Of = Bits<sizeof(Stored)>;
  for (std::int64_t i = 0; i < count; ++i) {
    typename Of::Type bits;
    std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    if constexpr (kReversed) bits = Of::reversed(bits);
    const auto value = std::bit_cast<Stored>(bits);
    if constexpr (std::is_same_v<Stored, fp16>)
      to[i] = static_cast<float>(value);
    else
      to[i] = static_cast<To>(value);
  }
}

template <class Stored>
void convert_stored(std::endian order, const std::byte* from, std::int64_t count, DType dtype, void* to) {
  const auto convert_to = [&](auto* out) {
    if (order == std::endian::native)
      convert_all<Stored, false>(from, count, out);
    else
      convert_all<Stored, true>(from, count, out);
  };
  if (dtype == DType::fp64)
    convert_to(static_cast<double*>(to));
  else
    convert_to(static_cast<float*>(to));
}

// The type in memory of numbers of this format.
template <class F>
void with_stored_type(const NumberFormat& format, const F& f) {
  using Kind = NumberFormat::Kind;
  const auto of = [&f](auto one, auto two, auto four, auto eight, std::size_t bytes) {
    if (bytes == 1) return f(one);
    if (bytes == 2) return f(two);
    if (bytes == 4) return f(four);
    f(eight);
  };
  switch (format.kind) {
    case Kind::signed_integer:
      return of(std::int8_t{}, std::int16_t{}, std::int32_t{}, std::int64_t{}, format.bytes);
    case Kind::unsigned_integer:
      return of(std::uint8_t{}, std::uint16_t{}, std::uint32_t{}, std::uint64_t{}, format.bytes);
    case Kind::floating:
      if (format.bytes == 2) return f(fp16{});
      if (format.bytes == 4) return f(float{});
      return f(double{});
  }
}

}  // namespace

bool same_bytes(const NumberFormat& format, DType dtype) {
  return format == NumberFormat{.bytes = size_of(dtype), .order = std::endian::native};
}

void convert(const NumberFormat& format, const std::byte* from, std::int64_t count, DType dtype, void* to) {
  ISOBAR_CHECK(dtype == DType::fp32 || dtype == DType::fp64, "numbers of a file are converted to fp32 or fp64, not to ",
               name_of(dtype));
  if (same_bytes(format, dtype)) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * format.bytes);
    return;
  }
  with_stored_type(format,
                   [&](auto stored) { convert_stored<decltype(stored)>(format.order, from, count, dtype, to); });
}

}  // namespace isobar
