// patchify / unpatchify - images to rows of patch pixels and back; each is the other's inverse and its gradient
//
//   image  [B, V, LAT, LON]  image_dtype            tokens  [B·T, V·P·P]  token_dtype,  T = LAT/P · LON/P
//   token (b, i, j) holds the pixels (v, i·P + r, j·P + s), in the order
//     channels_first:  (v, r, s)   the patch embedding: a row times a Conv2d weight [C, V, P, P] of stride P
//     channels_last:   (r, s, v)   the head's output: the channel is the fastest index
//
//   dtypes        fp32, bf16, fp16, fp64 (CPU) on either side
//   numerics      copies; one rounding if the destination is narrower
//   deterministic yes
//   limits        LAT and LON are multiples of P >= 1
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

enum class PatchOrder : std::uint8_t { channels_first, channels_last };

struct PatchifyArgs {
  std::int64_t batch = 0, channels = 0, height = 0, width = 0, patch = 1;
  PatchOrder order = PatchOrder::channels_first;
  DType image_dtype = DType::fp32, token_dtype = DType::fp32;
  const void* image = nullptr;
  void* tokens = nullptr;
};

struct UnpatchifyArgs {
  std::int64_t batch = 0, channels = 0, height = 0, width = 0, patch = 1;
  PatchOrder order = PatchOrder::channels_last;
  DType image_dtype = DType::fp32, token_dtype = DType::fp32;
  const void* tokens = nullptr;
  void* image = nullptr;
};

constexpr Cost patchify_cost(const PatchifyArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = n * (size_of(a.image_dtype) + size_of(a.token_dtype)), .flops = 0};
}
constexpr Cost unpatchify_cost(const UnpatchifyArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = n * (size_of(a.image_dtype) + size_of(a.token_dtype)), .flops = 0};
}

ISOBAR_KERNEL(patchify, PatchifyArgs)
ISOBAR_KERNEL(unpatchify, UnpatchifyArgs)

}  // namespace isobar
