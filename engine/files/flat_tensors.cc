#include "engine/files/flat_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

// Of fp32 or fp64, on the host. -0 is not negative.
bool has_negative(const Tensor& host) {
  const auto any = [&](const auto* values) {
    return std::any_of(values, values + host.numel(), [](auto value) { return value < 0; });
  };
  return host.dtype() == DType::fp64 ? any(host.data_as<double>()) : any(host.data_as<float>());
}

std::int64_t product(Shape::const_iterator first, Shape::const_iterator end) {
  return std::accumulate(first, end, std::int64_t{1}, std::multiplies());
}

// Reads elements of a whole tensor, from the first on, to `out`.
using ReadRun = std::function<void(std::int64_t first, std::int64_t count, std::byte* out)>;

// The elements to read for a part: the part itself, or the rows that it touches where files have another order.
FlatRange elements_to_read(const NamedParameter& parameter, const HeldPart& part) {
  if (parameter.order == MemoryOrder::as_in_files || part.size() == 0) return {part.first, part.end};
  const std::int64_t row = product(parameter.full_shape.begin() + 1, parameter.full_shape.end());
  return {part.first / row * row, round_up(part.end, row)};
}

// The part of a whole tensor, which `read` has in the order of files, that a buffer holds: on the host, in this dtype.
Tensor part_of_whole(const FlatBuffer& buffer, const NamedParameter& parameter, DType dtype, const ReadRun& read) {
  const HeldPart part = held_part(buffer, parameter);
  const FlatRange elements = elements_to_read(parameter, part);
  // Not from the pool, which would keep the largest of them for the run.
  const auto bytes = static_cast<std::size_t>(elements.size()) * size_of(dtype);
  const Tensor host = Tensor::over(transfer_memory(bytes, Device{}), {elements.size()}, dtype);
  const auto copy = [&](std::int64_t in_full, std::int64_t in_part, std::int64_t length) {
    read(in_full, length, static_cast<std::byte*>(host.slice(in_part, {length}).data()));
  };
  for_each_run(parameter.full_shape, parameter.shard, elements, copy);
  return from_file_order(host, parameter.full_shape, parameter.order).slice(part.first - elements.first, {part.size()});
}

Tensor read_part(const TensorReader& file, const TensorInfo& info, const FlatBuffer& buffer,
                 const NamedParameter& parameter) {
  const DType dtype = buffer.values.dtype();
  return part_of_whole(buffer, parameter, dtype, [&](std::int64_t first, std::int64_t count, std::byte* out) {
    file.read(info, first, count, dtype, out);
  });
}

// Error if the file does not have the buffer's tensor of this parameter.
void check_tensor(const TensorReader& file, const FlatBuffer& buffer, const NamedParameter& p) {
  const std::string name = buffer.prefix + p.name, path = file.path().string();
  const TensorInfo* tensor = file.find(name);
  ISOBAR_CHECK(tensor != nullptr, path, ": tensor ", name, " is missing");
  ISOBAR_CHECK(tensor->shape == p.full_shape, path, ": tensor ", name, " has shape ", to_string(tensor->shape),
               ", not ", to_string(p.full_shape));
}

// Error if its numbers are not finite, or negative where the buffer's cannot be.
void read_tensor(const TensorReader& file, const FlatBuffer& buffer, const NamedParameter& p) {
  const std::string name = buffer.prefix + p.name;
  const Tensor part = read_part(file, *file.find(name), buffer, p);
  ISOBAR_CHECK(is_finite(part), file.path().string(), ": tensor ", name, " holds numbers that are not finite");
  ISOBAR_CHECK(!buffer.of_squares || !has_negative(part), file.path().string(), ": tensor ", name,
               " holds negative numbers, but means of squares have none");
  values_of(buffer, held_part(buffer, p)).copy_from(part);
}

}  // namespace

bool is_finite(const Tensor& values) {
  const Tensor host = values.to(Device{});
  return host.dtype() == DType::fp64 ? all_finite(host.data_as<double>(), host.numel())
                                     : all_finite(host.data_as<float>(), host.numel());
}

HeldPart held_part(const FlatBuffer& buffer, const NamedParameter& parameter) {
  if (!buffer.has(parameter)) return {};
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
      if (buffer.has(p)) infos.push_back({buffer.prefix + p.name, buffer.values.dtype(), p.full_shape});
  SafetensorsWriter writer(path, infos, metadata);
  for (const FlatBuffer& buffer : buffers)
    for (const NamedParameter& p : parameters.named())
      if (buffer.has(p)) writer.append(buffer.prefix + p.name, bytes_of_tensor(whole(buffer, p)));
  writer.commit();
}

void read_flat(const TensorReader& file, const Parameters& parameters, const FlatBuffers& buffers) {
  const std::string path = file.path().string();
  std::set<std::string> unknown;
  for (const TensorInfo& tensor : file.tensors()) unknown.insert(tensor.name);
  for (const FlatBuffer& buffer : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      if (!buffer.has(p)) continue;
      check_tensor(file, buffer, p);
      unknown.erase(buffer.prefix + p.name);
    }
  }
  ISOBAR_CHECK(unknown.empty(), file.path().string(), ": tensor ", in_quotes(*unknown.begin()),
               " is unknown to this model");
  for (const FlatBuffer& buffer : buffers)
    for (const NamedParameter& p : parameters.named())
      if (buffer.has(p)) read_tensor(file, buffer, p);
}

void read_named(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffer& buffer,
                const std::set<std::string>& names) {
  const SafetensorsReader file(path);
  for (const bool is_checked : {false, true})
    for (const NamedParameter& p : parameters.named())
      if (names.contains(p.name)) (is_checked ? read_tensor : check_tensor)(file, buffer, p);
}

void set_whole(const FlatBuffer& buffer, const NamedParameter& parameter, std::span<const double> whole) {
  ISOBAR_CHECK(std::ssize(whole) == numel_of(parameter.full_shape), "tensor ", parameter.name, " of shape ",
               to_string(parameter.full_shape), " cannot have ", whole.size(), " elements");
  const auto read = [&](std::int64_t first, std::int64_t count, std::byte* out) {
    std::memcpy(out, whole.data() + first, static_cast<std::size_t>(count) * sizeof(double));
  };
  Tensor held = values_of(buffer, held_part(buffer, parameter));
  std::vector<double> values = held.to_vector();
  const std::vector<double> given = part_of_whole(buffer, parameter, DType::fp64, read).to_vector();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isnan(given[i])) values[i] = given[i];
  held.set_values(values);
}

void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers) {
  read_flat(SafetensorsReader(path), parameters, buffers);
}

}  // namespace isobar
