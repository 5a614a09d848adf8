// Element types. bf16 and fp16 are plain 16-bit structs, with conversions for host and device; DType is the run-time
// name of a type. All conversions from float round to nearest, ties to even, keep infinities and quieten NaNs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define ISOBAR_HD __host__ __device__
#else
#define ISOBAR_HD
#endif

namespace isobar {

// bfloat16: the upper half of a float (1 sign, 8 exponent, 7 mantissa bits).
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  ISOBAR_HD constexpr explicit bf16(float value) : bits(from_float(value)) {}
  ISOBAR_HD constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  ISOBAR_HD static constexpr std::uint16_t from_float(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
};

// IEEE 754 half precision (1 sign, 5 exponent, 10 mantissa bits). Few branches, so that loops over it vectorise.
struct fp16 {
  std::uint16_t bits;

  fp16() = default;
  ISOBAR_HD constexpr explicit fp16(float value) : bits(from_float(value)) {}
  ISOBAR_HD constexpr explicit operator float() const { return to_float(bits); }

  ISOBAR_HD static constexpr float to_float(std::uint16_t half) {
    // Exponent and mantissa move to their places in a float; then the exponent's bias is corrected. A subnormal number
    // is a multiple of 2^-24: going through subnormal floats instead would cost a CPU a hundred cycles each.
    const std::uint32_t magnitude = half & 0x7fffu;
    const std::uint32_t rebias = magnitude < 0x7c00u ? 112u << 23 : 0x7f800000u - (0x7c00u << 13);  // infinity, NaN
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    const std::uint32_t bits =
        magnitude < 0x400u ? std::bit_cast<std::uint32_t>(subnormal) : (magnitude << 13) + rebias;
    return std::bit_cast<float>((static_cast<std::uint32_t>(half & 0x8000u) << 16) | bits);
  }

  ISOBAR_HD static constexpr std::uint16_t from_float(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    // Below 2^-14 the result is subnormal: adding 0.5 (ulp 2^-24) makes the float unit round at the right bit.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const std::uint32_t infinity_or_nan = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const std::uint32_t result = magnitude >= 0x477ff000u  ? infinity_or_nan
                                 : magnitude < 0x38800000u ? subnormal
                                                           : normal;
    return static_cast<std::uint16_t>(sign | result);
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

enum class DType : std::uint8_t { fp32, bf16, fp16, i32, fp64 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::fp64 ? 8 : (dtype == DType::bf16 || dtype == DType::fp16) ? 2 : 4;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::i32:
      return "i32";
    case DType::fp64:
      return "fp64";
  }
  return "?";
}

constexpr bool is_16_bit(DType dtype) {
  return size_of(dtype) == 2;
}

// The type in which an op on elements of this type computes and stores statistics, biases and parameters.
constexpr DType accumulator_of(DType dtype) {
  return dtype == DType::fp64 ? DType::fp64 : DType::fp32;
}

template <class T>
struct Type {
  using type = T;
};

template <class T>
struct DTypeOf;  // defined for the five element types only
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::fp32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<fp16> {
  static constexpr DType value = DType::fp16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::fp64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
// float for fp32, bf16 and fp16; double for fp64.
template <class T>
using accumulator_t = typename AccumulatorOf<T>::type;

// Throws an Error: a kernel or a conversion does not support this dtype.
[[noreturn]] void fail_unsupported(DType dtype);

// Calls f(Type<T>{}) with the C++ type of a floating dtype: visit(dtype, [&]<class T>(Type<T>) { ... }). i32 is an
// Error.
template <class F>
decltype(auto) visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::fp32:
      return f(Type<float>{});
    case DType::bf16:
      return f(Type<bf16>{});
    case DType::fp16:
      return f(Type<fp16>{});
    case DType::fp64:
      return f(Type<double>{});
    default:
      fail_unsupported(dtype);
  }
}

// The same with i32.
template <class F>
decltype(auto) visit_any(DType dtype, F&& f) {
  return dtype == DType::i32 ? f(Type<std::int32_t>{}) : visit_floating(dtype, f);
}

// The floating dtypes without fp64, for CUDA kernels (fp64 exists on the CPU only).
template <class F>
decltype(auto) visit_cuda_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::fp32:
      return f(Type<float>{});
    case DType::bf16:
      return f(Type<bf16>{});
    case DType::fp16:
      return f(Type<fp16>{});
    default:
      fail_unsupported(dtype);
  }
}

}  // namespace isobar
