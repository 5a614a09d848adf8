// A batch: named tensors whose first axis counts samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/tensor.h"

namespace isobar {

using Batch = std::map<std::string, Tensor>;  // name -> [B, ...], with the values of the files

// B; Error if the batch is empty.
std::int64_t batch_size(const Batch& batch);

// The tensor of that name; Error naming it if the batch has none.
const Tensor& tensor_of(const Batch& batch, const std::string& name);
// The same, of samples with this shape; Error naming both shapes if they have another one.
const Tensor& samples_of(const Batch& batch, const std::string& name, const Shape& sample);

// A copy of every tensor on the device.
Batch to_device(const Batch& batch, Device device);

// The batch itself if it is on the device, else a copy.
Batch on_device(const Batch& batch, Device device);

// Copies the values into the tensors of an earlier batch with the same names and shapes, which a captured step reads.
void copy_into(Batch& to, const Batch& from);

// Allocates host memory for the tensors of a batch: ordinary memory, or pinned memory for direct copies to a GPU.
using HostAllocator = std::function<std::shared_ptr<void>(std::size_t bytes)>;
std::shared_ptr<void> heap_memory(std::size_t bytes);

// Uninitialised host tensors [size, ...] of that layout. They do not count as memory of the engine. Error if the layout
// is empty or has a duplicate name.
Batch empty_batch(const std::vector<TensorSpec>& layout, std::int64_t size,
                  const HostAllocator& allocate = heap_memory);

// Reads a sample into row `row` of the tensors of a host batch with the data set's layout. Threads may read into
// different rows of one batch at the same time.
void read_row(const Dataset& dataset, const SampleKey& key, const Batch& batch, std::int64_t row);

// The samples as a host batch, read in this thread one after another, with the keys of epoch 0.
Batch read_batch(const Dataset& dataset, std::span<const std::int64_t> samples, std::uint64_t seed = 0);

}  // namespace isobar
