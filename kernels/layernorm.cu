// layernorm on CUDA. A row belongs to a group of threads, a warp up to 1024 columns and a block beyond, that keeps it
// in registers (rows of more than 8192 columns are read again instead). The backward gives each block a range of rows;
// the block keeps its part of dweight and dbias in registers too and writes it once; a second stage adds the parts in
// order.
#include "kernels/layernorm.h"

#include <type_traits>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 256, kWarps = kThreads / 32;
constexpr std::int64_t kMaxWarpCols = 8 * 32 * kChunk, kMaxBlockCols = 8 * kThreads * kChunk;

using ChunkValues = float[kChunk];

struct WarpGroup {
  static constexpr int kSize = 32, kPerBlock = kWarps;
  __device__ static int index() { return threadIdx.x / 32; }
  __device__ static int rank() { return threadIdx.x % 32; }
  __device__ static float sum(float x) { return warp_sum(x); }
};

struct BlockGroup {
  static constexpr int kSize = kThreads, kPerBlock = 1;
  __device__ static int index() { return 0; }
  __device__ static int rank() { return threadIdx.x; }
  __device__ static float sum(float x) { return block_sum(x); }
};

// Calls f(slot, column, count) for the chunks of a row that this thread owns. kKept bounds their number, so that arrays
// indexed by slot can live in registers; 0: any number, all with slot 0.
template <class Group, int kKept, class F>
__device__ __forceinline__ void for_each_owned(std::int64_t cols, const F& f) {
  const std::int64_t first = Group::rank() * kChunk, step = Group::kSize * kChunk;
  auto visit = [&](int slot, std::int64_t column) {
    const std::int64_t left = cols - column;
    if (left > 0) f(slot, column, left < kChunk ? static_cast<int>(left) : kChunk);
  };
  if constexpr (kKept > 0) {
#pragma unroll
    for (int slot = 0; slot < kKept; ++slot) visit(slot, first + slot * step);
  } else {
    for (std::int64_t column = first; column < cols; column += step) visit(0, column);
  }
}

constexpr int slots(int kept) {
  return kept > 0 ? kept : 1;
}

// ---- forward --------------------------------------------------------------------------------------------------------

struct Forward {
  std::int64_t rows, cols;
  float eps;
  Input x, branch, weight, bias;  // branch.data may be null
  Output sum, y;                  // sum.data may be null
  float* mean;
  float* rstd;
};

// One chunk of s, rounded as memory would hold it.
__device__ __forceinline__ void load_sum(const Forward& a, std::int64_t i, int count, ChunkValues& s) {
  load(a.x, i, count, s);
  if (a.branch.data == nullptr) return;
  ChunkValues branch;
  load(a.branch, i, count, branch);
  for (int k = 0; k < kChunk; ++k) s[k] = round_to(a.x.dtype, s[k] + branch[k]);
}

template <class Group, int kKept>
__global__ void __launch_bounds__(kThreads, 3) layernorm_fwd_kernel(Forward a) {
  ChunkValues kept[slots(kKept)];
  const std::int64_t step = std::int64_t{gridDim.x} * Group::kPerBlock;
  for (std::int64_t row = std::int64_t{blockIdx.x} * Group::kPerBlock + Group::index(); row < a.rows; row += step) {
    const std::int64_t start = row * a.cols;

    float total = 0;
    for_each_owned<Group, kKept>(a.cols, [&](int slot, std::int64_t column, int count) {
      ChunkValues& s = kept[slot];
      load_sum(a, start + column, count, s);
      for (int k = 0; k < kChunk; ++k) total += k < count ? s[k] : 0.0f;
    });
    const float mean = Group::sum(total) / static_cast<float>(a.cols);

    float squares = 0;
    for_each_owned<Group, kKept>(a.cols, [&](int slot, std::int64_t column, int count) {
      ChunkValues& s = kept[slot];
      if constexpr (kKept == 0) load_sum(a, start + column, count, s);
      for (int k = 0; k < kChunk; ++k) squares += k < count ? (s[k] - mean) * (s[k] - mean) : 0.0f;
    });
    const float rstd = 1.0f / sqrtf(Group::sum(squares) / static_cast<float>(a.cols) + a.eps);

    for_each_owned<Group, kKept>(a.cols, [&](int slot, std::int64_t column, int count) {
      ChunkValues& s = kept[slot];
      if constexpr (kKept == 0) load_sum(a, start + column, count, s);
      if (a.sum.data != nullptr) store(a.sum, start + column, count, s);
      ChunkValues weight, bias;
      load(a.weight, column, count, weight);
      load(a.bias, column, count, bias);
      for (int k = 0; k < kChunk; ++k) s[k] = (s[k] - mean) * rstd * weight[k] + bias[k];
      store(a.y, start + column, count, s);
    });
    if (Group::rank() == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

struct Backward {
  std::int64_t rows, cols, rows_per_block;
  Input dy, x, weight, dsum;  // dsum.data may be null
  Output dx, dbranch;         // dbranch.data may be null
  const float* mean;
  const float* rstd;
  float* dweight;  // [blocks, cols]
  float* dbias;    // [blocks, cols]
};

// Zero in one block's parts of both column sums, each thread where it will add.
template <class Group>
__device__ __forceinline__ void clear_parts(std::int64_t cols, float* dweight, float* dbias) {
  for_each_owned<Group, 0>(cols, [&](int, std::int64_t column, int count) {
    for (int k = 0; k < kChunk; ++k) {
      if (k < count) dweight[column + k] = dbias[column + k] = 0;
    }
  });
}

// Writes one block's part of a column sum: out[column] = the sum of `part` over the groups of the block, in order.
template <class Group, int kKept>
__device__ __forceinline__ void write_part(std::int64_t cols, const ChunkValues (&part)[slots(kKept)], float* out) {
  if constexpr (Group::kPerBlock == 1) {
    for_each_owned<Group, kKept>(cols, [&](int slot, std::int64_t column, int count) {
      for (int k = 0; k < kChunk; ++k) {
        if (k < count) out[column + k] = part[slot][k];
      }
    });
  } else {
    ISOBAR_DYNAMIC_SHARED(float, parts);  // [kPerBlock, cols]
    for_each_owned<Group, kKept>(cols, [&](int slot, std::int64_t column, int count) {
      for (int k = 0; k < kChunk; ++k) {
        if (k < count) parts[Group::index() * cols + column + k] = part[slot][k];
      }
    });
    __syncthreads();
    for (std::int64_t column = threadIdx.x; column < cols; column += kThreads) {
      float total = 0;
      for (int g = 0; g < Group::kPerBlock; ++g) total += parts[g * cols + column];
      out[column] = total;
    }
    __syncthreads();
  }
}

template <class Group, int kKept>
__global__ void __launch_bounds__(kThreads) layernorm_bwd_kernel(Backward a) {
  ChunkValues h[slots(kKept)], dy[slots(kKept)];  // normalised s, and dy
  ChunkValues dweight[slots(kKept)] = {}, dbias[slots(kKept)] = {};
  float* const block_dweight = a.dweight + blockIdx.x * a.cols;
  float* const block_dbias = a.dbias + blockIdx.x * a.cols;
  if constexpr (kKept == 0) clear_parts<Group>(a.cols, block_dweight, block_dbias);

  const std::int64_t first_row = blockIdx.x * a.rows_per_block;
  const std::int64_t end_row = min(a.rows, first_row + a.rows_per_block);
  for (std::int64_t row = first_row + Group::index(); row < end_row; row += Group::kPerBlock) {
    const std::int64_t start = row * a.cols;
    const float mean = a.mean[row], rstd = a.rstd[row];
    auto load_row = [&](int slot, std::int64_t column, int count) {
      load(a.x, start + column, count, h[slot]);
      load(a.dy, start + column, count, dy[slot]);
      for (float& value : h[slot]) value = (value - mean) * rstd;
    };

    float sum_g = 0, sum_gh = 0;
    for_each_owned<Group, kKept>(a.cols, [&](int slot, std::int64_t column, int count) {
      load_row(slot, column, count);
      ChunkValues weight;
      load(a.weight, column, count, weight);  // dy and weight are zero beyond the end
      for (int k = 0; k < kChunk; ++k) {
        const float g = dy[slot][k] * weight[k];
        sum_g += g;
        sum_gh += g * h[slot][k];
        if constexpr (kKept > 0) {
          dweight[slot][k] += dy[slot][k] * h[slot][k];
          dbias[slot][k] += dy[slot][k];
        } else if (k < count) {
          block_dweight[column + k] += dy[slot][k] * h[slot][k];
          block_dbias[column + k] += dy[slot][k];
        }
      }
    });
    const float mean_g = Group::sum(sum_g) / static_cast<float>(a.cols);
    const float mean_gh = Group::sum(sum_gh) / static_cast<float>(a.cols);

    for_each_owned<Group, kKept>(a.cols, [&](int slot, std::int64_t column, int count) {
      if constexpr (kKept == 0) load_row(slot, column, count);
      ChunkValues weight, dx, dsum;
      load(a.weight, column, count, weight);
      for (int k = 0; k < kChunk; ++k) dx[k] = rstd * (dy[slot][k] * weight[k] - mean_g - h[slot][k] * mean_gh);
      if (a.dsum.data != nullptr) {
        load(a.dsum, start + column, count, dsum);
        for (int k = 0; k < kChunk; ++k) dx[k] += dsum[k];
      }
      store(a.dx, start + column, count, dx);
      if (a.dbranch.data != nullptr) store(a.dbranch, start + column, count, dx);
    });
  }

  if constexpr (kKept > 0) {
    write_part<Group, kKept>(a.cols, dweight, block_dweight);
    write_part<Group, kKept>(a.cols, dbias, block_dbias);
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

// Calls f(Group{}, integral_constant<kKept>) with the smallest group and number of kept chunks that hold a row.
template <class F>
void with_group(std::int64_t cols, const F& f) {
  if (cols <= 3 * 32 * kChunk) {
    f(WarpGroup{}, std::integral_constant<int, 3>{});
  } else if (cols <= kMaxWarpCols) {
    f(WarpGroup{}, std::integral_constant<int, 8>{});
  } else if (cols <= kMaxBlockCols) {
    f(BlockGroup{}, std::integral_constant<int, 8>{});
  } else {
    f(BlockGroup{}, std::integral_constant<int, 0>{});
  }
}

void check_dtypes(const char* kernel, DType stream_dtype, DType dtype) {
  require_cuda_dtypes(kernel, stream_dtype, dtype);
  ISOBAR_CHECK(stream_dtype == dtype || stream_dtype == DType::fp32, kernel, ": a stream of ", name_of(stream_dtype),
               " with branches of ", name_of(dtype), " is not supported");
}

}  // namespace

void layernorm_fwd(const LayernormFwd& a, Stream stream) {
  check_dtypes("layernorm_fwd", a.stream_dtype, a.dtype);
  if (a.rows == 0) return;
  const Forward forward = {.rows = a.rows,
                           .cols = a.cols,
                           .eps = static_cast<float>(a.eps),
                           .x = input<kChunk>(a.x, a.stream_dtype, a.cols),
                           .branch = input<kChunk>(a.branch, a.dtype, a.cols),
                           .weight = input<kChunk>(a.weight, DType::fp32),
                           .bias = input<kChunk>(a.bias, DType::fp32),
                           .sum = output<kChunk>(a.sum, a.stream_dtype, a.cols),
                           .y = output<kChunk>(a.y, a.dtype, a.cols),
                           .mean = static_cast<float*>(a.mean),
                           .rstd = static_cast<float*>(a.rstd)};
  with_group(a.cols, [&](auto group, auto kept) {
    using Group = decltype(group);
    launch("layernorm_fwd", layernorm_fwd_kernel<Group, kept.value>,
           dim3(blocks_for(a.rows, Group::kPerBlock, grid_limit(1 << 14))), dim3(kThreads), 0, stream, forward);
  });
}

void layernorm_bwd(const LayernormBwd& a, Stream stream) {
  check_dtypes("layernorm_bwd", a.stream_dtype, a.dtype);
  const int blocks = a.rows == 0 ? 0 : blocks_for(a.rows, kWarps, grid_limit(kLayernormBlocks));
  float* const parts = static_cast<float*>(a.workspace);
  float* const dbias_parts = parts + blocks * a.cols;
  if (a.rows > 0) {
    const Backward backward = {.rows = a.rows,
                               .cols = a.cols,
                               .rows_per_block = ceil_div(a.rows, blocks),
                               .dy = input<kChunk>(a.dy, a.dtype, a.cols),
                               .x = input<kChunk>(a.x, a.stream_dtype, a.cols),
                               .weight = input<kChunk>(a.weight, DType::fp32),
                               .dsum = input<kChunk>(a.dsum, a.stream_dtype, a.cols),
                               .dx = output<kChunk>(a.dx, a.stream_dtype, a.cols),
                               .dbranch = output<kChunk>(a.dbranch, a.dtype, a.cols),
                               .mean = static_cast<const float*>(a.mean),
                               .rstd = static_cast<const float*>(a.rstd),
                               .dweight = parts,
                               .dbias = dbias_parts};
    with_group(a.cols, [&](auto group, auto kept) {
      using Group = decltype(group);
      const std::size_t shared = Group::kPerBlock > 1 ? Group::kPerBlock * a.cols * sizeof(float) : 0;
      launch("layernorm_bwd", layernorm_bwd_kernel<Group, kept.value>, dim3(blocks), dim3(kThreads), shared, stream,
             backward);
    });
  }
  partial_sums("layernorm_bwd: dweight", parts, blocks, a.cols, static_cast<float*>(a.dweight), a.mode, stream);
  partial_sums("layernorm_bwd: dbias", dbias_parts, blocks, a.cols, static_cast<float*>(a.dbias), a.mode, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
