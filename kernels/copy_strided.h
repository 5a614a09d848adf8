// copy_strided - blocks of elements whose beginnings lie at even distances, copied to other distances
//
//   destination[i·destination_stride + j] = source[i·source_stride + j],  i < blocks, j < length
//
//   Columns [c, c + length) of a matrix [blocks, C] are such blocks of stride C; so are a band of rows of every channel
//   of a batch of fields, or its leading channels.
//
//   source, destination  any dtype, the same for both; strides and length in elements
//
//   numerics      copies
//   deterministic yes
//   limits        blocks, length, source_stride >= 0; destination_stride >= length where there are several blocks
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct CopyStridedArgs {
  std::int64_t blocks = 0, length = 0, source_stride = 0, destination_stride = 0;
  DType dtype = DType::fp32;
  const void* source = nullptr;
  void* destination = nullptr;
};

constexpr Cost copy_strided_cost(const CopyStridedArgs& a) {
  return {.bytes = 2.0 * static_cast<double>(a.blocks) * a.length * size_of(a.dtype)};
}

ISOBAR_KERNEL(copy_strided, CopyStridedArgs)

}  // namespace isobar
