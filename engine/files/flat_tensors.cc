#include "engine/files/flat_tensors.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

std::span<const std::byte> bytes_of_tensor(const Tensor& host) {
  return {static_cast<const std::byte*>(host.data()), host.bytes()};
}

template <class T>
bool all_finite(const T* values, std::int64_t n) {
  return std::all_of(values, values + n, [](T value) { return std::isfinite(value); });
}

// A tensor of the file, in the dtype of the buffer it is for.
Tensor read_tensor(const SafetensorsFile& file, const std::string& name, const Shape& shape, DType dtype) {
  Tensor host = Tensor::empty(shape, dtype, Device{});
  copy_elements(file.at(name), dtype, static_cast<std::byte*>(host.data()));
  return host;
}

}  // namespace

bool is_finite(const Tensor& values) {
  const Tensor host = values.to(Device{});
  return host.dtype() == DType::fp64 ? all_finite(host.data_as<double>(), host.numel())
                                     : all_finite(host.data_as<float>(), host.numel());
}

void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  for (const auto& [prefix, buffer] : buffers)
    for (const NamedParameter& p : parameters.named()) infos.push_back({prefix + p.name, buffer.dtype(), p.shape});
  SafetensorsWriter writer(path, infos, metadata);
  for (const auto& [prefix, buffer] : buffers)
    for (const NamedParameter& p : parameters.named())
      writer.append(prefix + p.name, bytes_of_tensor(buffer.slice(p.offset, p.shape).to(Device{})));
  writer.commit();
}

void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers) {
  const SafetensorsFile file(path);
  std::set<std::string> unknown;
  for (const TensorBytes& tensor : file.tensors()) unknown.insert(tensor.info.name);
  for (const auto& [prefix, buffer] : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      const TensorBytes* tensor = file.find(prefix + p.name);
      ISOBAR_CHECK(tensor != nullptr, path.string(), ": tensor ", prefix + p.name, " is missing");
      ISOBAR_CHECK(tensor->info.shape == p.shape, path.string(), ": tensor ", prefix + p.name, " has shape ",
                   to_string(tensor->info.shape), ", not ", to_string(p.shape));
      ISOBAR_CHECK(is_finite(read_tensor(file, prefix + p.name, p.shape, buffer.dtype())), path.string(), ": tensor ",
                   prefix + p.name, " holds numbers that are not finite");
      unknown.erase(tensor->info.name);
    }
  }
  ISOBAR_CHECK(unknown.empty(), path.string(), ": tensor ", in_quotes(*unknown.begin()), " is unknown to this model");
  for (const auto& [prefix, buffer] : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      buffer.slice(p.offset, p.shape).copy_from(read_tensor(file, prefix + p.name, p.shape, buffer.dtype()));
    }
  }
}

}  // namespace isobar
