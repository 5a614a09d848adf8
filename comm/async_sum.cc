#include "comm/async_sum.h"

#include <algorithm>
#include <utility>

#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

AsyncSum::AsyncSum(Communicator ranks, std::int64_t count, Device device)
    : ranks_(std::move(ranks)),
      on_host_(Tensor::over(transfer_memory(static_cast<std::size_t>(count) * sizeof(double), device), {count},
                            DType::fp64)),
      sums_(Tensor::empty({count}, DType::fp64, device)),
      read_(sums_) {}

void AsyncSum::begin(std::span<const double> values) {
  ISOBAR_CHECK(static_cast<std::int64_t>(values.size()) == sums_.numel(), "a sum of ", sums_.numel(),
               " numbers is given ", values.size());
  std::ranges::copy(values, on_host_.data_as<double>());
  gpu::copy(sums_.data(), on_host_.data(), sums_.bytes(), sums_.device(), current_stream());
  ranks_.all_reduce(sums_);
  read_.begin();
}

}  // namespace isobar
