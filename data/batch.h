// A batch: named tensors whose first axis counts samples.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/tensor.h"

namespace isobar {

using Batch = std::map<std::string, Tensor>;  // name -> [B, ...], as the data set's files hold it

// B; an error where the batch is empty.
std::int64_t batch_size(const Batch& batch);

// The tensor of that name; an error that names it where the batch has none.
const Tensor& tensor_of(const Batch& batch, const std::string& name);

// A copy of every tensor on the device.
Batch to_device(const Batch& batch, Device device);

// Copies the values into the tensors of an earlier batch of the same shapes, which a captured step reads.
void copy_into(Batch& to, const Batch& from);

}  // namespace isobar
