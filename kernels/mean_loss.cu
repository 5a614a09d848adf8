// mean_loss on CUDA. A thread has one channel of every so many points, so that a block reads whole lines. The sums have
// two stages: up to kMeanLossBlocks blocks write fp64 partial sums, then one block adds them in their order.
#include "kernels/mean_loss.h"

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMinTurns = 8;  // points that are worth a thread

static_assert(kMeanLossChannels < kThreads);

// Calls f(point, channel) for all points, in a grid of one dimension. The channel is the same in all calls of a thread.
template <class F>
__device__ __forceinline__ void for_each_element(std::int64_t points, int channels, const F& f) {
  const int at_once = kThreads / channels;  // points of a block
  const int of_block = static_cast<int>(threadIdx.x) / channels, channel = static_cast<int>(threadIdx.x) % channels;
  if (of_block >= at_once) return;
#pragma unroll 4  // several elements are on their way
  for (std::int64_t point = std::int64_t{blockIdx.x} * at_once + of_block; point < points;
       point += std::int64_t{gridDim.x} * at_once)
    f(point, channel);
}

__device__ __forceinline__ float element(const Input& a, std::int64_t i) {
  float value[1];
  load(a, i, 1, value);
  return value[0];
}

__device__ __forceinline__ float density(float x) {
  return expf(static_cast<float>(kDensityScale) * x);
}

__device__ __forceinline__ float sign(float x) {
  return x > 0 ? 1.0f : x < 0 ? -1.0f : x;  // 0 of 0, and NaN of NaN
}

struct Rows {
  std::int64_t points;
  int channels;
  std::int64_t pred_stride, target_stride;
  Input pred, target;
};

// partial [gridDim.x, channels + 1]
__global__ void __launch_bounds__(kThreads)
    partial_sums_kernel(Rows a, bool is_squared, bool with_density, double* partial) {
  __shared__ double error_of[kThreads], density_of[kThreads];
  double errors = 0, densities = 0;
  for_each_element(a.points, a.channels, [&](std::int64_t point, int channel) {
    const float pred = element(a.pred, point * a.pred_stride + channel);
    const float target = element(a.target, point * a.target_stride + channel);
    const float error = pred - target;
    errors += is_squared ? error * error : fabsf(error);
    if (with_density && channel == 0) densities += fabsf(density(pred) - density(target));
  });
  const int thread = static_cast<int>(threadIdx.x), end = kThreads / a.channels * a.channels;
  error_of[thread] = errors;
  density_of[thread] = densities;
  __syncthreads();
  if (thread > a.channels) return;
  const bool is_density = thread == a.channels;
  double sum = 0;
  for (int i = is_density ? 0 : thread; i < end; i += a.channels) sum += is_density ? density_of[i] : error_of[i];
  partial[std::int64_t{blockIdx.x} * (a.channels + 1) + thread] = sum;
}

__global__ void __launch_bounds__(kThreads) sums_kernel(int blocks, int sums, const double* partial, double* out) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= sums) return;
  double sum = 0;
#pragma unroll 8
  for (int block = 0; block < blocks; ++block) sum += partial[std::int64_t{block} * sums + thread];
  out[thread] = sum;
}

__global__ void finish_kernel(double points, int channels, double density_weight, const double* sums, float* loss) {
  double errors = 0;
  for (int c = 0; c < channels; ++c) errors += sums[c];
  double result = errors / (points * channels);
  if (density_weight != 0) result += density_weight * sums[channels] / points;
  *loss = static_cast<float>(result);
}

__global__ void __launch_bounds__(kThreads)
    bwd_kernel(Rows a, bool is_squared, double points, double density_weight, const float* upstream, Output dpred) {
  const double factor = upstream != nullptr ? *upstream : 1.0;
  const auto slope = static_cast<float>(factor * (is_squared ? 2 : 1) / (points * a.channels));
  const auto density_slope = static_cast<float>(factor * density_weight * kDensityScale / points);
  for_each_element(a.points, a.channels, [&](std::int64_t point, int channel) {
    const std::int64_t i = point * a.channels + channel;
    const float pred = element(a.pred, i), error = pred - element(a.target, i);
    float gradient[1] = {slope * (is_squared ? error : sign(error))};
    if (channel == 0 && density_weight != 0) gradient[0] += density_slope * density(pred) * sign(error);
    store(dpred, i, 1, gradient);
  });
}

int blocks_of(std::int64_t points, std::int64_t channels, std::int64_t most) {
  return blocks_for(points, kThreads / channels * kMinTurns, grid_limit(most));
}

}  // namespace

void mean_loss_sums(const MeanLossSumsArgs& a, Stream stream) {
  require_cuda_dtypes("mean_loss_sums", a.dtype);
  check_mean_loss(a);
  const int channels = static_cast<int>(a.channels), blocks = blocks_of(a.points, channels, kMeanLossBlocks);
  const Rows rows{.points = a.points,
                  .channels = channels,
                  .pred_stride = a.pred_stride,
                  .target_stride = a.target_stride,
                  .pred = input<1>(a.pred, a.dtype),
                  .target = input<1>(a.target, DType::fp32)};
  const auto partial = static_cast<double*>(a.workspace);
  launch("mean_loss_sums", partial_sums_kernel, dim3(blocks), dim3(kThreads), 0, stream, rows,
         a.kind == ErrorKind::squared, a.with_density, partial);
  launch("mean_loss_sums: partial sums", sums_kernel, dim3(1), dim3(kThreads), 0, stream, blocks, channels + 1,
         static_cast<const double*>(partial), a.sums);
}

void mean_loss_finish(const MeanLossFinishArgs& a, Stream stream) {
  require_cuda_dtypes("mean_loss_finish", a.dtype);
  launch("mean_loss_finish", finish_kernel, dim3(1), dim3(1), 0, stream, static_cast<double>(a.points),
         static_cast<int>(a.channels), a.density_weight, a.sums, static_cast<float*>(a.loss));
}

void mean_loss_bwd(const MeanLossBwdArgs& a, Stream stream) {
  require_cuda_dtypes("mean_loss_bwd", a.dtype, a.dpred_dtype);
  check_mean_loss(a);
  const int channels = static_cast<int>(a.channels);
  const Rows rows{.points = a.points,
                  .channels = channels,
                  .pred_stride = a.channels,
                  .target_stride = a.channels,
                  .pred = input<1>(a.pred, a.dtype),
                  .target = input<1>(a.target, DType::fp32)};
  launch("mean_loss_bwd", bwd_kernel, dim3(blocks_of(a.points, channels, 1 << 12)), dim3(kThreads), 0, stream, rows,
         a.kind == ErrorKind::squared, static_cast<double>(a.points), a.density_weight,
         static_cast<const float*>(a.upstream), output<1>(a.dpred, a.dpred_dtype));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
