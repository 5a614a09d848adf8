// copy_strided - copies equally spaced blocks of elements to equally spaced places
//
//   destination[i·destination_stride + j] = source[i·source_stride + j],  i < blocks, j < length
//
//   Columns [c, c + length) of a matrix [blocks, C] are such blocks, with stride C. Other examples: a band of rows of
//   every variable of a batch of fields; the leading variables of every sample.
//
//   source, destination  any dtype, the same for both; strides and length in elements
//
//   numerics      copies
//   deterministic yes
//   limits        blocks, length, source_stride >= 0; destination_stride >= length if there is more than one block
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
