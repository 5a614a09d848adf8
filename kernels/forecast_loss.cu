// forecast_loss on CUDA. A warp takes a latitude row at a time, so that the weight is one number a row. The sums
// have two stages: up to kForecastLossBlocks blocks a sample write fp64 partial sums, one block adds them in order.
#include "kernels/forecast_loss.h"

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 256, kWarps = kThreads / 32;
constexpr std::int64_t kMinRows = 4 * kWarps;  // rows worth a block of their own

// A batch of fields, and the weight of each of their rows.
struct Fields {
  std::int64_t batch, channels, height, width;
  Input pred, target;
  const float* row_weights;      // null: 1
  const float* channel_weights;  // null: 1

  __device__ std::int64_t rows() const { return channels * height; }  // of a sample
  __device__ float weight(std::int64_t row) const {
    const float r = row_weights != nullptr ? row_weights[row % height] : 1.0f;
    return channel_weights != nullptr ? r * channel_weights[row / height] : r;
  }
};

struct LossSums {
  double error, target;  // E and T of the contract, or a part of them; an entry of `sums`
};

// Calls f(column, count) for the chunks of a row that this lane owns.
template <class F>
__device__ __forceinline__ void for_each_in_row(std::int64_t width, const F& f) {
  for (std::int64_t column = (threadIdx.x % 32) * kChunk; column < width; column += 32 * kChunk) {
    f(column, width - column < kChunk ? static_cast<int>(width - column) : kChunk);
  }
}

// Block (x, b) adds up the rows of sample b that fall to it: partial[b, x] = (E, T).
__global__ void __launch_bounds__(kThreads)
    partial_sums_kernel(Fields a, std::int64_t rows_per_block, LossSums* partial) {
  const std::int64_t first = blockIdx.x * rows_per_block, end = min(a.rows(), first + rows_per_block);
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    double error_sum = 0, target_sum = 0;
    for (std::int64_t row = first + threadIdx.x / 32; row < end; row += kWarps) {
      const std::int64_t start = (b * a.rows() + row) * a.width;
      float row_error = 0, row_target = 0;
      for_each_in_row(a.width, [&](std::int64_t column, int count) {
        float pred[kChunk], target[kChunk];
        load(a.pred, start + column, count, pred);
        load(a.target, start + column, count, target);
        for (int k = 0; k < kChunk; ++k) {
          const float error = pred[k] - target[k];
          row_error += error * error;
          row_target += target[k] * target[k];
        }
      });
      const float weight = a.weight(row);
      error_sum += static_cast<double>(weight) * row_error;
      target_sum += static_cast<double>(weight) * row_target;
    }
    const double error_total = block_sum(error_sum), target_total = block_sum(target_sum);
    if (threadIdx.x == 0) partial[b * gridDim.x + blockIdx.x] = {error_total, target_total};
  }
}

// One block: a warp adds the partial sums of a sample.
__global__ void __launch_bounds__(kThreads)
    loss_sums_kernel(std::int64_t batch, int blocks, const LossSums* partial, LossSums* sums) {
  for (std::int64_t b = threadIdx.x / 32; b < batch; b += kWarps) {
    double error = 0, target = 0;
    for (int block = threadIdx.x % 32; block < blocks; block += 32) {
      error += partial[b * blocks + block].error;
      target += partial[b * blocks + block].target;
    }
    error = warp_sum(error);
    target = warp_sum(target);
    if (threadIdx.x % 32 == 0) sums[b] = {error, target};
  }
}

// One block: all threads turn the sums into the loss.
__global__ void __launch_bounds__(kThreads)
    loss_kernel(bool squared, std::int64_t batch, double sample_size, const LossSums* sums, float* loss) {
  double total = 0;
  for (std::int64_t b = threadIdx.x; b < batch; b += kThreads) {
    const LossSums sum = sums[b];
    total += squared ? sum.error / sample_size : sqrt(sum.error) / sqrt(sum.target);
  }
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = static_cast<float>(total / static_cast<double>(batch));
}

// dL/dpred = coefficient(b) · weight(row) · (pred - target)
__global__ void __launch_bounds__(kThreads, 4)
    loss_bwd_kernel(Fields a, bool squared, double sample_size, const float* upstream, const LossSums* sums,
                    Output dpred) {
  const double factor = (upstream != nullptr ? *upstream : 1.0) / static_cast<double>(a.batch);
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    const LossSums sum = sums[b];
    const double slope = squared          ? 2.0 / sample_size
                         : sum.error == 0 ? 0.0
                                          : 1.0 / (sqrt(sum.error) * sqrt(sum.target));
    const float coefficient = static_cast<float>(factor * slope);
    for (std::int64_t row = global_thread() / 32; row < a.rows(); row += global_threads() / 32) {
      const std::int64_t start = (b * a.rows() + row) * a.width;
      const float scale = coefficient * a.weight(row);
      for_each_in_row(a.width, [&](std::int64_t column, int count) {
        float pred[kChunk], gradient[kChunk];
        load(a.pred, start + column, count, pred);
        load(a.target, start + column, count, gradient);
        for (int k = 0; k < kChunk; ++k) gradient[k] = scale * (pred[k] - gradient[k]);
        store(dpred, start + column, count, gradient);
      });
    }
  }
}

template <class Arguments>
Fields fields(const Arguments& a) {
  const bool weighted = a.kind != LossKind::relative_l2;
  return {.batch = a.batch,
          .channels = a.channels,
          .height = a.height,
          .width = a.width,
          .pred = input<kChunk>(a.pred, a.dtype, a.width),
          .target = input<kChunk>(a.target, DType::fp32, a.width),
          .row_weights = weighted ? static_cast<const float*>(a.row_weights) : nullptr,
          .channel_weights = weighted ? static_cast<const float*>(a.channel_weights) : nullptr};
}

}  // namespace

void forecast_loss_sums(const ForecastLossSums& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_sums", a.dtype);
  const std::int64_t rows = a.channels * a.height;
  const int blocks = blocks_for(rows, kMinRows, grid_limit(kForecastLossBlocks));
  const auto partial = static_cast<LossSums*>(a.workspace);
  launch("forecast_loss_sums", partial_sums_kernel, dim3(blocks, blocks_for(a.batch, 1, grid_limit(1 << 15))),
         dim3(kThreads), 0, stream, fields(a), ceil_div(rows, blocks), partial);
  launch("forecast_loss_sums: partial sums", loss_sums_kernel, dim3(1), dim3(kThreads), 0, stream, a.batch, blocks,
         static_cast<const LossSums*>(partial), reinterpret_cast<LossSums*>(a.sums));
}

void forecast_loss_finish(const ForecastLossFinish& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_finish", a.dtype);
  launch("forecast_loss_finish", loss_kernel, dim3(1), dim3(kThreads), 0, stream, a.kind == LossKind::weighted_mse,
         a.batch, static_cast<double>(a.sample_size), reinterpret_cast<const LossSums*>(a.sums),
         static_cast<float*>(a.loss));
}

void forecast_loss_bwd(const ForecastLossBwd& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_bwd", a.dtype);
  const std::int64_t rows = a.channels * a.height;
  if (a.batch * rows * a.width == 0) return;
  launch("forecast_loss_bwd", loss_bwd_kernel,
         dim3(blocks_for(rows, kWarps, grid_limit(1 << 12)), blocks_for(a.batch, 1, grid_limit(1 << 15))),
         dim3(kThreads), 0, stream, fields(a), a.kind == LossKind::weighted_mse, static_cast<double>(a.sample_size),
         static_cast<const float*>(a.upstream), reinterpret_cast<const LossSums*>(a.sums),
         output<kChunk>(a.dpred, a.dtype, a.width));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
