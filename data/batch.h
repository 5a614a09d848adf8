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

using Batch = std::map<std::string, Tensor>;  // name -> [B, ...], as the data set's files hold it

// B; an error where the batch is empty.
std::int64_t batch_size(const Batch& batch);

// The tensor of that name; an error that names it where the batch has none.
const Tensor& tensor_of(const Batch& batch, const char* name);

// A copy of every tensor on the device.
Batch to_device(const Batch& batch, Device device);

// The batch itself where it lies there, else a copy.
Batch on_device(const Batch& batch, Device device);

// Copies the values into the tensors of an earlier batch of the same names and shapes, which a captured step reads.
void copy_into(Batch& to, const Batch& from);

// Gives host memory for the tensors of a batch: ordinary memory, or pinned memory that copies to a GPU reach directly.
using HostAllocator = std::function<std::shared_ptr<void>(std::size_t bytes)>;
std::shared_ptr<void> heap_memory(std::size_t bytes);

// Host tensors [size, ...] of that layout, not initialised. They are not counted as memory of the engine. An error
// where the layout has no tensor, or two of one name.
Batch empty_batch(const std::vector<TensorSpec>& layout, std::int64_t size,
                  const HostAllocator& allocate = heap_memory);

// Reads a sample of the data set to row `row` of the tensors of a host batch of its layout. Several threads may read to
// several rows of one batch.
void read_row(const Dataset& dataset, const SampleKey& key, const Batch& batch, std::int64_t row);

// The samples of the data set as a host batch, read one after another by this thread: as epoch 0 has them.
Batch read_batch(const Dataset& dataset, std::span<const std::int64_t> samples, std::uint64_t seed = 0);

}  // namespace isobar
