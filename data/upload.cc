#include "data/upload.h"

#include <utility>

namespace isobar {

Upload::Upload(std::shared_ptr<const LoadedBatch> source, Device device,
               const std::shared_ptr<const gpu::OwnedStream>& stream)
    : source_(std::move(source)), device_(device), stream_(stream), copied_(device) {
  const StreamScope scope(stream_);
  try {
    start();
  } catch (...) {
    wait_for_stream();
    throw;
  }
}

void Upload::wait_for_stream() noexcept {
  const StreamScope scope(stream_);
  gpu::quietly([this] { gpu::synchronize(device_, current_stream()); });
}

void Upload::start() {
  batch_ = std::make_shared<LoadedBatch>(
      LoadedBatch{.at = source_->at, .samples = source_->samples, .tensors = {}, .missing = source_->missing});
  for (const auto& [name, tensor] : source_->tensors) {
    const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), device_);
    gpu::copy(copy.data(), tensor.data(), tensor.bytes(), device_, current_stream());
    batch_->tensors[name] = copy;
  }
  copied_.record(current_stream());
}

Upload::~Upload() {
  try {
    if (!copied_.is_reached()) copied_.synchronize();
  } catch (...) {  // the event failed; the copies may still be running
    wait_for_stream();
  }
}

std::shared_ptr<const LoadedBatch> Upload::batch() const {
  copied_.make_wait(current_stream());
  return batch_;
}

}  // namespace isobar
