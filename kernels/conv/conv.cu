// conv on CUDA: an implicit matrix product. The operands are gathered from where they lie, a tile at a time, into
// shared memory; no matrix of patches is made.
//
// Here is the choice between cuDNN's engines and isobar's kernels, of the product's kernel, and the one that multiplies
// by FMA, whatever the dtype and the shape.
#include "kernels/conv/conv.h"

#include <algorithm>

#include "kernels/conv/engines.h"
#include "kernels/conv/operands.cuh"
#include "kernels/conv/own.h"
#include "kernels/conv/parts.cuh"
#include "kernels/conv/tensor_core.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)
template <class Args>
bool conv_by_cudnn(const Args&, Stream) {
  return false;
}
#endif

// A block makes a tile of the result, a thread 4 x 4 elements of it.
constexpr int kTile = kConvTile, kStep = 16, kThreads = 256, kSide = 4;
constexpr int kThreadsOfRow = kTile / kSide;

struct Sizes {
  int m, n, k;
  int terms;     // that are added up by themselves
  float* parts;  // [parts, m, n], where each part has blocks of its own; else null
};

// Adds the product of terms [begin, end) to `sums`, which begin as zeros.
template <class Operands>
__device__ __forceinline__ void multiply_terms(const Operands& operands, const Sizes& sizes, int first_row,
                                               int first_column, int begin, int end, float (&sums)[kSide][kSide]) {
  __shared__ float a[kStep][kTile], b[kStep][kTile];
  constexpr int kLoaders = kThreads / kTile, kLoads = kStep / kLoaders;  // threads of a row, and terms of each
  const int lane = threadIdx.x / kLoaders, first_term = threadIdx.x % kLoaders * kLoads;
  const bool has_row = first_row + lane < sizes.m, has_column = first_column + lane < sizes.n;
  const auto row = operands.row(has_row ? first_row + lane : 0);
  const auto column = operands.column(has_column ? first_column + lane : 0);
  const int top = threadIdx.x / kThreadsOfRow * kSide, left = threadIdx.x % kThreadsOfRow * kSide;
  for (int step = begin; step < end; step += kStep) {
    __syncthreads();  // the tiles of the step before have been read
    for (int t = first_term; t < first_term + kLoads; ++t) {
      const bool has_term = step + t < end;
      a[t][lane] = has_term && has_row ? operands.a(row, step + t) : 0.0f;
      b[t][lane] = has_term && has_column ? operands.b(step + t, column) : 0.0f;
    }
    __syncthreads();
    for (int t = 0; t < kStep; ++t)
      for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j) sums[i][j] += a[t][top + i] * b[t][left + j];
  }
}

// The grid's y runs over the parts.
template <class Operands>
__global__ void __launch_bounds__(kThreads, 2)
    conv_product_kernel(Operands operands, Sizes sizes, ResultRows rows_of_result, ConvResult result) {
  const int columns = (sizes.n + kTile - 1) / kTile, rows = (sizes.m + kTile - 1) / kTile;
  const int begin = sizes.parts != nullptr ? static_cast<int>(blockIdx.y) * sizes.terms : 0;
  const int end = sizes.parts != nullptr && sizes.k - begin > sizes.terms ? begin + sizes.terms : sizes.k;
  for (std::int64_t tile = blockIdx.x; tile < std::int64_t{rows} * columns; tile += gridDim.x) {
    const int first_row = static_cast<int>(tile / columns) * kTile;
    const int first_column = static_cast<int>(tile % columns) * kTile;
    float total[kSide][kSide] = {};
    for (int part = begin; part < end; part += sizes.terms) {
      float sums[kSide][kSide] = {};
      multiply_terms(operands, sizes, first_row, first_column, part,
                     end - part < sizes.terms ? end : part + sizes.terms, sums);
      for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j) total[i][j] += sums[i][j];
    }
    const int top = first_row + threadIdx.x / kThreadsOfRow * kSide;
    const int left = first_column + threadIdx.x % kThreadsOfRow * kSide;
    for (int i = top; i < top + kSide && i < sizes.m; ++i) {
      if (sizes.parts != nullptr) {
        float* const to = sizes.parts + (std::int64_t{blockIdx.y} * sizes.m + i) * sizes.n;
        for (int j = left; j < left + kSide && j < sizes.n; ++j) to[j] = total[i - top][j - left];
      } else {
        const std::int64_t to = rows_of_result[i] * sizes.n;
        for (int j = left; j < left + kSide && j < sizes.n; ++j) {
          float sum[1] = {total[i - top][j - left]};
          result.put(to + j, j, 1, sum);
        }
      }
    }
  }
}

// `split` is that of the whole batch, for which the workspace is large enough.
template <class Operands>
void multiply(const char* name, const Operands& operands, const ConvProduct& p, const ConvSplit& split,
              const ResultRows& rows, const ConvResult& result, void* workspace, Stream stream) {
  const int parts = parts_of(p.k, split);
  const Sizes sizes = {.m = static_cast<int>(p.m),
                       .n = static_cast<int>(p.n),
                       .k = static_cast<int>(p.k),
                       .terms = static_cast<int>(split.terms),
                       .parts = parts > 1 ? static_cast<float*>(workspace) : nullptr};
  const dim3 grid(blocks_for(conv_tiles(p), 1, grid_limit(1 << 30)), parts);
  launch(name, conv_product_kernel<Operands>, grid, dim3(kThreads), 0, stream, operands, sizes, rows, result);
  if (parts > 1) add_parts({sizes.parts, parts, 0, sizes.m, sizes.n}, rows, result, stream);
}

Input samples_of(const void* data, DType dtype, std::int64_t first_element) {
  return input<1>(from_element(data, dtype, first_element), dtype);
}
Output samples_of(void* data, DType dtype, std::int64_t first_element) {
  return output<1>(from_element(data, dtype, first_element), dtype);
}

}  // namespace

void own_conv_fwd(const ConvFwdArgs& a, Stream stream) {
  if (conv_on_tensor_cores(a.shape, a.dtype, a.tf32)) return tensor_core_conv(a, stream);
  const ConvSplit split = conv_split(conv_fwd_product(a.shape));
  const Input weight = input<1>(a.weight, a.dtype);
  for_each_part(a.shape, [&](const ConvShape& s, std::int64_t first) {
    const Input x = samples_of(a.x, a.dtype, first * s.in_points() * s.in_channels);
    const ConvProduct product = conv_fwd_product(s);
    const FwdOperands operands{WindowView(conv_fwd_window(s), x, s.in_channels), weight, product.k};
    const ConvResult result{.out = samples_of(a.y, a.out_dtype, first * s.out_points() * s.out_channels),
                            .bias = input<1>(a.bias, DType::fp32),
                            .activation = a.activation};
    multiply("conv_fwd", operands, product, split, {}, result, a.workspace, stream);
  });
}

void own_conv_bwd_data(const ConvBwdDataArgs& a, Stream stream) {
  if (conv_on_tensor_cores(a.shape, a.dtype, a.tf32)) return tensor_core_conv(a, stream);
  const ConvSplit split = conv_split(conv_bwd_data_product(a.shape));
  const Input weight = input<1>(a.weight, a.dtype);
  for_each_part(a.shape, [&](const ConvShape& s, std::int64_t first) {
    const Input dy = samples_of(a.dy, a.dtype, first * s.out_points() * s.out_channels);
    const ConvResult result{.out = samples_of(a.dx, a.out_dtype, first * s.in_points() * s.in_channels),
                            .bias = input<1>(a.bias, DType::fp32),
                            .activation = a.activation,
                            .accumulates = a.mode == Grad::accumulate};
    for_each_class(s, [&](const ConvWindow& window, const ConvProduct& product) {
      const BwdDataOperands operands{WindowView(window, dy, s.out_channels), s, weight};
      multiply("conv_bwd_data", operands, product, split, ResultRows(window, s), result, a.workspace, stream);
    });
  });
}

void own_conv_bwd_weight(const ConvBwdWeightArgs& a, Stream stream) {
  if (conv_on_tensor_cores(a.shape, a.dtype, a.tf32)) return tensor_core_conv(a, stream);
  const ConvSplit split = conv_bwd_weight_split(conv_bwd_weight_product(a.shape));
  const auto add = [&](const ConvShape& s, std::int64_t first) {
    const Input x = samples_of(a.x, a.dtype, first * s.in_points() * s.in_channels);
    const Input dy = samples_of(a.dy, a.dtype, first * s.out_points() * s.out_channels);
    const BwdWeightOperands operands{WindowView(conv_fwd_window(s), x, s.in_channels), dy, s.out_channels};
    const ConvResult result{.out = output<1>(a.dweight, DType::fp32),
                            .accumulates = first > 0 || a.mode == Grad::accumulate};
    multiply("conv_bwd_weight", operands, conv_bwd_weight_product(s), split, {}, result, a.workspace, stream);
  };
  if (a.shape.batch == 0) return add(a.shape, 0);  // zeros, unless it accumulates
  for_each_part(a.shape, add);
}

void conv_fwd(const ConvFwdArgs& a, Stream stream) {
  check_conv(a);
  require_cuda_dtypes("conv_fwd", a.dtype, a.out_dtype);
  if (!conv_by_cudnn(a, stream)) own_conv_fwd(a, stream);
}

void conv_bwd_data(const ConvBwdDataArgs& a, Stream stream) {
  check_conv(a);
  require_cuda_dtypes("conv_bwd_data", a.dtype, a.out_dtype);
  if (!conv_by_cudnn(a, stream)) own_conv_bwd_data(a, stream);
}

void conv_bwd_weight(const ConvBwdWeightArgs& a, Stream stream) {
  check_conv(a);
  require_cuda_dtypes("conv_bwd_weight", a.dtype);
  if (!conv_by_cudnn(a, stream)) own_conv_bwd_weight(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
