// turn on CUDA. A block moves tiles through shared memory, so that both sides move whole lines: a tile is 32 points
// along the last axis of y, times 32 along another axis, for some channels. The other axis is the one that x is
// contiguous along; where that is the last axis itself, axis 1.
#include "kernels/turn.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kSide = 32, kThreads = 256;
constexpr int kMaxChannels = 8;                  // of a tile
constexpr int kPitch = kSide * (kSide + 1) + 8;  // floats of a channel in shared memory: neighbours lie in other banks
constexpr std::int64_t kMaxBlocks = 1 << 12;

struct Volumes {
  std::int64_t batch, channels, extent[3], vector;
  Divisor tile_channels;
  int channel_tiles;
  const float* x;
  const std::int32_t* turns;

  __device__ std::int64_t points() const { return extent[0] * extent[1] * extent[2]; }
};

// The tiles of a sample.
struct Tiling {
  int across, rest;  // axes of y beside the last one: of the tile, and the one that is left
  bool reads_along_last;
  std::int64_t last_tiles, across_tiles, count;

  __device__ Tiling(const Volumes& v, const Turn& turn)
      : across(turn.order[0] == 2 ? 0 : 1),
        rest(1 - across),
        reads_along_last(turn.order[2] == 2),
        last_tiles(ceil_div(v.extent[2], std::int64_t{kSide})),
        across_tiles(ceil_div(v.extent[across], std::int64_t{kSide})),
        count(last_tiles * across_tiles * v.extent[rest] * v.channel_tiles) {}
};

// One of them: where it begins in y, and how far it reaches.
struct Tile {
  std::int64_t at[3], channel;
  int rows, columns;  // points along the other axis, and along the last one

  __device__ Tile(const Volumes& v, const Tiling& tiling, std::int64_t index) {
    at[2] = index % tiling.last_tiles * kSide;
    index /= tiling.last_tiles;
    at[tiling.across] = index % tiling.across_tiles * kSide;
    index /= tiling.across_tiles;
    at[tiling.rest] = index % v.extent[tiling.rest];
    channel = index / v.extent[tiling.rest] * v.tile_channels.divisor();
    rows = static_cast<int>(min(std::int64_t{kSide}, v.extent[tiling.across] - at[tiling.across]));
    columns = static_cast<int>(min(std::int64_t{kSide}, v.extent[2] - at[2]));
  }
};

__device__ void load_tile(const Volumes& v, std::int64_t b, const Turn& turn, const Tiling& tiling, const Tile& tile,
                          float* shared) {
  const TurnWalk walk = walk_of(turn, v.extent);
  const std::int64_t start =
      walk.start + tile.at[0] * walk.step[0] + tile.at[1] * walk.step[1] + tile.at[2] * walk.step[2];
  for (int i = static_cast<int>(threadIdx.x); i < v.tile_channels.divisor() * kSide * kSide; i += kThreads) {
    const int fast = i % kSide, slow = i / kSide % kSide, c = i / (kSide * kSide);
    const int row = tiling.reads_along_last ? slow : fast, column = tiling.reads_along_last ? fast : slow;
    if (row >= tile.rows || column >= tile.columns || tile.channel + c >= v.channels) continue;
    const TurnSource source = source_of(turn, tile.channel + c, v.vector);
    const float* from = v.x + (b * v.channels + source.channel) * v.points();
    shared[c * kPitch + row * (kSide + 1) + column] =
        source.sign * from[start + row * walk.step[tiling.across] + column * walk.step[2]];
  }
}

__device__ void store_tile(const Volumes& v, std::int64_t b, const Tiling& tiling, const Tile& tile,
                           const float* shared, const Output& y) {
  const std::int64_t stride[3] = {v.extent[1] * v.extent[2], v.extent[2], 1};
  const std::int64_t first = b * v.points() + tile.at[0] * stride[0] + tile.at[1] * stride[1] + tile.at[2];
  for (int i = static_cast<int>(threadIdx.x); i < v.tile_channels.divisor() * kSide * kSide; i += kThreads) {
    const auto [point, c] = v.tile_channels.divide(i);
    const int row = point / kSide, column = point % kSide;
    if (row >= tile.rows || column >= tile.columns || tile.channel + c >= v.channels) continue;
    const float value[1] = {shared[c * kPitch + row * (kSide + 1) + column]};
    store(y, (first + row * stride[tiling.across] + column) * v.channels + tile.channel + c, 1, value);
  }
}

__global__ void __launch_bounds__(kThreads) turn_kernel(Volumes v, Output y) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (std::int64_t b = blockIdx.y; b < v.batch; b += gridDim.y) {
    const Turn turn = turn_of(v.turns != nullptr ? v.turns[b] : 0);
    const Tiling tiling(v, turn);
    for (std::int64_t index = blockIdx.x; index < tiling.count; index += gridDim.x) {
      const Tile tile(v, tiling, index);
      load_tile(v, b, turn, tiling, tile, shared);
      __syncthreads();
      store_tile(v, b, tiling, tile, shared, y);
      __syncthreads();  // the next tile overwrites this one
    }
  }
}

}  // namespace

void turn(const TurnArgs& a, Stream stream) {
  require_cuda_dtypes("turn", a.dtype);
  check_turn(a, nullptr);
  const std::int64_t points = a.extent[0] * a.extent[1] * a.extent[2];
  if (a.batch * a.channels * points == 0) return;
  const std::int64_t channel_tiles = ceil_div(a.channels, std::int64_t{kMaxChannels});
  const std::int64_t tile_channels = ceil_div(a.channels, channel_tiles);
  const std::int64_t tiles = ceil_div(points, std::int64_t{kSide * kSide}) * channel_tiles;  // about
  const Volumes volumes{.batch = a.batch,
                        .channels = a.channels,
                        .extent = {a.extent[0], a.extent[1], a.extent[2]},
                        .vector = a.vector,
                        .tile_channels = Divisor(tile_channels),
                        .channel_tiles = static_cast<int>(channel_tiles),
                        .x = a.x,
                        .turns = a.turns};
  launch("turn", turn_kernel,
         dim3(blocks_for(tiles, 1, grid_limit(kMaxBlocks)), blocks_for(a.batch, 1, grid_limit(1 << 15))),
         dim3(kThreads), sizeof(float) * kPitch * static_cast<std::size_t>(tile_channels), stream, volumes,
         output<1>(a.y, a.dtype));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
