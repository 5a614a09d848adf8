// The order of a tensor's axes in memory, where it differs from that in files.
//
// Files keep the order of PyTorch, whatever the kernels read. Only reading, writing and drawing initial values know of
// the difference; optimizer, buckets and moments see flat memory.
#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace isobar {

// channels_last: axis 1 of the file comes last in memory. The weight of a convolution is [Co, Ci, K] in files (of a
// transposed one [Ci, Co, K]), where K stands for one to three axes, and [Co, K, Ci] ([Ci, K, Co]) in memory. Each
// row of axis 0 holds the same elements in both.
enum class MemoryOrder : std::uint8_t { as_in_files, channels_last };

// `shape` is everywhere the whole tensor's in files; with channels_last it has two axes or more.
Shape shape_in_memory(const Shape& shape, MemoryOrder order);

// Where the element at `position` in memory lies in the file, both row-major.
std::int64_t position_in_file(const Shape& shape, MemoryOrder order, std::int64_t position);

// Some whole rows of axis 0, on the host in fp32 or fp64, from one order to the other. Returns `rows` itself, or a
// tensor of its shape.
Tensor from_file_order(const Tensor& rows, const Shape& shape, MemoryOrder order);
Tensor to_file_order(const Tensor& rows, const Shape& shape, MemoryOrder order);

}  // namespace isobar
