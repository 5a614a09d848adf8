// patchify on CUDA. A block moves a tile through shared memory: one pixel row r of some patches side by side, for some
// channels. On the image's side it runs along the pixels of each channel, on the tokens' side along whichever of pixel
// and channel is contiguous there, so that both sides move whole lines.
#include "kernels/patchify.h"

#include <algorithm>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 128;
constexpr int kTileFloats = 6144;  // 24 KB of shared memory at most, whatever the shape

struct Patches {
  std::int64_t batch, channels, height, width;
  int patch;
  bool channels_last;
  int tile_channels, tile_patches;  // of a tile, at most

  __host__ __device__ std::int64_t patch_columns() const { return width / patch; }
  __host__ __device__ std::int64_t channel_tiles() const { return ceil_div(channels, tile_channels); }
  __host__ __device__ std::int64_t column_tiles() const { return ceil_div(patch_columns(), tile_patches); }
  __host__ __device__ std::int64_t tiles() const { return batch * height * column_tiles() * channel_tiles(); }
};

// What one block works on: pixels [0, pixels) x channels [0, channels) of a tile that starts at these elements.
struct Tile {
  std::int64_t image_start, token_start;
  int channels, pixels;
};

__device__ __forceinline__ Tile tile_at(const Patches& a, std::int64_t index) {
  const std::int64_t channel = index % a.channel_tiles() * a.tile_channels;
  index /= a.channel_tiles();
  const std::int64_t column = index % a.column_tiles() * a.tile_patches;  // counted in patches
  index /= a.column_tiles();
  const std::int64_t h = index % a.height, b = index / a.height;
  const std::int64_t p = a.patch, r = h % p;
  const std::int64_t token = (b * (a.height / p) + h / p) * a.patch_columns() + column;
  const std::int64_t in_token = a.channels_last ? r * p * a.channels + channel : (channel * p + r) * p;
  return {.image_start = ((b * a.channels + channel) * a.height + h) * a.width + column * p,
          .token_start = token * a.channels * p * p + in_token,
          .channels = static_cast<int>(min(std::int64_t{a.tile_channels}, a.channels - channel)),
          .pixels = static_cast<int>(min(std::int64_t{a.tile_patches}, a.patch_columns() - column)) * a.patch};
}

// Calls f(element, shared, stride, count) for chunks of the tile as the image holds it: `element` is the first one's
// place in the image, `shared + k·stride` the k-th one's place in shared memory, laid out [channel][pixel] with one
// float of padding a channel.
template <class F>
__device__ __forceinline__ void for_each_image_chunk(const Patches& a, const Tile& tile, const F& f) {
  const int row_chunks = ceil_div(tile.pixels, kChunk);
  for (int i = threadIdx.x; i < tile.channels * row_chunks; i += kThreads) {
    const int channel = i / row_chunks, pixel = i % row_chunks * kChunk;
    f(tile.image_start + channel * a.height * a.width + pixel, channel * (tile.pixels + 1) + pixel, 1,
      min(kChunk, tile.pixels - pixel));
  }
}

// The same as the tokens hold it: runs of channels at every pixel, or of a patch's pixels at every channel.
template <class F>
__device__ __forceinline__ void for_each_token_chunk(const Patches& a, const Tile& tile, const F& f) {
  const std::int64_t token_size = a.channels * a.patch * a.patch;
  const int run = a.channels_last ? tile.channels : a.patch;
  const int run_chunks = ceil_div(run, kChunk);
  const int runs = a.channels_last ? tile.pixels : tile.channels * (tile.pixels / a.patch);
  for (int i = threadIdx.x; i < runs * run_chunks; i += kThreads) {
    const int which = i / run_chunks, offset = i % run_chunks * kChunk;
    const int count = min(kChunk, run - offset);
    if (a.channels_last) {
      const int patch = which / a.patch, pixel = which % a.patch;
      f(tile.token_start + patch * token_size + pixel * a.channels + offset, offset * (tile.pixels + 1) + which,
        tile.pixels + 1, count);
    } else {
      const int patch = which / tile.channels, channel = which % tile.channels;
      f(tile.token_start + patch * token_size + static_cast<std::int64_t>(channel) * a.patch * a.patch + offset,
        channel * (tile.pixels + 1) + patch * a.patch + offset, 1, count);
    }
  }
}

struct Loader {
  Input from;
  float* tile;
  __device__ void operator()(std::int64_t element, int shared, int stride, int count) const {
    float v[kChunk];
    load(from, element, count, v);
    for (int k = 0; k < kChunk; ++k) {
      if (k < count) tile[shared + k * stride] = v[k];
    }
  }
};

struct Storer {
  Output to;
  const float* tile;
  __device__ void operator()(std::int64_t element, int shared, int stride, int count) const {
    float v[kChunk];
    for (int k = 0; k < kChunk; ++k) v[k] = k < count ? tile[shared + k * stride] : 0.0f;
    store(to, element, count, v);
  }
};

__global__ void __launch_bounds__(kThreads) patchify_kernel(Patches a, Input image, Output tokens) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (std::int64_t index = blockIdx.x; index < a.tiles(); index += gridDim.x) {
    const Tile tile = tile_at(a, index);
    for_each_image_chunk(a, tile, Loader{image, shared});
    __syncthreads();
    for_each_token_chunk(a, tile, Storer{tokens, shared});
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) unpatchify_kernel(Patches a, Input tokens, Output image) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (std::int64_t index = blockIdx.x; index < a.tiles(); index += gridDim.x) {
    const Tile tile = tile_at(a, index);
    for_each_token_chunk(a, tile, Loader{tokens, shared});
    __syncthreads();
    for_each_image_chunk(a, tile, Storer{image, shared});
    __syncthreads();
  }
}

// How a shape is cut into tiles: as many channels as fit beside 64 pixels (or one patch), then patches up to the room.
template <class Arguments>
Patches patches(const char* kernel, const Arguments& a) {
  require_cuda_dtypes(kernel, a.image_dtype, a.token_dtype);
  ISOBAR_CHECK(a.patch >= 1 && a.height % a.patch == 0 && a.width % a.patch == 0, kernel, ": an image of ", a.height,
               " x ", a.width, " cannot be cut into patches of ", a.patch, " x ", a.patch);
  ISOBAR_CHECK(a.patch < kTileFloats, kernel, ": a patch side of ", a.patch, " exceeds the limit of ", kTileFloats - 1);
  const std::int64_t patch_columns = a.width / a.patch;
  const std::int64_t wanted = std::clamp<std::int64_t>(64 / a.patch, 1, std::max<std::int64_t>(patch_columns, 1));
  const std::int64_t tile_channels = std::clamp<std::int64_t>(kTileFloats / (wanted * a.patch + 1) / kChunk * kChunk, 1,
                                                              std::max<std::int64_t>(a.channels, 1));
  return {.batch = a.batch,
          .channels = a.channels,
          .height = a.height,
          .width = a.width,
          .patch = static_cast<int>(a.patch),
          .channels_last = a.order == PatchOrder::channels_last,
          .tile_channels = static_cast<int>(tile_channels),
          .tile_patches = static_cast<int>(wanted)};
}

std::size_t shared_bytes(const Patches& a) {
  return sizeof(float) * a.tile_channels * (a.tile_patches * a.patch + 1);
}

// Chunks on the image's side start anywhere a patch does; on the tokens' side anywhere a run does.
std::int64_t image_run(const Patches& a) {
  return a.patch % kChunk == 0 ? a.width : 1;
}
std::int64_t token_run(const Patches& a) {
  return a.channels_last ? a.channels : a.patch;
}

}  // namespace

void patchify(const Patchify& a, Stream stream) {
  const Patches p = patches("patchify", a);
  if (p.tiles() == 0) return;
  launch("patchify", patchify_kernel, dim3(blocks_for(p.tiles(), 1, grid_limit(1 << 16))), dim3(kThreads),
         shared_bytes(p), stream, p, input<kChunk>(a.image, a.image_dtype, image_run(p)),
         output<kChunk>(a.tokens, a.token_dtype, token_run(p)));
}

void unpatchify(const Unpatchify& a, Stream stream) {
  const Patches p = patches("unpatchify", a);
  if (p.tiles() == 0) return;
  launch("unpatchify", unpatchify_kernel, dim3(blocks_for(p.tiles(), 1, grid_limit(1 << 16))), dim3(kThreads),
         shared_bytes(p), stream, p, input<kChunk>(a.tokens, a.token_dtype, token_run(p)),
         output<kChunk>(a.image, a.image_dtype, image_run(p)));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
