// patchify on CUDA. A block moves a tile through shared memory: one pixel row r of some patches side by side, for some
// channels. On the image's side it runs along the pixels of each channel, on the tokens' side along whichever of pixel
// and channel is contiguous there, so that both sides move whole lines.
#include "kernels/patchify.h"

#include <algorithm>
#include <type_traits>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 128;
constexpr int kTilePixels = 128;   // side by side, at most, or one patch
constexpr int kTileFloats = 6144;  // 24 KB of shared memory at most, whatever the shape

// How a batch of images is cut into tiles. A thread has few elements of a tile and divides for each chunk of them, by
// Divisors, since divisions would take longer than the copies.
struct Patches {
  std::int64_t channels, width, plane, token_size;  // elements of a plane and of a token
  bool channels_last;
  int tiles;                            // of all images
  Divisor height, patch;                // in pixels
  Divisor channel_tiles, column_tiles;  // of an image
  Divisor tile_channels;                // of a tile, at most
  int tile_patches;                     // the same
  Divisor row_chunks, run_chunks;       // of a channel of the tile; of a run of a token
};

// What one block works on: pixels [0, pixels) x channels [0, channels) of a tile that starts at these elements.
struct Tile {
  std::int64_t image_start, token_start;
  int channels, pixels;
};

__device__ __forceinline__ Tile tile_at(const Patches& a, int index) {
  const auto [above, channel_tile] = a.channel_tiles.divide(index);
  const auto [row, column_tile] = a.column_tiles.divide(above);
  const auto [b, h] = a.height.divide(row);
  const auto [patch_row, r] = a.patch.divide(row);  // the first counted over all images
  const int p = a.patch.divisor();
  const std::int64_t channel = std::int64_t{channel_tile} * a.tile_channels.divisor();
  const std::int64_t first_pixel = std::int64_t{column_tile} * a.tile_patches * p;
  const std::int64_t in_tokens = a.channels_last ? r * p * a.channels + channel : (channel * p + r) * p;
  // A row of patches takes as many tokens as the image has columns of patches, p · p · channels elements each.
  return {.image_start = (b * a.channels + channel) * a.plane + h * a.width + first_pixel,
          .token_start = (patch_row * a.width + first_pixel) * p * a.channels + in_tokens,
          .channels = static_cast<int>(min(std::int64_t{a.tile_channels.divisor()}, a.channels - channel)),
          .pixels = static_cast<int>(min(std::int64_t{a.tile_patches} * p, a.width - first_pixel))};
}

// Whether the element types say that all chunks are whole.
template <class I, class T>
constexpr bool kWhole = !std::is_same_v<I, AnyType> && !std::is_same_v<T, AnyType>;

// Calls f(element, shared, stride, count) for chunks of the tile as the image holds it: `element` is the first one's
// place in the image, `shared + k·stride` the k-th one's place in shared memory, laid out [channel][pixel] with one
// float of padding a channel.
template <bool kIsWhole, class F>
__device__ __forceinline__ void for_each_image_chunk(const Patches& a, const Tile& tile, const F& f) {
#pragma unroll 1  // a thread has two or three turns
  for (int i = static_cast<int>(threadIdx.x); i < tile.channels * a.row_chunks.divisor(); i += kThreads) {
    const auto [channel, chunk] = a.row_chunks.divide(i);
    const int pixel = chunk * kChunk;
    if (pixel >= tile.pixels) continue;  // the last tile of a row is narrower
    f(tile.image_start + channel * a.plane + pixel, channel * (tile.pixels + 1) + pixel, 1,
      kIsWhole ? kChunk : min(kChunk, tile.pixels - pixel));
  }
}

// The same as the tokens hold it: runs of channels at every pixel, or of a patch's pixels at every channel.
template <bool kIsWhole, class F>
__device__ __forceinline__ void for_each_token_chunk(const Patches& a, const Tile& tile, const F& f) {
  const int p = a.patch.divisor(), pitch = tile.pixels + 1;
  const int run = a.channels_last ? tile.channels : p;
  const int runs = a.channels_last ? tile.pixels : a.patch.divide(tile.pixels).quotient * a.tile_channels.divisor();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < runs * a.run_chunks.divisor(); i += kThreads) {
    const auto [which, chunk] = a.run_chunks.divide(i);
    const int offset = chunk * kChunk, left = run - offset, count = kIsWhole ? kChunk : min(kChunk, left);
    if (a.channels_last) {
      const auto [patch, pixel] = a.patch.divide(which);
      if (left > 0)  // the last tile has fewer channels
        f(tile.token_start + patch * a.token_size + pixel * a.channels + offset, offset * pitch + which, pitch, count);
    } else {
      const auto [patch, channel] = a.tile_channels.divide(which);
      if (channel < tile.channels)
        f(tile.token_start + patch * a.token_size + channel * p * p + offset, channel * pitch + patch * p + offset, 1,
          count);
    }
  }
}

template <class T>
struct Loader {
  Reader<T, kChunk> from;
  float* tile;
  __device__ void operator()(std::int64_t element, int shared, int stride, int count) const {
    float v[kChunk];
    from.read(element, count, v);
    for (int k = 0; k < kChunk; ++k) {
      if (k < count) tile[shared + k * stride] = v[k];
    }
  }
};

template <class T>
struct Storer {
  Writer<T, kChunk> to;
  const float* tile;
  __device__ void operator()(std::int64_t element, int shared, int stride, int count) const {
    float v[kChunk];
    for (int k = 0; k < kChunk; ++k) v[k] = k < count ? tile[shared + k * stride] : 0.0f;
    to.write(element, count, v);
  }
};

// I is the element type of the image, T that of the tokens; or both are AnyType.
template <class I, class T>
__global__ void __launch_bounds__(kThreads)
    patchify_kernel(Patches a, Reader<I, kChunk> image, Writer<T, kChunk> tokens) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(a, index);
    for_each_image_chunk<kWhole<I, T>>(a, tile, Loader<I>{image, shared});
    __syncthreads();
    for_each_token_chunk<kWhole<I, T>>(a, tile, Storer<T>{tokens, shared});
    __syncthreads();
  }
}

template <class I, class T>
__global__ void __launch_bounds__(kThreads)
    unpatchify_kernel(Patches a, Reader<T, kChunk> tokens, Writer<I, kChunk> image) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(a, index);
    for_each_token_chunk<kWhole<I, T>>(a, tile, Loader<T>{tokens, shared});
    __syncthreads();
    for_each_image_chunk<kWhole<I, T>>(a, tile, Storer<I>{image, shared});
    __syncthreads();
  }
}

// How a shape is cut into tiles: as many channels as fit beside kTilePixels or one patch, then patches up to the room.
template <class Arguments>
Patches patches(const char* kernel, const Arguments& a) {
  require_cuda_dtypes(kernel, a.image_dtype, a.token_dtype);
  ISOBAR_CHECK(a.patch >= 1 && a.height % a.patch == 0 && a.width % a.patch == 0, kernel, ": an image of ", a.height,
               " x ", a.width, " cannot be cut into patches of ", a.patch, " x ", a.patch);
  ISOBAR_CHECK(a.patch < kTileFloats, kernel, ": a patch side of ", a.patch, " exceeds the limit of ", kTileFloats - 1);
  const std::int64_t patch_columns = a.width / a.patch;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kTilePixels / a.patch, 1, std::max<std::int64_t>(patch_columns, 1));
  const std::int64_t tile_channels = std::clamp<std::int64_t>(kTileFloats / (wanted * a.patch + 1) / kChunk * kChunk, 1,
                                                              std::max<std::int64_t>(a.channels, 1));
  const std::int64_t column_tiles = ceil_div(patch_columns, wanted),
                     channel_tiles = ceil_div(a.channels, tile_channels);
  const std::int64_t tiles = a.batch * a.height * column_tiles * channel_tiles;
  ISOBAR_CHECK(tiles < std::int64_t{1} << 30, kernel, ": ", a.batch, " images of ", a.height, " x ", a.width, " with ",
               a.channels, " channels are too many for one call");
  const bool channels_last = a.order == PatchOrder::channels_last;
  const auto divisor = [](std::int64_t by) { return Divisor(std::max<std::int64_t>(by, 1)); };
  return {.channels = a.channels,
          .width = a.width,
          .plane = a.height * a.width,
          .token_size = a.channels * a.patch * a.patch,
          .channels_last = channels_last,
          .tiles = static_cast<int>(tiles),
          .height = divisor(a.height),
          .patch = divisor(a.patch),
          .channel_tiles = divisor(channel_tiles),
          .column_tiles = divisor(column_tiles),
          .tile_channels = divisor(tile_channels),
          .tile_patches = static_cast<int>(wanted),
          .row_chunks = divisor(ceil_div(wanted * a.patch, kChunk)),
          .run_chunks = divisor(ceil_div(channels_last ? tile_channels : a.patch, kChunk))};
}

std::size_t shared_bytes(const Patches& a) {
  return sizeof(float) * a.tile_channels.divisor() * (a.tile_patches * a.patch.divisor() + 1);
}

// Chunks on the image's side start anywhere a patch does; on the tokens' side anywhere a run does.
std::int64_t image_run(const Patches& a) {
  return a.patch.divisor() % kChunk == 0 ? a.width : 1;
}
std::int64_t token_run(const Patches& a) {
  return a.channels_last ? a.channels : a.patch.divisor();
}

// Calls f(Type<I>{}, Type<T>{}): instances of their own have images in fp32 whose chunks, and the tokens', are aligned.
template <class F>
void with_types(const Input& from, const Output& to, DType image_dtype, DType token_dtype, const F& f) {
  if (image_dtype != DType::fp32 || !all_packed(from, to)) return f(Type<AnyType>{}, Type<AnyType>{});
  visit_cuda_floating(token_dtype, [&]<class T>(Type<T> type) { f(Type<float>{}, type); });
}

}  // namespace

void patchify(const Patchify& a, Stream stream) {
  const Patches p = patches("patchify", a);
  if (p.tiles == 0) return;
  const Input image = input<kChunk>(a.image, a.image_dtype, image_run(p));
  const Output tokens = output<kChunk>(a.tokens, a.token_dtype, token_run(p));
  with_types(image, tokens, a.image_dtype, a.token_dtype, [&]<class I, class T>(Type<I>, Type<T>) {
    launch("patchify", patchify_kernel<I, T>, dim3(blocks_for(p.tiles, 1, grid_limit(1 << 16))), dim3(kThreads),
           shared_bytes(p), stream, p, Reader<I, kChunk>(image), Writer<T, kChunk>(tokens));
  });
}

void unpatchify(const Unpatchify& a, Stream stream) {
  const Patches p = patches("unpatchify", a);
  if (p.tiles == 0) return;
  const Input tokens = input<kChunk>(a.tokens, a.token_dtype, token_run(p));
  const Output image = output<kChunk>(a.image, a.image_dtype, image_run(p));
  with_types(tokens, image, a.image_dtype, a.token_dtype, [&]<class I, class T>(Type<I>, Type<T>) {
    launch("unpatchify", unpatchify_kernel<I, T>, dim3(blocks_for(p.tiles, 1, grid_limit(1 << 16))), dim3(kThreads),
           shared_bytes(p), stream, p, Reader<T, kChunk>(tokens), Writer<I, kChunk>(image));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
