// A copy of a batch from the host to a device, concurrent with the current stream.
#pragma once

#include <memory>

#include "data/loader.h"
#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

class Upload {
 public:
  // Issues the copies to `stream`, which must not be the current one; on the CPU `stream` is null and the copies are
  // made at once. The host does not wait if the batch is in pinned memory.
  Upload(std::shared_ptr<const LoadedBatch> source, Device device,
         const std::shared_ptr<const gpu::OwnedStream>& stream);
  ~Upload();  // waits until the copies have read the source
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // The batch on the device. Work that the current stream is given from now on runs after the copies.
  std::shared_ptr<const LoadedBatch> batch() const;

 private:
  void start();
  void wait_for_stream() noexcept;

  std::shared_ptr<const LoadedBatch> source_;
  Device device_;
  std::shared_ptr<const gpu::OwnedStream> stream_;
  std::shared_ptr<LoadedBatch> batch_;
  gpu::Event copied_;
};

}  // namespace isobar
