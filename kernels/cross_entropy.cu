// cross_entropy on CUDA. A group of threads takes a row: a warp for up to 1024 classes, a block for more. The forward
// reads the logits once; its second stage is one block that adds the rows' losses in order.
#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 256, kWarps = kThreads / 32;
constexpr std::int64_t kMaxWarpClasses = 1024;

struct WarpGroup {
  static constexpr int kSize = 32, kPerBlock = kWarps;
  __device__ static int index() { return threadIdx.x / 32; }
  __device__ static int rank() { return threadIdx.x % 32; }
  __device__ static float sum(float x) { return warp_sum(x); }
  __device__ static float max(float x) { return warp_max(x); }
  __device__ static int min(int x) { return warp_min(x); }
};

struct BlockGroup {
  static constexpr int kSize = kThreads, kPerBlock = 1;
  __device__ static int index() { return 0; }
  __device__ static int rank() { return threadIdx.x; }
  __device__ static float sum(float x) { return block_sum(x); }
  __device__ static float max(float x) { return block_max(x); }
  __device__ static int min(int x) { return block_min(x); }
};

// Calls f(row) for the rows of this thread's group.
template <class Group, class F>
__device__ __forceinline__ void for_each_row(std::int64_t rows, const F& f) {
  const std::int64_t step = std::int64_t{gridDim.x} * Group::kPerBlock;
  for (std::int64_t row = std::int64_t{blockIdx.x} * Group::kPerBlock + Group::index(); row < rows; row += step) f(row);
}

// Calls f(first class, count) for this thread's chunks of a row, in order.
template <class Group, class F>
__device__ __forceinline__ void for_each_owned(std::int64_t classes, const F& f) {
  for (std::int64_t c = Group::rank() * kChunk; c < classes; c += Group::kSize * kChunk) {
    f(c, classes - c < kChunk ? static_cast<int>(classes - c) : kChunk);
  }
}

// ---- forward --------------------------------------------------------------------------------------------------------

struct Forward {
  std::int64_t rows, classes, stride;  // classes that count, and columns of a row
  int ignore;
  Input logits;
  const std::int32_t* labels;
  float *max, *sum, *row_loss;
  std::int32_t* prediction;  // may be null
};

constexpr int kNoClass = std::numeric_limits<int>::max();

// The state after some logits of a row. The maximum begins at the lowest finite number, since -∞ - -∞ would be NaN. A
// NaN never becomes the maximum; it makes the sum NaN.
struct Running {
  float max = std::numeric_limits<float>::lowest();
  float sum = 0;        // of exp(x - max)
  int best = kNoClass;  // the first class that is above all before it

  __device__ void add(const float (&x)[kChunk], std::int64_t first_class, int count) {
    float greatest = best == kNoClass ? -std::numeric_limits<float>::infinity() : max;
    for (int k = 0; k < kChunk; ++k) {
      if (k < count && x[k] > greatest) {
        greatest = x[k];
        best = static_cast<int>(first_class) + k;
      }
    }
    if (greatest > max) {
      sum *= expf(max - greatest);
      max = greatest;
    }
    for (int k = 0; k < kChunk; ++k) sum += k < count ? expf(x[k] - max) : 0.0f;
  }
};

template <class Group>
__global__ void __launch_bounds__(kThreads) cross_entropy_fwd_kernel(Forward a) {
  for_each_row<Group>(a.rows, [&](std::int64_t row) {
    const int label = a.labels[row];
    float max = 0, sum = 0, loss = 0;
    int prediction = -1;
    if (label != a.ignore) {  // the same for the whole group
      Running mine;
      for_each_owned<Group>(a.classes, [&](std::int64_t c, int count) {
        float x[kChunk];
        load(a.logits, row * a.stride + c, count, x);
        mine.add(x, c, count);
      });
      max = Group::max(mine.max);
      sum = Group::sum(mine.sum * expf(mine.max - max));
      const int best = Group::min(mine.max == max ? mine.best : kNoClass);
      float at_label[1] = {std::numeric_limits<float>::quiet_NaN()};
      if (label >= 0 && label < a.classes) load(a.logits, row * a.stride + label, 1, at_label);
      loss = logf(sum) + (max - at_label[0]);
      if (sum == sum) prediction = best == kNoClass ? 0 : best;
    }
    if (Group::rank() == 0) {
      a.max[row] = max;
      a.sum[row] = sum;
      a.row_loss[row] = loss;
      if (a.prediction != nullptr) a.prediction[row] = prediction;
    }
  });
}

// One block: the mean of the rows' losses.
__global__ void __launch_bounds__(kThreads) mean_kernel(std::int64_t rows, int ignore, const std::int32_t* labels,
                                                        const float* row_loss, float* loss, std::int32_t* counted) {
  double total = 0;
  int count = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    total += row_loss[row];
    count += labels[row] != ignore ? 1 : 0;
  }
  total = block_sum(total);
  count = block_sum(count);
  if (threadIdx.x == 0) {
    *loss = static_cast<float>(total / count);
    *counted = count;
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

struct Backward {
  std::int64_t rows, classes, stride;  // classes that count, and columns of a row
  int ignore;
  Input logits;
  const std::int32_t* labels;
  const float *max, *sum;
  const std::int32_t* counted;
  double upstream;
  const float* device_upstream;  // may be null
  Output dlogits;
};

template <class Group>
__global__ void __launch_bounds__(kThreads) cross_entropy_bwd_kernel(Backward a) {
  const double upstream = a.device_upstream != nullptr ? a.upstream * *a.device_upstream : a.upstream;
  const float scale = static_cast<float>(upstream / *a.counted);
  for_each_row<Group>(a.rows, [&](std::int64_t row) {
    const int label = a.labels[row];
    const bool counts = label != a.ignore, is_valid = label >= 0 && label < a.classes;
    const float max = a.max[row];
    const float factor = is_valid ? scale / a.sum[row] : std::numeric_limits<float>::quiet_NaN();
    for_each_owned<Group>(a.stride, [&](std::int64_t c, int count) {
      float x[kChunk] = {};
      if (counts && c < a.classes) {
        const int read = a.classes - c < count ? static_cast<int>(a.classes - c) : count;
        load(a.logits, row * a.stride + c, read, x);
        for (int k = 0; k < kChunk; ++k)
          x[k] = k < read ? factor * expf(x[k] - max) - (c + k == label ? scale : 0.0f) : 0.0f;
      }
      store(a.dlogits, row * a.stride + c, count, x);
    });
  });
}

// ---- launch ---------------------------------------------------------------------------------------------------------

// Calls f(Group{}) with the group for a row.
template <class F>
void with_group(std::int64_t classes, const F& f) {
  if (classes <= kMaxWarpClasses) {
    f(WarpGroup{});
  } else {
    f(BlockGroup{});
  }
}

template <class Group>
dim3 grid_for(std::int64_t rows) {
  return dim3(blocks_for(rows, Group::kPerBlock, grid_limit(1 << 14)));
}

}  // namespace

void cross_entropy_fwd(const CrossEntropyFwdArgs& a, Stream stream) {
  require_cuda_dtypes("cross_entropy_fwd", a.dtype);
  const Forward forward = {.rows = a.rows,
                           .classes = a.classes - a.padding,
                           .stride = a.classes,
                           .ignore = a.ignore,
                           .logits = input<kChunk>(a.logits, a.dtype, a.classes),
                           .labels = a.labels,
                           .max = static_cast<float*>(a.max),
                           .sum = static_cast<float*>(a.sum),
                           .row_loss = static_cast<float*>(a.row_loss),
                           .prediction = a.prediction};
  with_group(a.classes, [&](auto group) {
    using Group = decltype(group);
    launch("cross_entropy_fwd", cross_entropy_fwd_kernel<Group>, grid_for<Group>(a.rows), dim3(kThreads), 0, stream,
           forward);
  });
  launch("cross_entropy_fwd: mean", mean_kernel, dim3(1), dim3(kThreads), 0, stream, a.rows, a.ignore, a.labels,
         forward.row_loss, static_cast<float*>(a.loss), a.counted);
}

void cross_entropy_bwd(const CrossEntropyBwdArgs& a, Stream stream) {
  require_cuda_dtypes("cross_entropy_bwd", a.dtype);
  const Backward backward = {.rows = a.rows,
                             .classes = a.classes - a.padding,
                             .stride = a.classes,
                             .ignore = a.ignore,
                             .logits = input<kChunk>(a.logits, a.dtype, a.classes),
                             .labels = a.labels,
                             .max = static_cast<const float*>(a.max),
                             .sum = static_cast<const float*>(a.sum),
                             .counted = a.counted,
                             .upstream = a.upstream,
                             .device_upstream = static_cast<const float*>(a.device_upstream),
                             .dlogits = output<kChunk>(a.dlogits, a.dtype, a.classes)};
  with_group(a.classes, [&](auto group) {
    using Group = decltype(group);
    launch("cross_entropy_bwd", cross_entropy_bwd_kernel<Group>, grid_for<Group>(a.rows), dim3(kThreads), 0, stream,
           backward);
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
