#include "engine/readback.h"

#include <cstring>
#include <utility>

#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

Readback::Readback(Tensor tensor)
    : tensor_(std::move(tensor)),
      copy_(Tensor::over(transfer_memory(tensor_.bytes(), tensor_.device()), tensor_.shape(), tensor_.dtype())) {
  if (!holds_values(tensor_.device())) std::memset(copy_.data(), 0, copy_.bytes());
}

void Readback::begin() const {
  gpu::copy(copy_.data(), tensor_.data(), tensor_.bytes(), tensor_.device(), current_stream());
}

}  // namespace isobar
