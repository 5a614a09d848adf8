// forecast_loss on CUDA. For images a warp takes one latitude row at a time, so that a row has one weight. For rows of
// patches a block copies a tile of the target to shared memory, and reads it there in the tokens' order
// (kernels/cuda/patch_tiles.h). The sums have two stages: up to kForecastLossBlocks blocks a sample write fp64 partial
// sums, then one block adds them in order.
#include "kernels/forecast_loss.h"

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/patch_tiles.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 256, kWarps = kThreads / 32;
constexpr std::int64_t kMinRows = 4 * kWarps;  // min rows for a block
constexpr std::int64_t kMinTiles = 4;          // min tiles for a block
constexpr int kTileBlocks = 10;  // per multiprocessor; by default the compiler spills registers to fit more

// A null pointer means weights of 1.
struct Weights {
  const float* rows;            // [height]
  const float* channels;        // [channels], in E and T
  const float* share_channels;  // [channels], in W and M

  __device__ float of_row(std::int64_t row) const { return rows != nullptr ? rows[row] : 1.0f; }
  __device__ float times_channel(float of_row, std::int64_t channel) const {
    return channels != nullptr ? of_row * channels[channel] : of_row;
  }
  __device__ float times_share_channel(float of_row, std::int64_t channel) const {
    return share_channels != nullptr ? of_row * share_channels[channel] : of_row;
  }
};

// Whether a point of the target counts. Without a mask every point does.
template <bool kMasked>
__device__ __forceinline__ bool is_present(float target) {
  return !kMasked || target == target;
}

// A batch of fields, and the weights of their rows.
struct Fields {
  std::int64_t batch, channels, height, width;
  Input pred, target;
  Weights weights;

  __device__ std::int64_t rows() const { return channels * height; }  // of a sample
  __device__ float weight(std::int64_t row) const {
    return weights.times_channel(weights.of_row(row % height), row / height);
  }
  __device__ float share_weight(std::int64_t row) const {
    return weights.times_share_channel(weights.of_row(row % height), row / height);
  }
};

// E and T (kernels/forecast_loss.h), or a part of them; masked also W and M. An entry of `sums`.
template <bool kMasked>
struct LossSums {
  double error = 0, target = 0;

  __device__ bool is_left_out() const { return false; }
  __device__ double share() const { return 1; }  // of the weight: present
};
template <>
struct LossSums<true> {
  double error = 0, target = 0, present = 0, missing = 0;

  __device__ bool is_left_out() const { return present == 0; }
  __device__ double share() const { return present / (present + missing); }
};

// Of the numbers of all threads that `sum` adds up, block_sum or warp_sum.
template <bool kMasked, class Sum>
__device__ __forceinline__ LossSums<kMasked> sum_over(LossSums<kMasked> part, const Sum& sum) {
  part.error = sum(part.error);
  part.target = sum(part.target);
  if constexpr (kMasked) {
    part.present = sum(part.present);
    part.missing = sum(part.missing);
  }
  return part;
}

// Calls f(column, count) for this lane's chunks of a row.
template <class F>
__device__ __forceinline__ void for_each_in_row(std::int64_t width, const F& f) {
  for (std::int64_t column = (threadIdx.x % 32) * kChunk; column < width; column += 32 * kChunk) {
    f(column, width - column < kChunk ? static_cast<int>(width - column) : kChunk);
  }
}

// Block (x, b) adds up its rows of sample b: partial[b, x].
template <bool kMasked>
__global__ void __launch_bounds__(kThreads)
    partial_sums_kernel(Fields a, std::int64_t rows_per_block, LossSums<kMasked>* partial) {
  const std::int64_t first = blockIdx.x * rows_per_block, end = min(a.rows(), first + rows_per_block);
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    LossSums<kMasked> sums;
    for (std::int64_t row = first + threadIdx.x / 32; row < end; row += kWarps) {
      const std::int64_t start = (b * a.rows() + row) * a.width;
      float row_error = 0, row_target = 0;
      int points = 0, missing = 0;  // of this lane's
      for_each_in_row(a.width, [&](std::int64_t column, int count) {
        float pred[kChunk], target[kChunk];
        load(a.pred, start + column, count, pred);
        load(a.target, start + column, count, target);
        for (int k = 0; k < kChunk; ++k) {
          const bool present = is_present<kMasked>(target[k]);
          const float error = present ? pred[k] - target[k] : 0.0f, value = present ? target[k] : 0.0f;
          row_error += error * error;
          row_target += value * value;
          missing += present ? 0 : 1;
        }
        points += count;
      });
      const float weight = a.weight(row);
      sums.error += static_cast<double>(weight) * row_error;
      sums.target += static_cast<double>(weight) * row_target;
      if constexpr (kMasked) {
        const double share_weight = a.share_weight(row);
        sums.present += share_weight * (points - missing);
        sums.missing += share_weight * missing;
      }
    }
    sums = sum_over(sums, [](double x) { return block_sum(x); });
    if (threadIdx.x == 0) partial[b * gridDim.x + blockIdx.x] = sums;
  }
}

// Whether the element type guarantees that all chunks are whole.
template <class T>
constexpr bool kAllWhole = !std::is_same_v<T, AnyType>;

// A batch of fields whose forecast and gradient are rows of patches.
template <class T>  // float: of the forecast, all chunks whole; or AnyType
struct PatchedFields {
  Patches patches;
  std::int64_t batch;
  int sample_tiles;
  Reader<T, kTileChunk> pred, target;
  Weights weights;
};

// Calls f(tile) for this block's tiles of sample b, with the target's pixels in shared memory.
template <class T, class F>
__device__ __forceinline__ void for_each_tile(const PatchedFields<T>& a, std::int64_t b, float* shared, const F& f) {
  for (int index = static_cast<int>(blockIdx.x); index < a.sample_tiles; index += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(a.patches, static_cast<int>(b) * a.sample_tiles + index);
    for_each_image_chunk<kAllWhole<T>>(a.patches, tile, TileLoader<T>{a.target, shared});
    __syncthreads();
    f(tile);
    __syncthreads();
  }
}

// Calls f(chunk, pred, target, weight) for all chunks of a tile in the tokens' order; past a ragged end all values are
// 0.
template <class T, class F>
__device__ __forceinline__ void for_each_chunk_of(const PatchedFields<T>& a, const Tile& tile, const float* shared,
                                                  const F& f) {
  const float row_weight = a.weights.of_row(tile.pixel_row);
  for_each_token_chunk<kAllWhole<T>>(a.patches, tile, [&](const TileChunk& at) {
    float pred[kTileChunk], target[kTileChunk], weight[kTileChunk];
    a.pred.read(at.element, at.count, pred);
    for (int k = 0; k < kTileChunk; ++k) {
      const bool inside = k < at.count;
      target[k] = inside ? shared[at.shared + k * at.stride] : 0.0f;
      weight[k] = inside ? a.weights.times_channel(row_weight, at.channel + k) : 0.0f;
    }
    f(at, pred, target, weight);
  });
}

// The weights in W and M of a chunk's elements; past a ragged end they are 0.
template <class T>
__device__ __forceinline__ void share_weights(const PatchedFields<T>& a, const Tile& tile, const TileChunk& at,
                                              float (&weights)[kTileChunk]) {
  const float row_weight = a.weights.of_row(tile.pixel_row);
  for (int k = 0; k < kTileChunk; ++k)
    weights[k] = k < at.count ? a.weights.times_share_channel(row_weight, at.channel + k) : 0.0f;
}

// partial_sums_kernel for rows of patches.
template <class T, bool kMasked>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    patch_sums_kernel(PatchedFields<T> a, LossSums<kMasked>* partial) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    LossSums<kMasked> sums;
    for_each_tile(a, b, shared, [&](const Tile& tile) {
      float tile_error = 0, tile_target = 0, tile_present = 0, tile_missing = 0;
      for_each_chunk_of(a, tile, shared,
                        [&](const TileChunk& at, const auto& pred, const auto& target, const auto& weight) {
                          [[maybe_unused]] float share_weight[kTileChunk];
                          if constexpr (kMasked) share_weights(a, tile, at, share_weight);
                          for (int k = 0; k < kTileChunk; ++k) {
                            const bool present = is_present<kMasked>(target[k]);
                            const float error = present ? pred[k] - target[k] : 0.0f;
                            const float value = present ? target[k] : 0.0f;
                            tile_error += weight[k] * (error * error);
                            tile_target += weight[k] * (value * value);
                            if constexpr (kMasked) {
                              tile_present += present ? share_weight[k] : 0.0f;
                              tile_missing += present ? 0.0f : share_weight[k];
                            }
                          }
                        });
      sums.error += tile_error;
      sums.target += tile_target;
      if constexpr (kMasked) {
        sums.present += tile_present;
        sums.missing += tile_missing;
      }
    });
    sums = sum_over(sums, [](double x) { return block_sum(x); });
    if (threadIdx.x == 0) partial[b * gridDim.x + blockIdx.x] = sums;
  }
}

// One block: each warp adds the partial sums of a sample.
template <bool kMasked>
__global__ void __launch_bounds__(kThreads)
    loss_sums_kernel(std::int64_t batch, int blocks, const LossSums<kMasked>* partial, LossSums<kMasked>* sums) {
  for (std::int64_t b = threadIdx.x / 32; b < batch; b += kWarps) {
    LossSums<kMasked> total;
    for (int block = threadIdx.x % 32; block < blocks; block += 32) {
      const LossSums<kMasked> part = partial[b * blocks + block];
      total.error += part.error;
      total.target += part.target;
      if constexpr (kMasked) {
        total.present += part.present;
        total.missing += part.missing;
      }
    }
    total = sum_over(total, [](double x) { return warp_sum(x); });
    if (threadIdx.x % 32 == 0) sums[b] = total;
  }
}

// One block: all threads compute the loss from the sums.
template <bool kMasked>
__global__ void __launch_bounds__(kThreads)
    loss_kernel(bool squared, std::int64_t batch, double sample_size, const LossSums<kMasked>* sums, float* loss) {
  double total = 0;
  int samples = 0;
  for (std::int64_t b = threadIdx.x; b < batch; b += kThreads) {
    const LossSums<kMasked> sum = sums[b];
    // No branch around the roots: registers would be spilled.
    const double loss_here = squared ? sum.error / (sample_size * sum.share()) : sqrt(sum.error) / sqrt(sum.target);
    total += sum.is_left_out() ? 0.0 : loss_here;
    samples += sum.is_left_out() ? 0 : 1;
  }
  total = block_sum(total);
  if constexpr (kMasked) batch = block_sum(samples);
  if (threadIdx.x == 0) *loss = kMasked && batch == 0 ? 0.0f : static_cast<float>(total / static_cast<double>(batch));
}

// The common factors of a sample's gradients: dL/dpred = coefficient(b, samples()) · weight · (pred - target)
template <bool kMasked>
struct Slope {
  bool squared;
  double batch, sample_size;
  const float* upstream;  // null: 1
  const LossSums<kMasked>* sums;

  // The samples over which the loss is a mean. All lanes of a warp call it.
  __device__ double samples() const {
    if constexpr (!kMasked) return batch;
    int count = 0;
    for (std::int64_t b = threadIdx.x % 32; b < static_cast<std::int64_t>(batch); b += 32)
      count += sums[b].is_left_out() ? 0 : 1;
    return warp_sum(count);
  }
  __device__ float coefficient(std::int64_t b, double samples) const {
    const LossSums<kMasked> sum = sums[b];
    if (sum.is_left_out()) return 0.0f;
    const double factor = (upstream != nullptr ? *upstream : 1.0) / samples;
    const double slope = squared          ? 2.0 / (sample_size * sum.share())
                         : sum.error == 0 ? 0.0
                                          : 1.0 / (sqrt(sum.error) * sqrt(sum.target));
    return static_cast<float>(factor * slope);
  }
};

template <bool kMasked>
__device__ __forceinline__ float derivative(float scale, float pred, float target) {
  return is_present<kMasked>(target) ? scale * (pred - target) : 0.0f;
}

template <bool kMasked>
__global__ void __launch_bounds__(kThreads, 4) loss_bwd_kernel(Fields a, Slope<kMasked> slope, Output dpred) {
  const double samples = slope.samples();
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    const float coefficient = slope.coefficient(b, samples);
    for (std::int64_t row = global_thread() / 32; row < a.rows(); row += global_threads() / 32) {
      const std::int64_t start = (b * a.rows() + row) * a.width;
      const float scale = coefficient * a.weight(row);
      for_each_in_row(a.width, [&](std::int64_t column, int count) {
        float pred[kChunk], gradient[kChunk];
        load(a.pred, start + column, count, pred);
        load(a.target, start + column, count, gradient);
        for (int k = 0; k < kChunk; ++k) gradient[k] = derivative<kMasked>(scale, pred[k], gradient[k]);
        store(dpred, start + column, count, gradient);
      });
    }
  }
}

// loss_bwd_kernel for rows of patches; G is the element type of the gradient.
template <class T, class G, bool kMasked>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    patch_bwd_kernel(PatchedFields<T> a, Slope<kMasked> slope, Writer<G, kTileChunk> dpred) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  const double samples = slope.samples();
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    const float coefficient = slope.coefficient(b, samples);
    for_each_tile(a, b, shared, [&](const Tile& tile) {
      for_each_chunk_of(a, tile, shared,
                        [&](const TileChunk& at, const auto& pred, const auto& target, const auto& weight) {
                          float gradient[kTileChunk];
                          for (int k = 0; k < kTileChunk; ++k)
                            gradient[k] = derivative<kMasked>(coefficient * weight[k], pred[k], target[k]);
                          dpred.write(at.element, at.count, gradient);
                        });
    });
  }
}

template <class Arguments>
Weights weights(const Arguments& a) {
  const bool weighted = a.kind != LossKind::relative_l2;
  return {.rows = weighted ? static_cast<const float*>(a.row_weights) : nullptr,
          .channels = weighted ? static_cast<const float*>(a.channel_weights) : nullptr,
          .share_channels =
              a.kind == LossKind::relative_l2_weighted ? static_cast<const float*>(a.channel_weights) : nullptr};
}

template <class Arguments>
Fields fields(const Arguments& a) {
  return {.batch = a.batch,
          .channels = a.channels,
          .height = a.height,
          .width = a.width,
          .pred = input<kChunk>(a.pred, a.dtype, a.width),
          .target = input<kChunk>(a.target, DType::fp32, a.width),
          .weights = weights(a)};
}

template <bool kMasked>
Slope<kMasked> slope(const ForecastLossBwdArgs& a) {
  return {.squared = a.kind == LossKind::weighted_mse,
          .batch = static_cast<double>(a.batch),
          .sample_size = static_cast<double>(a.sample_size),
          .upstream = static_cast<const float*>(a.upstream),
          .sums = reinterpret_cast<const LossSums<kMasked>*>(a.sums)};
}

// Calls f(PatchedFields<float>) if all chunks of an fp32 forecast, and of `output` if it exists, are whole; else
// f(PatchedFields<AnyType>).
template <class Arguments, class F>
void with_patched_fields(const char* kernel, const Arguments& a, const void* output, DType output_dtype, const F& f) {
  const Patches tiles = patches(kernel, a, PatchOrder::channels_last);
  const Input pred = input<kTileChunk>(a.pred, a.dtype, token_run(tiles));
  const Input target = input<kTileChunk>(a.target, DType::fp32, image_run(tiles));
  const auto call = [&]<class T>(Type<T>) {
    f(PatchedFields<T>{.patches = tiles,
                       .batch = a.batch,
                       .sample_tiles = tiles.tiles / static_cast<int>(a.batch > 0 ? a.batch : 1),
                       .pred = Reader<T, kTileChunk>(pred),
                       .target = Reader<T, kTileChunk>(target),
                       .weights = weights(a)});
  };
  if (a.dtype == DType::fp32 && all_packed(pred, target, input<kTileChunk>(output, output_dtype, token_run(tiles))))
    call(Type<float>{});
  else
    call(Type<AnyType>{});
}

// Launches the partial sums with `blocks` blocks a sample, at most kForecastLossBlocks.
template <bool kMasked>
int launch_image_sums(const ForecastLossSumsArgs& a, unsigned samples, LossSums<kMasked>* partial, Stream stream) {
  const std::int64_t rows = a.channels * a.height;
  const int blocks = blocks_for(rows, kMinRows, grid_limit(kForecastLossBlocks));
  launch("forecast_loss_sums", partial_sums_kernel<kMasked>, dim3(blocks, samples), dim3(kThreads), 0, stream,
         fields(a), ceil_div(rows, blocks), partial);
  return blocks;
}
template <bool kMasked>
int launch_patch_sums(const ForecastLossSumsArgs& a, unsigned samples, LossSums<kMasked>* partial, Stream stream) {
  int blocks = 0;
  with_patched_fields("forecast_loss_sums", a, nullptr, DType::fp32, [&]<class T>(const PatchedFields<T>& fields) {
    blocks = blocks_for(fields.sample_tiles, kMinTiles, grid_limit(kForecastLossBlocks));
    launch("forecast_loss_sums", patch_sums_kernel<T, kMasked>, dim3(blocks, samples), dim3(kTileThreads),
           shared_bytes(fields.patches), stream, fields, partial);
  });
  return blocks;
}
template <bool kMasked>
void launch_sums(const ForecastLossSumsArgs& a, Stream stream) {
  const auto partial = static_cast<LossSums<kMasked>*>(a.workspace);
  const unsigned samples = blocks_for(a.batch, 1, grid_limit(1 << 15));
  const int blocks =
      a.patch == 0 ? launch_image_sums(a, samples, partial, stream) : launch_patch_sums(a, samples, partial, stream);
  launch("forecast_loss_sums: partial sums", loss_sums_kernel<kMasked>, dim3(1), dim3(kThreads), 0, stream, a.batch,
         blocks, static_cast<const LossSums<kMasked>*>(partial), reinterpret_cast<LossSums<kMasked>*>(a.sums));
}

template <bool kMasked>
void launch_finish(const ForecastLossFinishArgs& a, Stream stream) {
  launch("forecast_loss_finish", loss_kernel<kMasked>, dim3(1), dim3(kThreads), 0, stream,
         a.kind == LossKind::weighted_mse, a.batch, static_cast<double>(a.sample_size),
         reinterpret_cast<const LossSums<kMasked>*>(a.sums), static_cast<float*>(a.loss));
}

// G is AnyType if T is.
template <class G, bool kMasked, class T>
void launch_patch_bwd(const ForecastLossBwdArgs& a, const PatchedFields<T>& fields, unsigned samples, Stream stream) {
  const Output dpred = output<kTileChunk>(a.dpred, a.dpred_dtype, token_run(fields.patches));
  launch("forecast_loss_bwd", patch_bwd_kernel<T, G, kMasked>,
         dim3(blocks_for(fields.sample_tiles, kMinTiles, grid_limit(1 << 12)), samples), dim3(kTileThreads),
         shared_bytes(fields.patches), stream, fields, slope<kMasked>(a), Writer<G, kTileChunk>(dpred));
}
template <bool kMasked>
void launch_patch_bwd(const ForecastLossBwdArgs& a, unsigned samples, Stream stream) {
  with_patched_fields("forecast_loss_bwd", a, a.dpred, a.dpred_dtype, [&]<class T>(const PatchedFields<T>& fields) {
    if constexpr (kAllWhole<T>)
      visit_cuda_floating(a.dpred_dtype,
                          [&]<class G>(Type<G>) { launch_patch_bwd<G, kMasked>(a, fields, samples, stream); });
    else
      launch_patch_bwd<AnyType, kMasked>(a, fields, samples, stream);
  });
}
template <bool kMasked>
void launch_bwd(const ForecastLossBwdArgs& a, Stream stream) {
  const unsigned samples = blocks_for(a.batch, 1, grid_limit(1 << 15));
  if (a.patch != 0) return launch_patch_bwd<kMasked>(a, samples, stream);
  launch("forecast_loss_bwd", loss_bwd_kernel<kMasked>,
         dim3(blocks_for(a.channels * a.height, kWarps, grid_limit(1 << 12)), samples), dim3(kThreads), 0, stream,
         fields(a), slope<kMasked>(a), output<kChunk>(a.dpred, a.dpred_dtype, a.width));
}

}  // namespace

void forecast_loss_sums(const ForecastLossSumsArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_sums", a.dtype);
  a.masked ? launch_sums<true>(a, stream) : launch_sums<false>(a, stream);
}

void forecast_loss_finish(const ForecastLossFinishArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_finish", a.dtype);
  a.masked ? launch_finish<true>(a, stream) : launch_finish<false>(a, stream);
}

void forecast_loss_bwd(const ForecastLossBwdArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_bwd", a.dtype, a.dpred_dtype);
  ISOBAR_CHECK(a.dpred_dtype == a.dtype || a.dtype == DType::fp32, "forecast_loss_bwd: a gradient in ",
               name_of(a.dpred_dtype), " of a forecast in ", name_of(a.dtype), " is not supported");
  if (a.batch * a.channels * a.height * a.width == 0) return;
  a.masked ? launch_bwd<true>(a, stream) : launch_bwd<false>(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
