#include "engine/files/flat_tensors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <span>

#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {
namespace {

std::span<const std::byte> bytes_of_tensor(const Tensor& host) {
  return {static_cast<const std::byte*>(host.data()), host.bytes()};
}

template <class T>
bool all_finite(const T* values, std::int64_t n) {
  return std::all_of(values, values + n, [](T value) { return std::isfinite(value); });
}

std::int64_t product(Shape::const_iterator first, Shape::const_iterator end) {
  return std::accumulate(first, end, std::int64_t{1}, std::multiplies());
}

// Elements of a shard of a file's tensor, as they lie there, on the host.
Tensor read_elements(const TensorReader& file, const TensorInfo& info, const Shard& shard, FlatRange elements,
                     DType dtype) {
  Tensor host = Tensor::empty({elements.size()}, dtype, Device{});
  const auto read = [&](std::int64_t in_full, std::int64_t in_part, std::int64_t length) {
    file.read(info, in_full, length, dtype, static_cast<std::byte*>(host.slice(in_part, {length}).data()));
  };
  for_each_run(info.shape, shard, elements, read);
  return host;
}

// The elements to read for a part: the part itself, or the rows that it touches where files have another order.
FlatRange elements_to_read(const NamedParameter& parameter, const HeldPart& part) {
  if (parameter.order == MemoryOrder::as_in_files || part.size() == 0) return {part.first, part.end};
  const std::int64_t row = product(parameter.full_shape.begin() + 1, parameter.full_shape.end());
  return {part.first / row * row, round_up(part.end, row)};
}

// The part of a file's tensor that a buffer holds, in the dtype of the buffer, on the host.
Tensor read_part(const TensorReader& file, const TensorInfo& info, const FlatBuffer& buffer,
                 const NamedParameter& parameter) {
  const HeldPart part = held_part(buffer, parameter);
  const FlatRange elements = elements_to_read(parameter, part);
  const Tensor in_file = read_elements(file, info, parameter.shard, elements, buffer.values.dtype());
  return from_file_order(in_file, parameter.full_shape, parameter.order)
      .slice(part.first - elements.first, {part.size()});
}

}  // namespace

bool is_finite(const Tensor& values) {
  const Tensor host = values.to(Device{});
  return host.dtype() == DType::fp64 ? all_finite(host.data_as<double>(), host.numel())
                                     : all_finite(host.data_as<float>(), host.numel());
}

HeldPart held_part(const FlatBuffer& buffer, const NamedParameter& parameter) {
  const FlatRange all{parameter.offset, parameter.offset + parameter.numel()};
  if (buffer.held.empty()) return {0, all.size(), all.first};
  HeldPart part;
  std::int64_t at = 0;
  for (const FlatRange& range : buffer.held) {
    const std::int64_t first = std::max(range.first, all.first), end = std::min(range.end, all.end);
    if (first < end) {
      ISOBAR_CHECK(part.size() == 0, "tensor ", buffer.prefix, parameter.name, " is held in more than one range");
      part = {first - all.first, end - all.first, at + first - range.first};
    }
    at += range.size();
  }
  return part;
}

Tensor values_of(const FlatBuffer& buffer, const HeldPart& part) {
  return buffer.values.slice(part.at, {part.size()});
}

void for_each_run(const Shape& full_shape, const Shard& shard, FlatRange elements, const CopyRun& copy) {
  // The tensor as [rows, axis, inner]: the axes after the shard's one are `inner`.
  const auto axis = full_shape.begin() + shard.axis;
  const std::int64_t inner = product(axis + 1, full_shape.end());
  const std::int64_t full_row = *axis * inner, part_row = (shard.end - shard.begin) * inner;
  for (std::int64_t i = elements.first; i < elements.end;) {
    const std::int64_t row = i / part_row, column = i % part_row;
    // A part with the whole axis is the whole tensor, in one run.
    const std::int64_t left = part_row == full_row ? elements.end - i : part_row - column;
    const std::int64_t length = std::min(left, elements.end - i);
    copy(row * full_row + shard.begin * inner + column, i - elements.first, length);
    i += length;
  }
}

void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata, const WholeTensor& whole) {
  std::vector<TensorInfo> infos;
  for (const FlatBuffer& buffer : buffers)
    for (const NamedParameter& p : parameters.named())
      infos.push_back({buffer.prefix + p.name, buffer.values.dtype(), p.full_shape});
  SafetensorsWriter writer(path, infos, metadata);
  for (const FlatBuffer& buffer : buffers)
    for (const NamedParameter& p : parameters.named())
      writer.append(buffer.prefix + p.name, bytes_of_tensor(whole(buffer, p)));
  writer.commit();
}

void read_flat(const TensorReader& file, const Parameters& parameters, const FlatBuffers& buffers) {
  const std::string path = file.path().string();
  std::set<std::string> unknown;
  for (const TensorInfo& tensor : file.tensors()) unknown.insert(tensor.name);
  for (const FlatBuffer& buffer : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      const std::string name = buffer.prefix + p.name;
      const TensorInfo* tensor = file.find(name);
      ISOBAR_CHECK(tensor != nullptr, path, ": tensor ", name, " is missing");
      ISOBAR_CHECK(tensor->shape == p.full_shape, path, ": tensor ", name, " has shape ", to_string(tensor->shape),
                   ", not ", to_string(p.full_shape));
      ISOBAR_CHECK(is_finite(read_part(file, *tensor, buffer, p)), path, ": tensor ", name,
                   " holds numbers that are not finite");
      unknown.erase(name);
    }
  }
  ISOBAR_CHECK(unknown.empty(), path, ": tensor ", in_quotes(*unknown.begin()), " is unknown to this model");
  for (const FlatBuffer& buffer : buffers)
    for (const NamedParameter& p : parameters.named())
      values_of(buffer, held_part(buffer, p)).copy_from(read_part(file, *file.find(buffer.prefix + p.name), buffer, p));
}

void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers) {
  read_flat(SafetensorsReader(path), parameters, buffers);
}

}  // namespace isobar
