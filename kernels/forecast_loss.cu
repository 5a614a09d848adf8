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
  const float* rows;      // [height]
  const float* channels;  // [channels]

  __device__ float of_row(std::int64_t row) const { return rows != nullptr ? rows[row] : 1.0f; }
  __device__ float times_channel(float of_row, std::int64_t channel) const {
    return channels != nullptr ? of_row * channels[channel] : of_row;
  }
};

// A batch of fields, and the weights of their rows.
struct Fields {
  std::int64_t batch, channels, height, width;
  Input pred, target;
  Weights weights;

  __device__ std::int64_t rows() const { return channels * height; }  // of a sample
  __device__ float weight(std::int64_t row) const {
    return weights.times_channel(weights.of_row(row % height), row / height);
  }
};

struct LossSums {
  double error, target;  // E and T (kernels/forecast_loss.h), or a part of them; an entry of `sums`
};

// Calls f(column, count) for this lane's chunks of a row.
template <class F>
__device__ __forceinline__ void for_each_in_row(std::int64_t width, const F& f) {
  for (std::int64_t column = (threadIdx.x % 32) * kChunk; column < width; column += 32 * kChunk) {
    f(column, width - column < kChunk ? static_cast<int>(width - column) : kChunk);
  }
}

// Block (x, b) adds up its rows of sample b: partial[b, x] = (E, T).
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

// partial_sums_kernel for rows of patches.
template <class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks) patch_sums_kernel(PatchedFields<T> a, LossSums* partial) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    double error_sum = 0, target_sum = 0;
    for_each_tile(a, b, shared, [&](const Tile& tile) {
      float tile_error = 0, tile_target = 0;
      for_each_chunk_of(a, tile, shared,
                        [&](const TileChunk&, const auto& pred, const auto& target, const auto& weight) {
                          for (int k = 0; k < kTileChunk; ++k) {
                            const float error = pred[k] - target[k];
                            tile_error += weight[k] * (error * error);
                            tile_target += weight[k] * (target[k] * target[k]);
                          }
                        });
      error_sum += tile_error;
      target_sum += tile_target;
    });
    const double error_total = block_sum(error_sum), target_total = block_sum(target_sum);
    if (threadIdx.x == 0) partial[b * gridDim.x + blockIdx.x] = {error_total, target_total};
  }
}

// One block: each warp adds the partial sums of a sample.
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

// One block: all threads compute the loss from the sums.
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

// The common factors of a sample's gradients: dL/dpred = coefficient(b) · weight · (pred - target)
struct Slope {
  bool squared;
  double batch, sample_size;
  const float* upstream;  // null: 1
  const LossSums* sums;

  __device__ float coefficient(std::int64_t b) const {
    const double factor = (upstream != nullptr ? *upstream : 1.0) / batch;
    const LossSums sum = sums[b];
    const double slope = squared          ? 2.0 / sample_size
                         : sum.error == 0 ? 0.0
                                          : 1.0 / (sqrt(sum.error) * sqrt(sum.target));
    return static_cast<float>(factor * slope);
  }
};

__global__ void __launch_bounds__(kThreads, 4) loss_bwd_kernel(Fields a, Slope slope, Output dpred) {
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    const float coefficient = slope.coefficient(b);
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

// loss_bwd_kernel for rows of patches; G is the element type of the gradient.
template <class T, class G>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    patch_bwd_kernel(PatchedFields<T> a, Slope slope, Writer<G, kTileChunk> dpred) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (std::int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
    const float coefficient = slope.coefficient(b);
    for_each_tile(a, b, shared, [&](const Tile& tile) {
      for_each_chunk_of(a, tile, shared,
                        [&](const TileChunk& at, const auto& pred, const auto& target, const auto& weight) {
                          float gradient[kTileChunk];
                          for (int k = 0; k < kTileChunk; ++k)
                            gradient[k] = coefficient * weight[k] * (pred[k] - target[k]);
                          dpred.write(at.element, at.count, gradient);
                        });
    });
  }
}

template <class Arguments>
Weights weights(const Arguments& a) {
  const bool weighted = a.kind != LossKind::relative_l2;
  return {.rows = weighted ? static_cast<const float*>(a.row_weights) : nullptr,
          .channels = weighted ? static_cast<const float*>(a.channel_weights) : nullptr};
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

Slope slope(const ForecastLossBwdArgs& a) {
  return {.squared = a.kind == LossKind::weighted_mse,
          .batch = static_cast<double>(a.batch),
          .sample_size = static_cast<double>(a.sample_size),
          .upstream = static_cast<const float*>(a.upstream),
          .sums = reinterpret_cast<const LossSums*>(a.sums)};
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
int launch_image_sums(const ForecastLossSumsArgs& a, unsigned samples, LossSums* partial, Stream stream) {
  const std::int64_t rows = a.channels * a.height;
  const int blocks = blocks_for(rows, kMinRows, grid_limit(kForecastLossBlocks));
  launch("forecast_loss_sums", partial_sums_kernel, dim3(blocks, samples), dim3(kThreads), 0, stream, fields(a),
         ceil_div(rows, blocks), partial);
  return blocks;
}
int launch_patch_sums(const ForecastLossSumsArgs& a, unsigned samples, LossSums* partial, Stream stream) {
  int blocks = 0;
  with_patched_fields("forecast_loss_sums", a, nullptr, DType::fp32, [&]<class T>(const PatchedFields<T>& fields) {
    blocks = blocks_for(fields.sample_tiles, kMinTiles, grid_limit(kForecastLossBlocks));
    launch("forecast_loss_sums", patch_sums_kernel<T>, dim3(blocks, samples), dim3(kTileThreads),
           shared_bytes(fields.patches), stream, fields, partial);
  });
  return blocks;
}

// G is AnyType if T is.
template <class G, class T>
void launch_patch_bwd(const ForecastLossBwdArgs& a, const PatchedFields<T>& fields, unsigned samples, Stream stream) {
  const Output dpred = output<kTileChunk>(a.dpred, a.dpred_dtype, token_run(fields.patches));
  launch("forecast_loss_bwd", patch_bwd_kernel<T, G>,
         dim3(blocks_for(fields.sample_tiles, kMinTiles, grid_limit(1 << 12)), samples), dim3(kTileThreads),
         shared_bytes(fields.patches), stream, fields, slope(a), Writer<G, kTileChunk>(dpred));
}
void launch_patch_bwd(const ForecastLossBwdArgs& a, unsigned samples, Stream stream) {
  with_patched_fields("forecast_loss_bwd", a, a.dpred, a.dpred_dtype, [&]<class T>(const PatchedFields<T>& fields) {
    if constexpr (kAllWhole<T>)
      visit_cuda_floating(a.dpred_dtype, [&]<class G>(Type<G>) { launch_patch_bwd<G>(a, fields, samples, stream); });
    else
      launch_patch_bwd<AnyType>(a, fields, samples, stream);
  });
}

}  // namespace

void forecast_loss_sums(const ForecastLossSumsArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_sums", a.dtype);
  const auto partial = static_cast<LossSums*>(a.workspace);
  const unsigned samples = blocks_for(a.batch, 1, grid_limit(1 << 15));
  const int blocks =
      a.patch == 0 ? launch_image_sums(a, samples, partial, stream) : launch_patch_sums(a, samples, partial, stream);
  launch("forecast_loss_sums: partial sums", loss_sums_kernel, dim3(1), dim3(kThreads), 0, stream, a.batch, blocks,
         static_cast<const LossSums*>(partial), reinterpret_cast<LossSums*>(a.sums));
}

void forecast_loss_finish(const ForecastLossFinishArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_finish", a.dtype);
  launch("forecast_loss_finish", loss_kernel, dim3(1), dim3(kThreads), 0, stream, a.kind == LossKind::weighted_mse,
         a.batch, static_cast<double>(a.sample_size), reinterpret_cast<const LossSums*>(a.sums),
         static_cast<float*>(a.loss));
}

void forecast_loss_bwd(const ForecastLossBwdArgs& a, Stream stream) {
  require_cuda_dtypes("forecast_loss_bwd", a.dtype, a.dpred_dtype);
  ISOBAR_CHECK(a.dpred_dtype == a.dtype || a.dtype == DType::fp32, "forecast_loss_bwd: a gradient in ",
               name_of(a.dpred_dtype), " of a forecast in ", name_of(a.dtype), " is not supported");
  const std::int64_t rows = a.channels * a.height;
  if (a.batch * rows * a.width == 0) return;
  const unsigned samples = blocks_for(a.batch, 1, grid_limit(1 << 15));
  if (a.patch != 0) return launch_patch_bwd(a, samples, stream);
  launch("forecast_loss_bwd", loss_bwd_kernel, dim3(blocks_for(rows, kWarps, grid_limit(1 << 12)), samples),
         dim3(kThreads), 0, stream, fields(a), slope(a), output<kChunk>(a.dpred, a.dpred_dtype, a.width));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
