// Shared by the libraries that stand in for NVIDIA's on the virtual GPU: the program's driver, settings, numbers.
#pragma once

#include <dlfcn.h>

#include <bit>
#include <cstdint>
#include <cstdlib>

#include "kernels/common/check.h"
#include "kernels/common/dtype.h"
#include "lab/stand_ins/cuda/driver.h"

namespace isobar::virtual_gpu {

// The driver of the program that has loaded the library.
inline Driver& loaded_driver(const char* library) {
  static Driver* const driver = [] {
    const auto get = reinterpret_cast<DriverFunction>(dlsym(RTLD_DEFAULT, kDriverName));
    return get == nullptr ? nullptr : get();
  }();
  ISOBAR_CHECK(driver != nullptr, "this ", library, " is one for tests, and the program has no virtual GPU");
  return *driver;
}

inline std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// A hash, value by value.
inline std::uint64_t mix(std::uint64_t sum, std::uint64_t value) {
  return (sum ^ value) * 0x100000001b3u + 1;
}

// Element i of an array in fp32, bf16 or fp16.
inline float load(const std::byte* data, std::uint64_t i, DType type) {
  if (type == DType::fp32) return reinterpret_cast<const float*>(data)[i];
  if (type == DType::bf16) return static_cast<float>(reinterpret_cast<const bf16*>(data)[i]);
  return static_cast<float>(reinterpret_cast<const fp16*>(data)[i]);
}

inline void store(std::byte* data, std::uint64_t i, DType type, float value) {
  if (type == DType::fp32)
    reinterpret_cast<float*>(data)[i] = value;
  else if (type == DType::bf16)
    reinterpret_cast<bf16*>(data)[i] = bf16(value);
  else
    reinterpret_cast<fp16*>(data)[i] = fp16(value);
}

// Rounds to the 10 bits of mantissa that tensor cores use of a float.
inline float round_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0x0fffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

}  // namespace isobar::virtual_gpu
