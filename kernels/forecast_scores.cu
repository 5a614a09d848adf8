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

// Without a mask every point of the target is present.
template <bool kMasked>
__global__ void __launch_bounds__(kThreads, 2) forecast_scores_kernel(Fields a, double* out) {
  constexpr int kSums = kMasked ? kScores + 2 : kScores;
  for (std::int64_t field = blockIdx.x; field < a.count; field += gridDim.x) {
    double sums[kSums] = {};
    for (std::int64_t row = threadIdx.x / 32; row < a.height; row += kWarps) {
      const std::int64_t start = (field * a.height + row) * a.width;
      const std::int64_t climatology_start = (field % a.channels * a.height + row) * a.width;
      float row_sums[kScores] = {};
      int points = 0, missing = 0;  // of this lane's
      for (std::int64_t column = (threadIdx.x % 32) * kChunk; column < a.width; column += 32 * kChunk) {
        const int count = static_cast<int>(min(std::int64_t{kChunk}, a.width - column));
        float p[kChunk], t[kChunk], climate[kChunk] = {};
        load(a.pred, start + column, count, p);
        load(a.target, start + column, count, t);
        if (a.climatology.data != nullptr) load(a.climatology, climatology_start + column, count, climate);
        for (int k = 0; k < kChunk; ++k) {  // past the end all three are zero
          const bool present = !kMasked || t[k] == t[k];
          const float error = present ? p[k] - t[k] : 0.0f, p_anomaly = present ? p[k] - climate[k] : 0.0f,
                      t_anomaly = present ? t[k] - climate[k] : 0.0f;
          row_sums[0] += error * error;
          row_sums[1] += p_anomaly * t_anomaly;
          row_sums[2] += p_anomaly * p_anomaly;
          row_sums[3] += t_anomaly * t_anomaly;
          missing += present ? 0 : 1;
        }
        points += count;
      }
      const double weight = a.row_weights[row];
      for (int score = 0; score < kScores; ++score) sums[score] += weight * row_sums[score];
      if constexpr (kMasked) {
        sums[kScores] += weight * (points - missing);
        sums[kScores + 1] += weight * missing;
      }
    }
    for (int score = 0; score < kSums; ++score) {
      const double total = block_sum(sums[score]);
      if (threadIdx.x == 0) out[field * kSums + score] = total;
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
  const auto kernel = a.masked ? forecast_scores_kernel<true> : forecast_scores_kernel<false>;
  launch("forecast_scores", kernel, dim3(blocks_for(fields.count, 1, grid_limit(1 << 16))), dim3(kThreads), 0, stream,
         fields, a.out);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
