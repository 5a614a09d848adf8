// layernorm on CUDA. Rows of up to 4096 columns, if they are aligned, are kept in registers by a group of warps: all of
// a row is loaded before the first use. A thread has the same columns of every row, and loads their weights once. The
// backward keeps its part of dweight and dbias in registers too; each block writes it once, and a second stage adds the
// parts in order. For all other rows, a block reads a row again in each of its passes.
#include "kernels/layernorm.h"

#include <type_traits>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 256, kWarps = kThreads / kWarpSize;

using ChunkValues = float[kChunk];

// Resident blocks per multiprocessor, for kernels that keep rows in registers.
constexpr int kFwdBlocks = 3;
template <class G>
constexpr int kBwdBlocks = G::kSlots <= 2   ? 3
                           : G::kSlots <= 3 ? 2
                                            : 1;

// ---- rows in registers ----------------------------------------------------------------------------------------------

// The threads that share a row. Each has up to kSlots chunks of it; column(slot) is the first column of a chunk.
template <int kWarpsOfGroup, int kSlotsOfThread>
struct Group {
  static constexpr int kSize = kWarpsOfGroup * kWarpSize, kPerBlock = kThreads / kSize;
  static constexpr int kSlots = kSlotsOfThread, kMaxCols = kSize * kSlots * kChunk;

  __device__ static int index() { return static_cast<int>(threadIdx.x) / kSize; }
  __device__ static int rank() { return static_cast<int>(threadIdx.x) % kSize; }
  __device__ static int column(int slot) { return (rank() + slot * kSize) * kChunk; }

  // Replaces each value by its sum over the group. All threads of a block call it together. Consecutive calls alternate
  // between `odd` and not `odd`: they use different memory, which saves a barrier.
  template <int kValues>
  __device__ static void sum(float (&value)[kValues], bool odd) {
    for (float& v : value) v = warp_sum(v);
    if constexpr (kWarpsOfGroup > 1) {
      __shared__ float of_warp[2][kWarps][kValues];
      const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
      if (threadIdx.x % kWarpSize == 0) {
        for (int k = 0; k < kValues; ++k) of_warp[odd][warp][k] = value[k];
      }
      __syncthreads();
      for (int k = 0; k < kValues; ++k) {
        value[k] = 0;
        for (int w = 0; w < kWarpsOfGroup; ++w) value[k] += of_warp[odd][index() * kWarpsOfGroup + w][k];
      }
    }
  }
};

template <class T>
using Raw = Chunk<T, kChunk>;

// This thread's chunks of a row, as in memory; zeros past the end.
template <class G, class T>
__device__ __forceinline__ void load_row(const T* row, int cols, Raw<T> (&to)[G::kSlots]) {
#pragma unroll
  for (int slot = 0; slot < G::kSlots; ++slot) {
    to[slot] = {};
    if (G::column(slot) < cols) to[slot] = load_chunk<kChunk>(row + G::column(slot));
  }
}

// Calls f(slot, column) for this thread's chunks of a row.
template <class G, class F>
__device__ __forceinline__ void for_each_owned(int cols, const F& f) {
#pragma unroll
  for (int slot = 0; slot < G::kSlots; ++slot) {
    if (G::column(slot) < cols) f(slot, G::column(slot));
  }
}

// Calls f(row, columns) for all rows, one per group at a time. In the last turn columns is 0 for a group without a row.
template <class G, class F>
__device__ __forceinline__ void for_each_row(std::int64_t rows, int cols, const F& f) {
  const std::int64_t step = std::int64_t{gridDim.x} * G::kPerBlock;
  for (std::int64_t first = std::int64_t{blockIdx.x} * G::kPerBlock; first < rows; first += step) {
    const std::int64_t row = first + G::index();
    f(row, row < rows ? cols : 0);
  }
}

// S is the type of the residual stream, T that of the branches.
template <class S, class T>
struct Forward {
  std::int64_t rows;
  int cols;
  float eps;
  const S* x;
  const T* branch;  // may be null
  const float* weight;
  const float* bias;
  S* sum;  // may be null
  T* y;
  float* mean;
  float* rstd;
};

template <class S, class T, class G>
__global__ void __launch_bounds__(kThreads, kFwdBlocks) layernorm_fwd_kernel(Forward<S, T> a) {
  Raw<float> weight[G::kSlots], bias[G::kSlots];
  load_row<G>(a.weight, a.cols, weight);
  load_row<G>(a.bias, a.cols, bias);
  for_each_row<G>(a.rows, a.cols, [&](std::int64_t row, int cols) {
    const std::int64_t start = row * a.cols;
    Raw<S> x[G::kSlots];
    Raw<T> branch[G::kSlots] = {};
    load_row<G>(a.x + start, cols, x);
    if (a.branch != nullptr) load_row<G>(a.branch + start, cols, branch);

    ChunkValues s[G::kSlots];
    float mean[1] = {0};
#pragma unroll
    for (int slot = 0; slot < G::kSlots; ++slot) {
      for (int k = 0; k < kChunk; ++k) {
        s[slot][k] = to_float(x[slot].value[k]);
        if (a.branch != nullptr) s[slot][k] = to_float(from_float<S>(s[slot][k] + to_float(branch[slot].value[k])));
        mean[0] += s[slot][k];
      }
    }
    G::sum(mean, false);
    mean[0] /= static_cast<float>(a.cols);

    float squares[1] = {0};
    for_each_owned<G>(cols, [&](int slot, int) {
      for (const float value : s[slot]) squares[0] += (value - mean[0]) * (value - mean[0]);
    });
    G::sum(squares, true);
    const float rstd = 1.0f / sqrtf(squares[0] / static_cast<float>(a.cols) + a.eps);

    for_each_owned<G>(cols, [&](int slot, int column) {
      if (a.sum != nullptr) store_chunk<kChunk>(a.sum + start + column, s[slot]);
      ChunkValues y;
      for (int k = 0; k < kChunk; ++k)
        y[k] = (s[slot][k] - mean[0]) * rstd * weight[slot].value[k] + bias[slot].value[k];
      store_chunk<kChunk>(a.y + start + column, y);
    });
    if (G::rank() == 0 && cols > 0) {
      a.mean[row] = mean[0];
      a.rstd[row] = rstd;
    }
  });
}

template <class S, class T>
struct Backward {
  std::int64_t rows;
  int cols;
  const T* dy;
  const S* x;
  const float* weight;
  const S* dsum;  // may be null
  S* dx;
  T* dbranch;  // may be null
  const float* mean;
  const float* rstd;
  float* dweight;  // [blocks, cols]
  float* dbias;    // [blocks, cols]
};

// Writes one block's part of a column sum: out[column] = the sum of `part` over the groups of the block, in order.
template <class G>
__device__ __forceinline__ void write_part(int cols, const ChunkValues (&part)[G::kSlots], float* out) {
  if constexpr (G::kPerBlock == 1) {
    for_each_owned<G>(cols, [&](int slot, int column) {
      for (int k = 0; k < kChunk; ++k) out[column + k] = part[slot][k];
    });
  } else {
    ISOBAR_DYNAMIC_SHARED(float, parts);  // [kPerBlock, cols]
    for_each_owned<G>(
        cols, [&](int slot, int column) { store_chunk<kChunk>(parts + G::index() * cols + column, part[slot]); });
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < cols; column += kThreads) {
      float total = 0;
      for (int g = 0; g < G::kPerBlock; ++g) total += parts[g * cols + column];
      out[column] = total;
    }
    __syncthreads();
  }
}

template <class S, class T, class G>
__global__ void __launch_bounds__(kThreads, kBwdBlocks<G>) layernorm_bwd_kernel(Backward<S, T> a) {
  Raw<float> weight[G::kSlots];
  load_row<G>(a.weight, a.cols, weight);
  ChunkValues dweight[G::kSlots] = {}, dbias[G::kSlots] = {};
  bool odd = false;
  for_each_row<G>(a.rows, a.cols, [&](std::int64_t row, int cols) {
    const std::int64_t start = row * a.cols;
    Raw<S> x[G::kSlots], dsum[G::kSlots] = {};
    Raw<T> dy[G::kSlots];
    load_row<G>(a.x + start, cols, x);
    load_row<G>(a.dy + start, cols, dy);
    if (a.dsum != nullptr) load_row<G>(a.dsum + start, cols, dsum);
    const float mean = cols > 0 ? a.mean[row] : 0.0f, rstd = cols > 0 ? a.rstd[row] : 0.0f;

    const auto h = [&](int slot, int k) { return (to_float(x[slot].value[k]) - mean) * rstd; };
    float means[2] = {0, 0};  // of g and of g·h; dy and weight are zero past the end
#pragma unroll
    for (int slot = 0; slot < G::kSlots; ++slot) {
      for (int k = 0; k < kChunk; ++k) {
        const float d = to_float(dy[slot].value[k]), g = d * weight[slot].value[k];
        means[0] += g;
        means[1] += g * h(slot, k);
        dweight[slot][k] += d * h(slot, k);
        dbias[slot][k] += d;
      }
    }
    G::sum(means, odd);
    odd = !odd;
    for (float& value : means) value /= static_cast<float>(a.cols);

    for_each_owned<G>(cols, [&](int slot, int column) {
      ChunkValues dx;
      for (int k = 0; k < kChunk; ++k) {
        const float g = to_float(dy[slot].value[k]) * weight[slot].value[k];
        dx[k] = rstd * (g - means[0] - h(slot, k) * means[1]);
        if (a.dsum != nullptr) dx[k] += to_float(dsum[slot].value[k]);
      }
      store_chunk<kChunk>(a.dx + start + column, dx);
      if (a.dbranch != nullptr) store_chunk<kChunk>(a.dbranch + start + column, dx);
    });
  });
  write_part<G>(a.cols, dweight, a.dweight + blockIdx.x * std::int64_t{a.cols});
  write_part<G>(a.cols, dbias, a.dbias + blockIdx.x * std::int64_t{a.cols});
}

// ---- any row --------------------------------------------------------------------------------------------------------

struct AnyForward {
  std::int64_t rows, cols;
  float eps;
  Input x, branch, weight, bias;  // branch.data may be null
  Output sum, y;                  // sum.data may be null
  float* mean;
  float* rstd;
};

// Calls f(column, count) for the chunks of a row that this thread of a block has.
template <class F>
__device__ __forceinline__ void for_each_in_row(std::int64_t cols, const F& f) {
  for (std::int64_t column = threadIdx.x * kChunk; column < cols; column += blockDim.x * kChunk) {
    f(column, cols - column < kChunk ? static_cast<int>(cols - column) : kChunk);
  }
}

// One chunk of s, rounded as if it were stored.
__device__ __forceinline__ void load_sum(const AnyForward& a, std::int64_t i, int count, ChunkValues& s) {
  load(a.x, i, count, s);
  if (a.branch.data == nullptr) return;
  ChunkValues branch;
  load(a.branch, i, count, branch);
  for (int k = 0; k < kChunk; ++k) s[k] = round_to(a.x.dtype, s[k] + branch[k]);
}

__global__ void __launch_bounds__(kThreads) any_layernorm_fwd_kernel(AnyForward a) {
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t start = row * a.cols;
    ChunkValues s;
    float total = 0;
    for_each_in_row(a.cols, [&](std::int64_t column, int count) {
      load_sum(a, start + column, count, s);
      for (int k = 0; k < kChunk; ++k) total += k < count ? s[k] : 0.0f;
    });
    const float mean = block_sum(total) / static_cast<float>(a.cols);

    float squares = 0;
    for_each_in_row(a.cols, [&](std::int64_t column, int count) {
      load_sum(a, start + column, count, s);
      for (int k = 0; k < kChunk; ++k) squares += k < count ? (s[k] - mean) * (s[k] - mean) : 0.0f;
    });
    const float rstd = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(a.cols) + a.eps);

    for_each_in_row(a.cols, [&](std::int64_t column, int count) {
      load_sum(a, start + column, count, s);
      if (a.sum.data != nullptr) store(a.sum, start + column, count, s);
      ChunkValues weight, bias;
      load(a.weight, column, count, weight);
      load(a.bias, column, count, bias);
      for (int k = 0; k < kChunk; ++k) s[k] = (s[k] - mean) * rstd * weight[k] + bias[k];
      store(a.y, start + column, count, s);
    });
    if (threadIdx.x == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
}

struct AnyBackward {
  std::int64_t rows, cols;
  Input dy, x, weight, dsum;  // dsum.data may be null
  Output dx, dbranch;         // dbranch.data may be null
  const float* mean;
  const float* rstd;
  float* dweight;  // [blocks, cols]
  float* dbias;    // [blocks, cols]
};

__global__ void __launch_bounds__(kThreads) any_layernorm_bwd_kernel(AnyBackward a) {
  float* const dweight = a.dweight + blockIdx.x * a.cols;
  float* const dbias = a.dbias + blockIdx.x * a.cols;
  for_each_in_row(a.cols, [&](std::int64_t column, int count) {
    for (int k = 0; k < count; ++k) dweight[column + k] = dbias[column + k] = 0;
  });
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t start = row * a.cols;
    const float mean = a.mean[row], rstd = a.rstd[row];
    ChunkValues h, dy, weight;  // normalised s, dy and the weight
    auto load_chunks = [&](std::int64_t column, int count) {
      load(a.x, start + column, count, h);
      load(a.dy, start + column, count, dy);
      load(a.weight, column, count, weight);
      for (float& value : h) value = (value - mean) * rstd;
    };

    float sum_g = 0, sum_gh = 0;
    for_each_in_row(a.cols, [&](std::int64_t column, int count) {
      load_chunks(column, count);
      for (int k = 0; k < count; ++k) {
        const float g = dy[k] * weight[k];
        sum_g += g;
        sum_gh += g * h[k];
        dweight[column + k] += dy[k] * h[k];
        dbias[column + k] += dy[k];
      }
    });
    const float mean_g = block_sum(sum_g) / static_cast<float>(a.cols);
    const float mean_gh = block_sum(sum_gh) / static_cast<float>(a.cols);

    for_each_in_row(a.cols, [&](std::int64_t column, int count) {
      load_chunks(column, count);
      ChunkValues dx, dsum;
      for (int k = 0; k < kChunk; ++k) dx[k] = rstd * (dy[k] * weight[k] - mean_g - h[k] * mean_gh);
      if (a.dsum.data != nullptr) {
        load(a.dsum, start + column, count, dsum);
        for (int k = 0; k < kChunk; ++k) dx[k] += dsum[k];
      }
      store(a.dx, start + column, count, dx);
      if (a.dbranch.data != nullptr) store(a.dbranch, start + column, count, dx);
    });
  }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

constexpr std::int64_t kMaxGroupCols = 4096;

// The number of threads for a block that takes any row: one chunk each if the row is short.
int any_threads(std::int64_t cols) {
  const std::int64_t wanted = round_up(ceil_div(cols, kChunk), kWarpSize);
  return static_cast<int>(wanted < kThreads ? wanted : kThreads);
}

// Calls f(Group{}) with the smallest group that holds a row.
template <class F>
void with_group(std::int64_t cols, const F& f) {
  using Widest = Group<8, 4>;
  static_assert(Widest::kMaxCols == kMaxGroupCols);
  if (cols <= Group<1, 3>::kMaxCols) {
    f(Group<1, 3>{});
  } else if (cols <= Group<4, 2>::kMaxCols) {
    f(Group<4, 2>{});
  } else {
    f(Widest{});
  }
}

// Calls f(Type<S>{}, Type<T>{}) with the types of the residual stream and of the branches.
template <class F>
void with_types(DType stream_dtype, DType dtype, const F& f) {
  visit_cuda_floating(dtype, [&]<class T>(Type<T> type) {
    if (stream_dtype == dtype) return f(type, type);
    if constexpr (sizeof(T) == 2) f(Type<float>{}, type);
  });
}

void check_dtypes(const char* kernel, DType stream_dtype, DType dtype) {
  require_cuda_dtypes(kernel, stream_dtype, dtype);
  ISOBAR_CHECK(stream_dtype == dtype || stream_dtype == DType::fp32, kernel, ": a stream of ", name_of(stream_dtype),
               " with branches of ", name_of(dtype), " is not supported");
}

}  // namespace

void layernorm_fwd(const LayernormFwdArgs& a, Stream stream) {
  check_dtypes("layernorm_fwd", a.stream_dtype, a.dtype);
  if (a.rows == 0) return;
  const AnyForward any = {.rows = a.rows,
                          .cols = a.cols,
                          .eps = static_cast<float>(a.eps),
                          .x = input<kChunk>(a.x, a.stream_dtype, a.cols),
                          .branch = input<kChunk>(a.branch, a.dtype, a.cols),
                          .weight = input<kChunk>(a.weight, DType::fp32, a.cols),
                          .bias = input<kChunk>(a.bias, DType::fp32, a.cols),
                          .sum = output<kChunk>(a.sum, a.stream_dtype, a.cols),
                          .y = output<kChunk>(a.y, a.dtype, a.cols),
                          .mean = static_cast<float*>(a.mean),
                          .rstd = static_cast<float*>(a.rstd)};
  if (a.cols > kMaxGroupCols || !all_packed(any.x, any.branch, any.weight, any.bias, any.sum, any.y)) {
    launch("layernorm_fwd", any_layernorm_fwd_kernel, dim3(blocks_for(a.rows, 1, grid_limit(1 << 14))),
           dim3(any_threads(a.cols)), 0, stream, any);
    return;
  }
  with_types(a.stream_dtype, a.dtype, [&]<class S, class T>(Type<S>, Type<T>) {
    const Forward<S, T> forward = {.rows = a.rows,
                                   .cols = static_cast<int>(a.cols),
                                   .eps = any.eps,
                                   .x = static_cast<const S*>(a.x),
                                   .branch = static_cast<const T*>(a.branch),
                                   .weight = static_cast<const float*>(a.weight),
                                   .bias = static_cast<const float*>(a.bias),
                                   .sum = static_cast<S*>(a.sum),
                                   .y = static_cast<T*>(a.y),
                                   .mean = any.mean,
                                   .rstd = any.rstd};
    with_group(a.cols, [&]<class G>(G) {
      launch("layernorm_fwd", layernorm_fwd_kernel<S, T, G>,
             dim3(resident_blocks(ceil_div(a.rows, G::kPerBlock), kFwdBlocks)), dim3(kThreads), 0, stream, forward);
    });
  });
}

void layernorm_bwd(const LayernormBwdArgs& a, Stream stream) {
  check_dtypes("layernorm_bwd", a.stream_dtype, a.dtype);
  float* const dweight_parts = static_cast<float*>(a.workspace);
  float* const dbias_parts = dweight_parts + kLayernormBlocks * a.cols;
  const AnyBackward any = {.rows = a.rows,
                           .cols = a.cols,
                           .dy = input<kChunk>(a.dy, a.dtype, a.cols),
                           .x = input<kChunk>(a.x, a.stream_dtype, a.cols),
                           .weight = input<kChunk>(a.weight, DType::fp32, a.cols),
                           .dsum = input<kChunk>(a.dsum, a.stream_dtype, a.cols),
                           .dx = output<kChunk>(a.dx, a.stream_dtype, a.cols),
                           .dbranch = output<kChunk>(a.dbranch, a.dtype, a.cols),
                           .mean = static_cast<const float*>(a.mean),
                           .rstd = static_cast<const float*>(a.rstd),
                           .dweight = dweight_parts,
                           .dbias = dbias_parts};
  int blocks = 0;  // number of blocks that write parts
  if (a.cols > kMaxGroupCols || !all_packed(any.dy, any.x, any.weight, any.dsum, any.dx, any.dbranch)) {
    blocks = resident_blocks(a.rows, 4, kLayernormBlocks);
    launch("layernorm_bwd", any_layernorm_bwd_kernel, dim3(blocks), dim3(any_threads(a.cols)), 0, stream, any);
  } else {
    with_types(a.stream_dtype, a.dtype, [&]<class S, class T>(Type<S>, Type<T>) {
      const Backward<S, T> backward = {.rows = a.rows,
                                       .cols = static_cast<int>(a.cols),
                                       .dy = static_cast<const T*>(a.dy),
                                       .x = static_cast<const S*>(a.x),
                                       .weight = static_cast<const float*>(a.weight),
                                       .dsum = static_cast<const S*>(a.dsum),
                                       .dx = static_cast<S*>(a.dx),
                                       .dbranch = static_cast<T*>(a.dbranch),
                                       .mean = any.mean,
                                       .rstd = any.rstd,
                                       .dweight = dweight_parts,
                                       .dbias = dbias_parts};
      with_group(a.cols, [&]<class G>(G) {
        blocks = resident_blocks(ceil_div(a.rows, G::kPerBlock), kBwdBlocks<G>, kLayernormBlocks);
        const std::size_t shared = G::kPerBlock > 1 ? G::kPerBlock * a.cols * sizeof(float) : 0;
        launch("layernorm_bwd", layernorm_bwd_kernel<S, T, G>, dim3(blocks), dim3(kThreads), shared, stream, backward);
      });
    });
  }
  partial_sums("layernorm_bwd: partial sums", blocks, a.cols, a.mode, stream,
               PartialSums{dweight_parts, static_cast<float*>(a.dweight)},
               PartialSums{dbias_parts, static_cast<float*>(a.dbias)});
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
