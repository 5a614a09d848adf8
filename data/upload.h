// A batch on its way from the host to a device, beside what the current stream does.
#pragma once

#include <memory>

#include "data/loader.h"
#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

class Upload {
 public:
  // Gives the copies to `stream`, which is not the current one; on the CPU, where it is null, they are made at once.
  // The host does not wait where the batch lies in pinned memory.
  Upload(std::shared_ptr<const LoadedBatch> source, Device device,
         const std::shared_ptr<const gpu::OwnedStream>& stream);
  ~Upload();  // waits until the source has been read
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // The batch on the device. What the current stream is given from now on runs behind the copies.
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
