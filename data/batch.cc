#include "data/batch.h"

#include <algorithm>

#include "engine/storage.h"
#include "kernels/common/check.h"

namespace isobar {

std::int64_t batch_size(const Batch& batch) {
  ISOBAR_CHECK(!batch.empty(), "a batch without tensors has no size");
  return batch.begin()->second.size(0);
}

const Tensor& tensor_of(const Batch& batch, const std::string& name) {
  const auto found = batch.find(name);
  ISOBAR_CHECK(found != batch.end(), "the data set gives no tensor ", name);
  return found->second;
}

const Tensor& samples_of(const Batch& batch, const std::string& name, const Shape& sample) {
  const Tensor& samples = tensor_of(batch, name);
  Shape expected{batch_size(batch)};
  expected.insert(expected.end(), sample.begin(), sample.end());
  ISOBAR_CHECK(samples.shape() == expected, "the data set's ", name, " has the shape ", to_string(samples.shape()),
               ", but the model needs ", to_string(expected));
  return samples;
}

Batch on_device(const Batch& batch, Device device) {
  const bool is_there = std::ranges::all_of(batch, [&](const auto& named) { return named.second.device() == device; });
  return is_there ? batch : to_device(batch, device);
}

Batch to_device(const Batch& batch, Device device) {
  Batch copy;
  for (const auto& [name, tensor] : batch) {
    copy[name] = Tensor::empty(tensor.shape(), tensor.dtype(), device);
    copy[name].copy_from(tensor);
  }
  return copy;
}

void copy_into(Batch& to, const Batch& from) {
  ISOBAR_CHECK(to.size() == from.size(), "a batch of ", from.size(), " tensors does not fit the earlier batch of ",
               to.size());
  for (const auto& [name, tensor] : from) {
    ISOBAR_CHECK(to.contains(name) && to.at(name).shape() == tensor.shape(), "tensor ", name, " ",
                 to_string(tensor.shape()), " does not fit the earlier batch");
    to.at(name).copy_from(tensor);
  }
}

std::shared_ptr<void> heap_memory(std::size_t bytes) {
  return transfer_memory(bytes, Device{});
}

Batch empty_batch(const std::vector<TensorSpec>& layout, std::int64_t size, const HostAllocator& allocate) {
  ISOBAR_CHECK(!layout.empty(), "the samples of the data set have no tensors");
  Batch batch;
  for (const TensorSpec& spec : layout) {
    ISOBAR_CHECK(!batch.contains(spec.name), "the samples of the data set have two tensors ", spec.name);
    Shape shape{size};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    const std::size_t bytes = bytes_of(shape, spec.dtype);
    batch[spec.name] = Tensor::over(allocate(bytes), std::move(shape), spec.dtype);
  }
  return batch;
}

void read_row(const Dataset& dataset, const SampleKey& key, const Batch& batch, std::int64_t row) {
  std::vector<void*> rows;
  for (const TensorSpec& spec : dataset.layout()) {
    auto* const first = static_cast<std::byte*>(tensor_of(batch, spec.name).data());
    rows.push_back(first + static_cast<std::size_t>(row) * bytes_of(spec.shape, spec.dtype));
  }
  dataset.read(key, rows);
}

Batch read_batch(const Dataset& dataset, std::span<const std::int64_t> samples, std::uint64_t seed) {
  const Batch batch = empty_batch(dataset.layout(), std::ssize(samples));
  for (std::int64_t row = 0; row < std::ssize(samples); ++row)
    read_row(dataset, {.sample = samples[static_cast<std::size_t>(row)], .epoch = 0, .seed = seed}, batch, row);
  return batch;
}

}  // namespace isobar
