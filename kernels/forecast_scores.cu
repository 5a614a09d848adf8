// forecast_scores on CUDA: a block per field (sample and variable), a warp per latitude row; sums across rows in fp64.
#include "kernels/forecast_scores.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 512, kWarps = kThreads / 32, kScores = 4;

struct Fields {
  std::int64_t count, channels, height, width;  // count = batch · channels
  Input pred, target, climatology;              // climatology.data may be null
  const float* row_weights;
};

__global__ void __launch_bounds__(kThreads, 2) forecast_scores_kernel(Fields a, double* out) {
  for (std::int64_t field = blockIdx.x; field < a.count; field += gridDim.x) {
    double sums[kScores] = {};
    for (std::int64_t row = threadIdx.x / 32; row < a.height; row += kWarps) {
      const std::int64_t start = (field * a.height + row) * a.width;
      const std::int64_t climatology_start = (field % a.channels * a.height + row) * a.width;
      float row_sums[kScores] = {};
      for (std::int64_t column = (threadIdx.x % 32) * kChunk; column < a.width; column += 32 * kChunk) {
        const int count = static_cast<int>(min(std::int64_t{kChunk}, a.width - column));
        float p[kChunk], t[kChunk], climate[kChunk] = {};
        load(a.pred, start + column, count, p);
        load(a.target, start + column, count, t);
        if (a.climatology.data != nullptr) load(a.climatology, climatology_start + column, count, climate);
        for (int k = 0; k < kChunk; ++k) {  // past the end all three are zero
          const float error = p[k] - t[k], p_anomaly = p[k] - climate[k], t_anomaly = t[k] - climate[k];
          row_sums[0] += error * error;
          row_sums[1] += p_anomaly * t_anomaly;
          row_sums[2] += p_anomaly * p_anomaly;
          row_sums[3] += t_anomaly * t_anomaly;
        }
      }
      for (int score = 0; score < kScores; ++score)
        sums[score] += static_cast<double>(a.row_weights[row]) * row_sums[score];
    }
    for (int score = 0; score < kScores; ++score) {
      const double total = block_sum(sums[score]);
      if (threadIdx.x == 0) out[field * kScores + score] = total;
    }
  }
}

}  // namespace

void forecast_scores(const ForecastScoresArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_scores", a.dtype);
  if (a.batch * a.channels == 0) return;
  const Fields fields = {.count = a.batch * a.channels,
                         .channels = a.channels,
                         .height = a.height,
                         .width = a.width,
                         .pred = input<kChunk>(a.pred, a.dtype, a.width),
                         .target = input<kChunk>(a.target, DType::fp32, a.width),
                         .climatology = input<kChunk>(a.climatology, DType::fp32, a.width),
                         .row_weights = static_cast<const float*>(a.row_weights)};
  launch("forecast_scores", forecast_scores_kernel, dim3(blocks_for(fields.count, 1, grid_limit(1 << 16))),
         dim3(kThreads), 0, stream, fields, a.out);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
