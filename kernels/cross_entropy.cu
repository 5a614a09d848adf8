// cross_entropy on CUDA. A group of threads takes a row: a warp for up to 1024 classes, a block for more. The forward
// reads the logits once; its second stage is one block that adds the rows' losses in order. Where ranks share the
// columns, a third kernel between the two makes rows of the parts of all ranks, a thread a row.
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

// Of a row, for every thread of the group. best: kNoClass if no logit is above -∞.
struct RowStatistics {
  float max, sum;
  int best;
};

template <class Group>
__device__ __forceinline__ RowStatistics statistics_of(const Input& logits, std::int64_t begin, std::int64_t classes) {
  Running mine;
  for_each_owned<Group>(classes, [&](std::int64_t c, int count) {
    float x[kChunk];
    load(logits, begin + c, count, x);
    mine.add(x, c, count);
  });
  RowStatistics row;
  row.max = Group::max(mine.max);
  row.sum = Group::sum(mine.sum * expf(mine.max - row.max));
  row.best = Group::min(mine.max == row.max ? mine.best : kNoClass);
  return row;
}

__device__ __forceinline__ int prediction_of(float sum, int best) {
  if (!(sum == sum)) return -1;
  return best == kNoClass ? 0 : best;
}

template <class Group>
__global__ void __launch_bounds__(kThreads) cross_entropy_fwd_kernel(Forward a) {
  for_each_row<Group>(a.rows, [&](std::int64_t row) {
    const int label = a.labels[row];
    float max = 0, sum = 0, loss = 0;
    int prediction = -1;
    if (label != a.ignore) {  // the same for the whole group
      const RowStatistics whole = statistics_of<Group>(a.logits, row * a.stride, a.classes);
      max = whole.max;
      sum = whole.sum;
      float at_label[1] = {std::numeric_limits<float>::quiet_NaN()};
      if (label >= 0 && label < a.classes) load(a.logits, row * a.stride + label, 1, at_label);
      loss = logf(sum) + (max - at_label[0]);
      prediction = prediction_of(sum, whole.best);
    }
    if (Group::rank() == 0) {
      a.max[row] = max;
      a.sum[row] = sum;
      a.row_loss[row] = loss;
      if (a.prediction != nullptr) a.prediction[row] = prediction;
    }
  });
}

// The losses of the rows, which one block adds up.
struct Losses {
  std::int64_t rows;
  int ignore;
  const std::int32_t* labels;
  const float* row_loss;

  // For every thread: their sum, and the number of rows that count.
  __device__ __forceinline__ void add_up(double& total, int& count) const {
    double mine = 0;
    int counted = 0;
    for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
      mine += row_loss[row];
      counted += labels[row] != ignore ? 1 : 0;
    }
    total = block_sum(mine);
    count = block_sum(counted);
  }
};

__global__ void __launch_bounds__(kThreads) mean_kernel(Losses losses, float* loss, std::int32_t* counted) {
  double total;
  int count;
  losses.add_up(total, count);
  if (threadIdx.x == 0) {
    *loss = static_cast<float>(total / count);
    *counted = count;
  }
}

// ---- the forward in two halves --------------------------------------------------------------------------------------

struct Partial {
  std::int64_t rows, classes, stride;  // own classes that count, and columns of a row
  std::int64_t first, total;           // the first own class, and those of all ranks
  int ignore;
  Input logits;
  const std::int32_t* labels;
  float *max, *sum, *at_label;
  std::int32_t* best;  // may be null
};

template <class Group>
__global__ void __launch_bounds__(kThreads) cross_entropy_partial_kernel(Partial a) {
  for_each_row<Group>(a.rows, [&](std::int64_t row) {
    const int label = a.labels[row];
    RowStatistics own = {0, 0, -1};
    float at_label[1] = {0};
    if (label != a.ignore) {  // the same for the whole group
      own = statistics_of<Group>(a.logits, row * a.stride, a.classes);
      if (own.best != kNoClass) own.best += static_cast<int>(a.first);
      const std::int64_t column = label - a.first;
      if (label < 0 || label >= a.total)
        at_label[0] = std::numeric_limits<float>::quiet_NaN();
      else if (column >= 0 && column < a.classes)
        load(a.logits, row * a.stride + column, 1, at_label);
    }
    if (Group::rank() == 0) {
      a.max[row] = own.max;
      a.sum[row] = own.sum;
      a.at_label[row] = at_label[0];
      if (a.best != nullptr) a.best[row] = own.best;
    }
  });
}

struct Join {
  std::int64_t rows, ranks;
  int ignore;
  const std::int32_t* labels;
  const float* parts;
  const std::int32_t* bests;  // may be null
  float *max, *sum, *row_loss;
  std::int32_t* prediction;  // may be null

  __device__ float part(std::int64_t rank, int which, std::int64_t row) const {
    return parts[(3 * rank + which) * rows + row];
  }
};

__global__ void __launch_bounds__(kThreads) cross_entropy_join_kernel(Join a) {
  for (std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; row < a.rows;
       row += std::int64_t{gridDim.x} * kThreads) {
    float max = 0, sum = 0, loss = 0;
    int prediction = -1;
    if (a.labels[row] != a.ignore) {
      max = a.part(0, 0, row);
      for (std::int64_t s = 1; s < a.ranks; ++s) max = a.part(s, 0, row) > max ? a.part(s, 0, row) : max;
      float at_label = 0;
      int best = kNoClass;
      for (std::int64_t s = 0; s < a.ranks; ++s) {
        const float of_rank = a.part(s, 0, row);
        sum += a.part(s, 1, row) * expf(of_rank - max);
        at_label += a.part(s, 2, row);
        if (a.bests != nullptr && of_rank == max) best = min(best, a.bests[s * a.rows + row]);
      }
      loss = logf(sum) + (max - at_label);
      prediction = prediction_of(sum, best);
    }
    a.max[row] = max;
    a.sum[row] = sum;
    a.row_loss[row] = loss;
    if (a.prediction != nullptr) a.prediction[row] = prediction;
  }
}

__global__ void __launch_bounds__(kThreads) sums_kernel(Losses losses, double* sums) {
  double total;
  int count;
  losses.add_up(total, count);
  if (threadIdx.x == 0) {
    sums[0] = total;
    sums[1] = count;
  }
}

__global__ void finish_kernel(const double* sums, float* loss, std::int32_t* counted) {
  *loss = static_cast<float>(sums[0] / sums[1]);
  *counted = static_cast<std::int32_t>(sums[1]);
}

// ---- backward -------------------------------------------------------------------------------------------------------

struct Backward {
  std::int64_t rows, classes, stride;  // own classes that count, and columns of a row
  std::int64_t first, total;           // the first own class, and those of all ranks
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
    const bool counts = label != a.ignore, is_valid = label >= 0 && label < a.total;
    const std::int64_t own = label - a.first;
    const float max = a.max[row];
    const float factor = is_valid ? scale / a.sum[row] : std::numeric_limits<float>::quiet_NaN();
    for_each_owned<Group>(a.stride, [&](std::int64_t c, int count) {
      float x[kChunk] = {};
      if (counts && c < a.classes) {
        const int read = a.classes - c < count ? static_cast<int>(a.classes - c) : count;
        load(a.logits, row * a.stride + c, read, x);
        for (int k = 0; k < kChunk; ++k)
          x[k] = k < read ? factor * expf(x[k] - max) - (c + k == own ? scale : 0.0f) : 0.0f;
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
  launch("cross_entropy_fwd: mean", mean_kernel, dim3(1), dim3(kThreads), 0, stream,
         Losses{a.rows, a.ignore, a.labels, forward.row_loss}, static_cast<float*>(a.loss), a.counted);
}

void cross_entropy_partial(const CrossEntropyPartialArgs& a, Stream stream) {
  require_cuda_dtypes("cross_entropy_partial", a.dtype);
  const std::int64_t classes = a.classes - a.padding;
  const Partial partial = {.rows = a.rows,
                           .classes = classes,
                           .stride = a.classes,
                           .first = a.columns.first,
                           .total = a.columns.total == 0 ? classes : a.columns.total,
                           .ignore = a.ignore,
                           .logits = input<kChunk>(a.logits, a.dtype, a.classes),
                           .labels = a.labels,
                           .max = static_cast<float*>(a.max),
                           .sum = static_cast<float*>(a.sum),
                           .at_label = static_cast<float*>(a.at_label),
                           .best = a.best};
  with_group(a.classes, [&](auto group) {
    using Group = decltype(group);
    launch("cross_entropy_partial", cross_entropy_partial_kernel<Group>, grid_for<Group>(a.rows), dim3(kThreads), 0,
           stream, partial);
  });
}

void cross_entropy_join(const CrossEntropyJoinArgs& a, Stream stream) {
  require_cuda_dtypes("cross_entropy_join", a.dtype);
  const Join join = {.rows = a.rows,
                     .ranks = a.ranks,
                     .ignore = a.ignore,
                     .labels = a.labels,
                     .parts = static_cast<const float*>(a.parts),
                     .bests = a.bests,
                     .max = static_cast<float*>(a.max),
                     .sum = static_cast<float*>(a.sum),
                     .row_loss = static_cast<float*>(a.row_loss),
                     .prediction = a.prediction};
  launch("cross_entropy_join", cross_entropy_join_kernel, dim3(blocks_for(a.rows, kThreads, grid_limit(1 << 14))),
         dim3(kThreads), 0, stream, join);
  launch("cross_entropy_join: sums", sums_kernel, dim3(1), dim3(kThreads), 0, stream,
         Losses{a.rows, a.ignore, a.labels, join.row_loss}, a.sums);
}

void cross_entropy_finish(const CrossEntropyFinishArgs& a, Stream stream) {
  require_cuda_dtypes("cross_entropy_finish", a.dtype);
  launch("cross_entropy_finish", finish_kernel, dim3(1), dim3(1), 0, stream, a.sums, static_cast<float*>(a.loss),
         a.counted);
}

void cross_entropy_bwd(const CrossEntropyBwdArgs& a, Stream stream) {
  require_cuda_dtypes("cross_entropy_bwd", a.dtype);
  const std::int64_t classes = a.classes - a.padding;
  const Backward backward = {.rows = a.rows,
                             .classes = classes,
                             .stride = a.classes,
                             .first = a.columns.first,
                             .total = a.columns.total == 0 ? classes : a.columns.total,
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
