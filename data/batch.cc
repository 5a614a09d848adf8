#include "data/batch.h"

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

Batch to_device(const Batch& batch, Device device) {
  Batch copy;
  for (const auto& [name, tensor] : batch) {
    copy[name] = Tensor::empty(tensor.shape(), tensor.dtype(), device);
    copy[name].copy_from(tensor);
  }
  return copy;
}

void copy_into(Batch& to, const Batch& from) {
  for (const auto& [name, tensor] : from) {
    ISOBAR_CHECK(to.contains(name) && to.at(name).shape() == tensor.shape(), "tensor ", name, " ",
                 to_string(tensor.shape()), " does not fit the earlier batch");
    to.at(name).copy_from(tensor);
  }
}

}  // namespace isobar
