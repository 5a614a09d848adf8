#include "engine/memory_order.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace isobar {
namespace {

// A row of axis 0 in files: [channels, points].
struct Row {
  std::int64_t channels = 1, points = 1;
  std::int64_t numel() const { return channels * points; }
};

Row row_of(const Shape& shape) {
  return {shape[1], std::accumulate(shape.begin() + 2, shape.end(), std::int64_t{1}, std::multiplies())};
}

// Every row, a matrix [height, width], becomes [width, height].
template <class T>
void transpose_rows(const T* from, T* to, std::int64_t rows, std::int64_t height, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row, from += height * width, to += height * width)
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t k = 0; k < height; ++k) to[i * height + k] = from[k * width + i];
}

Tensor transposed(const Tensor& tensor, std::int64_t height, std::int64_t width) {
  Tensor result = Tensor::empty(tensor.shape(), tensor.dtype(), Device{});
  const std::int64_t rows = tensor.numel() / std::max<std::int64_t>(height * width, 1);
  visit_floating(tensor.dtype(), [&]<class T>(Type<T>) {
    transpose_rows(tensor.data_as<T>(), result.data_as<T>(), rows, height, width);
  });
  return result;
}

}  // namespace

Shape shape_in_memory(const Shape& shape, MemoryOrder order) {
  Shape result = shape;
  if (order == MemoryOrder::channels_last) std::rotate(result.begin() + 1, result.begin() + 2, result.end());
  return result;
}

std::int64_t position_in_file(const Shape& shape, MemoryOrder order, std::int64_t position) {
  if (order == MemoryOrder::as_in_files) return position;
  const Row row = row_of(shape);
  const std::int64_t first = position / row.numel() * row.numel(), in_row = position - first;
  return first + in_row % row.channels * row.points + in_row / row.channels;
}

Tensor from_file_order(const Tensor& rows, const Shape& shape, MemoryOrder order) {
  if (order == MemoryOrder::as_in_files) return rows;
  const Row row = row_of(shape);
  return transposed(rows, row.channels, row.points);
}

Tensor to_file_order(const Tensor& rows, const Shape& shape, MemoryOrder order) {
  if (order == MemoryOrder::as_in_files) return rows;
  const Row row = row_of(shape);
  return transposed(rows, row.points, row.channels);
}

}  // namespace isobar
