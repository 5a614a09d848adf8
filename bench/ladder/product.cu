// The ladder of the matrix product on a GPU. Compiled by nvcc, and by the host compiler against the emulator
// (bench/ladder/emulated.cc).
#include "bench/ladder/product.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

unsigned pieces_of(std::int64_t n, std::int64_t piece) {
  return static_cast<unsigned>(ceil_div(n, piece));
}

// ---- 1. a thread for each number of C -------------------------------------------------------------------------------

// The definition, with threads in place of the two outer loops. The lanes of a warp have neighbouring columns: B is
// read coalesced, and of A all lanes want the same number, one sector. But each multiply-add loads two numbers: 8 bytes
// for 2 operations. B is read once for each row of C, m times in all; caches catch some of that.
constexpr int kNaiveThreads = 128;

__global__ void product_naive_kernel(ProductArgs p) {
  const std::int64_t row = blockIdx.x, column = std::int64_t{blockIdx.y} * kNaiveThreads + threadIdx.x;
  if (column >= p.n) return;
  float sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) sum += p.a[row * p.k + k] * p.b[k * p.n + column];
  p.c[row * p.n + column] = sum;
}

// ---- 2. tiles in shared memory --------------------------------------------------------------------------------------

// A block computes a square of 16 x 16 numbers of C. All of its threads together load a square of A and one of B, wait
// for each other, and multiply from shared memory: each number that was loaded is used 16 times. The second barrier is
// needed because the next squares overwrite these. Memory has 1/16 of the work; but each multiply-add still loads two
// numbers, now from shared memory.
constexpr int kSquare = 16;

__global__ void product_shared_kernel(ProductArgs p) {
  __shared__ float a[kSquare][kSquare], b[kSquare][kSquare];
  const int x = static_cast<int>(threadIdx.x) % kSquare, y = static_cast<int>(threadIdx.x) / kSquare;
  const std::int64_t row = std::int64_t{blockIdx.x} * kSquare + y, column = std::int64_t{blockIdx.y} * kSquare + x;
  float sum = 0;
  for (std::int64_t k = 0; k < p.k; k += kSquare) {
    a[y][x] = row < p.m && k + x < p.k ? p.a[row * p.k + k + x] : 0.0f;
    b[y][x] = column < p.n && k + y < p.k ? p.b[(k + y) * p.n + column] : 0.0f;
    __syncthreads();
    for (int step = 0; step < kSquare; ++step) sum += a[y][step] * b[step][x];
    __syncthreads();
  }
  if (row < p.m && column < p.n) p.c[row * p.n + column] = sum;
}

// ---- 3. tiles in registers ------------------------------------------------------------------------------------------

// The idea of the CPU's third rung, one floor further in: a thread has 4 x 4 numbers of C. A step of k loads 4 numbers
// of A and, with one instruction, 4 of B, for 16 multiply-adds. A block of 256 threads has 64 x 64 numbers of C, so
// that memory has 1/64 of the work of rung 1.
//
// Rows of the tiles are longer than what they hold. A row of A begins 20 banks behind the row before, one of B 8 banks:
// then the lanes of rungs 3 to 5 find their numbers in different banks (lab/accesses counts it).
//
// kTileBlocks is for ptxas: with at least two blocks a multiprocessor a thread may have 128 registers. Without a word
// it saves registers, and spills one of rung 4's.
constexpr int kTile = 64, kDepth = 16, kEach = 4, kTileThreads = 256, kTileBlocks = 2;

struct Tiles {
  float a[kTile][kDepth + 4];
  float b[kDepth][kTile + 8];
};

// sums += the thread's rows of A times its columns of B.
__device__ __forceinline__ void add_tile(const Tiles& tiles, int first_row, int first_column,
                                         float (&sums)[kEach][kEach]) {
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const Chunk<float, kEach> b = load_chunk<kEach>(&tiles.b[k][first_column]);  // one load of 16 bytes
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float a = tiles.a[first_row + i][k];
      for (int j = 0; j < kEach; ++j) sums[i][j] += a * b.value[j];
    }
  }
}

__device__ __forceinline__ void store_sums(const ProductArgs& p, std::int64_t row, std::int64_t column,
                                           const float (&sums)[kEach][kEach]) {
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j)
      if (row + i < p.m && column + j < p.n) p.c[(row + i) * p.n + column + j] = sums[i][j];
}

__global__ void __launch_bounds__(kTileThreads, kTileBlocks) product_registers_kernel(ProductArgs p) {
  __shared__ __align__(16) Tiles tiles;
  const std::int64_t row = std::int64_t{blockIdx.x} * kTile, column = std::int64_t{blockIdx.y} * kTile;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = thread / 16 * kEach, first_column = thread % 16 * kEach;
  float sums[kEach][kEach] = {};
  for (std::int64_t k = 0; k < p.k; k += kDepth) {
    for (int i = thread; i < kTile * kDepth; i += kTileThreads) {
      const int r = i / kDepth, c = i % kDepth;
      tiles.a[r][c] = row + r < p.m && k + c < p.k ? p.a[(row + r) * p.k + k + c] : 0.0f;
    }
    for (int i = thread; i < kDepth * kTile; i += kTileThreads) {
      const int r = i / kTile, c = i % kTile;
      tiles.b[r][c] = k + r < p.k && column + c < p.n ? p.b[(k + r) * p.n + column + c] : 0.0f;
    }
    __syncthreads();
    add_tile(tiles, first_row, first_column, sums);
    __syncthreads();
  }
  store_sums(p, row + first_row, column + first_column, sums);
}

// ---- 4. copies beside the products ----------------------------------------------------------------------------------

// In rung 3 a block waits for its loads, then multiplies, then waits again. Here are two pairs of tiles, and cp.async
// fills one while the products read the other: it copies 16 bytes from memory to shared memory past the registers, and
// the thread goes on. cp_async_wait<1> waits for all groups of copies but the youngest. 16 bytes at once is 4 numbers
// that begin at a multiple of 4: n and k must be multiples of 4.
template <int kThreads>
__device__ __forceinline__ void start_copy(const ProductArgs& p, std::int64_t row, std::int64_t column, std::int64_t k,
                                           Tiles& to) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth / 4; i += kThreads) {
    const int r = i / (kDepth / 4), c = i % (kDepth / 4) * 4;
    cp_async_16(&to.a[r][c], p.a + (row + r) * p.k + k + c, row + r < p.m && k + c < p.k);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile / 4; i += kThreads) {
    const int r = i / (kTile / 4), c = i % (kTile / 4) * 4;
    cp_async_16(&to.b[r][c], p.b + (k + r) * p.n + column + c, k + r < p.k && column + c < p.n);
  }
}

// Calls multiply(tiles) for each piece of k, while the next piece is copied.
template <int kThreads, class Multiply>
__device__ __forceinline__ void for_each_piece(const ProductArgs& p, std::int64_t row, std::int64_t column,
                                               Tiles (&tiles)[2], const Multiply& multiply) {
  start_copy<kThreads>(p, row, column, 0, tiles[0]);
  cp_async_commit();
  int now = 0;
  for (std::int64_t k = 0; k < p.k; k += kDepth, now = 1 - now) {
    if (k + kDepth < p.k) start_copy<kThreads>(p, row, column, k + kDepth, tiles[1 - now]);
    cp_async_commit();  // an empty group at the end, so that the wait below is always for the same number
    cp_async_wait<1>();
    __syncthreads();
    multiply(tiles[now]);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kTileThreads, kTileBlocks) product_async_kernel(ProductArgs p) {
  __shared__ __align__(16) Tiles tiles[2];
  const std::int64_t row = std::int64_t{blockIdx.x} * kTile, column = std::int64_t{blockIdx.y} * kTile;
  const int first_row = static_cast<int>(threadIdx.x) / 16 * kEach;
  const int first_column = static_cast<int>(threadIdx.x) % 16 * kEach;
  float sums[kEach][kEach] = {};
  for_each_piece<kTileThreads>(p, row, column, tiles,
                               [&](const Tiles& now) { add_tile(now, first_row, first_column, sums); });
  store_sums(p, row + first_row, column + first_column, sums);
}

// ---- 5. tensor cores ------------------------------------------------------------------------------------------------

// mma.sync multiplies 16 x 8 by 8 x 8 numbers with one instruction of a warp, 1024 multiply-adds, where rung 4 needs 32
// instructions for as many. The lanes hold the operands together, in an order that the instruction dictates
// (kernels/cuda/mma.h): lane l has g = l / 4 and t = l % 4. The price is exactness: operands are rounded to the 10 bits
// of tf32. Sums are fp32. The four warps of a block have 32 x 32 numbers of its 64 x 64 each, as 2 x 4 results of
// mma.sync.
constexpr int kTensorThreads = 128, kDown = 2, kAcross = 4;

__device__ __forceinline__ void add_on_tensor_cores(const Tiles& tiles, int first_row, int first_column, int g, int t,
                                                    float (&sums)[kDown][kAcross][4]) {
  for (int k = 0; k < kDepth; k += 8) {
    std::uint32_t a[kDown][4], b[kAcross][2];
#pragma unroll
    for (int i = 0; i < kDown; ++i)
      for (int part = 0; part < 4; ++part)
        a[i][part] = to_tf32(tiles.a[first_row + 16 * i + g + 8 * (part % 2)][k + t + 4 * (part / 2)]);
#pragma unroll
    for (int j = 0; j < kAcross; ++j)
      for (int part = 0; part < 2; ++part) b[j][part] = to_tf32(tiles.b[k + t + 4 * part][first_column + 8 * j + g]);
#pragma unroll
    for (int i = 0; i < kDown; ++i)
      for (int j = 0; j < kAcross; ++j) mma_1688(sums[i][j], a[i], b[j], sums[i][j]);
  }
}

__global__ void __launch_bounds__(kTensorThreads) product_tensor_kernel(ProductArgs p) {
  __shared__ __align__(16) Tiles tiles[2];
  const std::int64_t row = std::int64_t{blockIdx.x} * kTile, column = std::int64_t{blockIdx.y} * kTile;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_row = warp / 2 * 32, first_column = warp % 2 * 32, g = lane / 4, t = lane % 4;
  float sums[kDown][kAcross][4] = {};
  for_each_piece<kTensorThreads>(
      p, row, column, tiles, [&](const Tiles& now) { add_on_tensor_cores(now, first_row, first_column, g, t, sums); });
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    for (int j = 0; j < kAcross; ++j) {
      for (int part = 0; part < 4; ++part) {
        const std::int64_t r = row + first_row + 16 * i + g + 8 * (part / 2);
        const std::int64_t c = column + first_column + 8 * j + 2 * t + part % 2;
        if (r < p.m && c < p.n) p.c[r * p.n + c] = sums[i][j][part];
      }
    }
  }
}

}  // namespace

// ---- launch ---------------------------------------------------------------------------------------------------------

void product_naive(const ProductArgs& p, Stream stream) {
  launch("product_naive", product_naive_kernel, dim3(pieces_of(p.m, 1), pieces_of(p.n, kNaiveThreads)),
         dim3(kNaiveThreads), 0, stream, p);
}

void product_shared(const ProductArgs& p, Stream stream) {
  launch("product_shared", product_shared_kernel, dim3(pieces_of(p.m, kSquare), pieces_of(p.n, kSquare)),
         dim3(kSquare * kSquare), 0, stream, p);
}

void product_registers(const ProductArgs& p, Stream stream) {
  launch("product_registers", product_registers_kernel, dim3(pieces_of(p.m, kTile), pieces_of(p.n, kTile)),
         dim3(kTileThreads), 0, stream, p);
}

namespace {
void check_multiples(const char* rung, const ProductArgs& p) {
  ISOBAR_CHECK(p.n % 4 == 0 && p.k % 4 == 0, rung, " copies four numbers at once: n and k must be multiples of 4, not ",
               p.n, " and ", p.k);
}
}  // namespace

void product_async(const ProductArgs& p, Stream stream) {
  check_multiples("product_async", p);
  launch("product_async", product_async_kernel, dim3(pieces_of(p.m, kTile), pieces_of(p.n, kTile)), dim3(kTileThreads),
         0, stream, p);
}

void product_tensor(const ProductArgs& p, Stream stream) {
  check_multiples("product_tensor", p);
  launch("product_tensor", product_tensor_kernel, dim3(pieces_of(p.m, kTile), pieces_of(p.n, kTile)),
         dim3(kTensorThreads), 0, stream, p);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
