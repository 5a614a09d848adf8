#include "data/upload.h"

#include <utility>

namespace isobar {

Upload::Upload(std::shared_ptr<const LoadedBatch> source, Device device,
               const std::shared_ptr<const gpu::OwnedStream>& stream)
    : source_(std::move(source)), copied_(device) {
  const StreamScope scope(stream);
  try {
    start(device);
  } catch (...) {
    gpu::quietly([&] { gpu::synchronize(device, current_stream()); });
    throw;
  }
}

void Upload::start(Device device) {
  batch_ = std::make_shared<LoadedBatch>(LoadedBatch{.at = source_->at, .samples = source_->samples, .tensors = {}});
  for (const auto& [name, tensor] : source_->tensors) {
    const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), device);
    gpu::copy(copy.data(), tensor.data(), tensor.bytes(), device, current_stream());
    batch_->tensors[name] = copy;
  }
  copied_.record(current_stream());
}

Upload::~Upload() {
  gpu::quietly([&] {
    if (!copied_.is_reached()) copied_.synchronize();
  });
}

std::shared_ptr<const LoadedBatch> Upload::batch() const {
  copied_.make_wait(current_stream());
  return batch_;
}

}  // namespace isobar
