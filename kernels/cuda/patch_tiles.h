// Tiles of images and of rows of patches. A block moves a tile from one layout to the other through shared memory, so
// that both sides move whole lines. A tile is one pixel row of some neighbouring patches, for some channels. In the
// image it runs along the pixels of each channel; in the tokens along pixels or channels, whichever is contiguous. The
// layout of the tokens is that of kernels/patchify.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/divisor.h"
#include "kernels/patchify.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

inline constexpr int kTileChunk = 4, kTileThreads = 128;  // for all kernels that work on tiles
inline constexpr int kTilePixels = 128;                   // max neighbouring pixels, or one patch
inline constexpr int kTileFloats = 6144;                  // max 24 KB of shared memory, for any shape

// How a batch of images is cut into tiles. A thread has few elements of a tile and divides for each of its chunks.
// Divisors do that: real divisions would take longer than the copies.
struct Patches {
  std::int64_t channels, width, plane, token_size;  // elements of a plane and of a token
  bool channels_last;
  int tiles;                            // of all images
  Divisor height, patch;                // in pixels
  Divisor channel_tiles, column_tiles;  // of an image
  Divisor tile_channels;                // max per tile
  int tile_patches;                     // max per tile
  Divisor row_chunks, run_chunks;       // of a channel of the tile; of a run of a token
};

// The work of one block: pixels [0, pixels) x channels [0, channels) of a tile that starts at these elements.
struct Tile {
  std::int64_t image_start, token_start;
  std::int64_t first_channel;
  int pixel_row;  // of the image
  int channels, pixels;
};

// Up to kTileChunk elements of a tile that are contiguous in the image or in the tokens.
struct TileChunk {
  std::int64_t element;  // index of the first one in that array
  int shared, stride;    // the k-th one's index in shared memory is shared + k·stride
  int count;
  // Of the first one. In tokens with channels last, neighbours are channels; else they are pixels.
  std::int64_t channel;
};

__device__ __forceinline__ Tile tile_at(const Patches& a, int index) {
  const auto [above, channel_tile] = a.channel_tiles.divide(index);
  const auto [row, column_tile] = a.column_tiles.divide(above);
  const auto [b, h] = a.height.divide(row);
  const auto [patch_row, r] = a.patch.divide(row);  // counted over all images
  const int p = a.patch.divisor();
  const std::int64_t channel = std::int64_t{channel_tile} * a.tile_channels.divisor();
  const std::int64_t first_pixel = std::int64_t{column_tile} * a.tile_patches * p;
  const std::int64_t in_tokens = a.channels_last ? r * p * a.channels + channel : (channel * p + r) * p;
  // A row of patches has as many tokens as the image has columns of patches, P·P·channels elements each.
  return {.image_start = (b * a.channels + channel) * a.plane + h * a.width + first_pixel,
          .token_start = (patch_row * a.width + first_pixel) * p * a.channels + in_tokens,
          .first_channel = channel,
          .pixel_row = h,
          .channels = static_cast<int>(min(std::int64_t{a.tile_channels.divisor()}, a.channels - channel)),
          .pixels = static_cast<int>(min(std::int64_t{a.tile_patches} * p, a.width - first_pixel))};
}

// Calls f(TileChunk) for chunks of the tile in the image's order. Shared memory is [channel][pixel], with one float of
// padding per channel. kIsWhole: every chunk is whole.
template <bool kIsWhole, class F>
__device__ __forceinline__ void for_each_image_chunk(const Patches& a, const Tile& tile, const F& f) {
#pragma unroll 1  // a thread has two or three turns
  for (int i = static_cast<int>(threadIdx.x); i < tile.channels * a.row_chunks.divisor(); i += kTileThreads) {
    const auto [channel, chunk] = a.row_chunks.divide(i);
    const int pixel = chunk * kTileChunk;
    if (pixel >= tile.pixels) continue;  // the last tile of a row is narrower
    f(TileChunk{.element = tile.image_start + channel * a.plane + pixel,
                .shared = channel * (tile.pixels + 1) + pixel,
                .stride = 1,
                .count = kIsWhole ? kTileChunk : min(kTileChunk, tile.pixels - pixel),
                .channel = tile.first_channel + channel});
  }
}

// The same in the tokens' order: runs of channels at every pixel, or of a patch's pixels at every channel.
template <bool kIsWhole, class F>
__device__ __forceinline__ void for_each_token_chunk(const Patches& a, const Tile& tile, const F& f) {
  const int p = a.patch.divisor(), pitch = tile.pixels + 1;
  const int run = a.channels_last ? tile.channels : p;
  const int runs = a.channels_last ? tile.pixels : a.patch.divide(tile.pixels).quotient * a.tile_channels.divisor();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < runs * a.run_chunks.divisor(); i += kTileThreads) {
    const auto [which, chunk] = a.run_chunks.divide(i);
    const int offset = chunk * kTileChunk, left = run - offset, count = kIsWhole ? kTileChunk : min(kTileChunk, left);
    if (a.channels_last) {
      const auto [patch, pixel] = a.patch.divide(which);
      if (left > 0)  // the last tile has fewer channels
        f(TileChunk{.element = tile.token_start + patch * a.token_size + pixel * a.channels + offset,
                    .shared = offset * pitch + which,
                    .stride = pitch,
                    .count = count,
                    .channel = tile.first_channel + offset});
    } else {
      const auto [patch, channel] = a.tile_channels.divide(which);
      if (channel < tile.channels)
        f(TileChunk{.element = tile.token_start + patch * a.token_size + channel * p * p + offset,
                    .shared = channel * pitch + patch * p + offset,
                    .stride = 1,
                    .count = count,
                    .channel = tile.first_channel + channel});
    }
  }
}

// Copies a chunk into shared memory.
template <class T>
struct TileLoader {
  Reader<T, kTileChunk> from;
  float* tile;
  __device__ void operator()(const TileChunk& at) const {
    float v[kTileChunk];
    from.read(at.element, at.count, v);
    for (int k = 0; k < kTileChunk; ++k) {
      if (k < at.count) tile[at.shared + k * at.stride] = v[k];
    }
  }
};

// How a shape is cut into tiles: as many channels as fit beside kTilePixels or one patch, then as many patches as fit.
template <class Arguments>
Patches patches(const char* kernel, const Arguments& a, PatchOrder order) {
  ISOBAR_CHECK(a.patch >= 1 && a.height % a.patch == 0 && a.width % a.patch == 0, kernel, ": an image of ", a.height,
               " x ", a.width, " cannot be cut into patches of ", a.patch, " x ", a.patch);
  ISOBAR_CHECK(a.patch < kTileFloats, kernel, ": a patch side of ", a.patch, " exceeds the limit of ", kTileFloats - 1);
  const std::int64_t patch_columns = a.width / a.patch;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kTilePixels / a.patch, 1, std::max<std::int64_t>(patch_columns, 1));
  const std::int64_t tile_channels = std::clamp<std::int64_t>(
      kTileFloats / (wanted * a.patch + 1) / kTileChunk * kTileChunk, 1, std::max<std::int64_t>(a.channels, 1));
  const std::int64_t column_tiles = ceil_div(patch_columns, wanted),
                     channel_tiles = ceil_div(a.channels, tile_channels);
  const std::int64_t tiles = a.batch * a.height * column_tiles * channel_tiles;
  ISOBAR_CHECK(tiles < std::int64_t{1} << 30, kernel, ": ", a.batch, " images of ", a.height, " x ", a.width, " with ",
               a.channels, " channels are too many for one call");
  const bool channels_last = order == PatchOrder::channels_last;
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
          .row_chunks = divisor(ceil_div(wanted * a.patch, kTileChunk)),
          .run_chunks = divisor(ceil_div(channels_last ? tile_channels : a.patch, kTileChunk))};
}

inline std::size_t shared_bytes(const Patches& a) {
  return sizeof(float) * a.tile_channels.divisor() * (a.tile_patches * a.patch.divisor() + 1);
}

// In the image a chunk starts where a patch starts; in the tokens where a run starts.
inline std::int64_t image_run(const Patches& a) {
  return a.patch.divisor() % kTileChunk == 0 ? a.width : 1;
}
inline std::int64_t token_run(const Patches& a) {
  return a.channels_last ? a.channels : a.patch.divisor();
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
