// adam on CUDA: one launch over the flat buffers; a thread takes four elements (16 bytes of each fp32 buffer) at a
// time.
#include "kernels/adam.h"

#include <cmath>

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4;

struct Hyperparameters {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, weight_decay;
  float lr, step, root_bias2;  // step: lr / bias1
  bool decoupled;
  std::int64_t decay_end;
};

struct Buffers {
  Input grad, weight, m, v;
  Output new_weight, new_m, new_v, compute;  // the first three are the inputs again; compute.data may be null
};

struct Average {
  float rate;
  Input old;
  Output updated;  // the same buffer as old
};

// after(i, count, w): what else is done with the new weights.
template <class After>
__device__ void update(std::int64_t n, const Hyperparameters& h, const double* grad_scale_of_step,
                       const Buffers& buffers, const After& after) {
  const float grad_scale = static_cast<float>(*grad_scale_of_step);
  if (*grad_scale_of_step == 0) return;  // the same for all threads: the step is skipped

  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float g[kChunk], w[kChunk], m[kChunk], v[kChunk];
    load(buffers.grad, i, count, g);
    load(buffers.weight, i, count, w);
    load(buffers.m, i, count, m);
    load(buffers.v, i, count, v);
    for (int k = 0; k < kChunk; ++k) {
      float gradient = g[k] * grad_scale;
      if (i + k < h.decay_end) {
        if (h.decoupled) {
          w[k] -= h.lr * h.weight_decay * w[k];
        } else {
          gradient += h.weight_decay * w[k];
        }
      }
      m[k] = h.beta1 * m[k] + h.one_minus_beta1 * gradient;
      v[k] = h.beta2 * v[k] + h.one_minus_beta2 * gradient * gradient;
      w[k] -= h.step * m[k] / (sqrtf(v[k]) / h.root_bias2 + h.eps);
    }
    store(buffers.new_weight, i, count, w);
    store(buffers.new_m, i, count, m);
    store(buffers.new_v, i, count, v);
    if (buffers.compute.data != nullptr) store(buffers.compute, i, count, w);
    after(i, count, w);
  });
}

__global__ void __launch_bounds__(kMapThreads)
    adam_kernel(std::int64_t n, Hyperparameters h, const double* grad_scale, Buffers buffers) {
  update(n, h, grad_scale, buffers, [](std::int64_t, int, const float*) {});
}

__global__ void __launch_bounds__(kMapThreads)
    adam_average_kernel(std::int64_t n, Hyperparameters h, const double* grad_scale, Buffers buffers, Average average) {
  update(n, h, grad_scale, buffers, [&](std::int64_t i, int count, const float(&w)[kChunk]) {
    float a[kChunk];
    load(average.old, i, count, a);
    for (int k = 0; k < kChunk; ++k) a[k] += average.rate * (w[k] - a[k]);
    store(average.updated, i, count, a);
  });
}

}  // namespace

void adam(const AdamArgs& a, Stream stream) {
  ISOBAR_CHECK(a.dtype == DType::fp32, "adam: master weights in ", name_of(a.dtype),
               " are not supported on CUDA; use fp32, or the CPU");
  if (a.compute != nullptr) require_cuda_dtypes("adam", a.compute_dtype);
  if (a.n == 0) return;
  const Hyperparameters h = {.beta1 = static_cast<float>(a.beta1),
                             .beta2 = static_cast<float>(a.beta2),
                             .one_minus_beta1 = static_cast<float>(1 - a.beta1),
                             .one_minus_beta2 = static_cast<float>(1 - a.beta2),
                             .eps = static_cast<float>(a.eps),
                             .weight_decay = static_cast<float>(a.weight_decay),
                             .lr = static_cast<float>(a.lr),
                             .step = static_cast<float>(a.lr / a.bias1),
                             .root_bias2 = static_cast<float>(std::sqrt(a.bias2)),
                             .decoupled = a.decoupled,
                             .decay_end = a.decay_end};
  const Buffers buffers = {.grad = input<kChunk>(a.grad, a.dtype),
                           .weight = input<kChunk>(a.weight, a.dtype),
                           .m = input<kChunk>(a.m, a.dtype),
                           .v = input<kChunk>(a.v, a.dtype),
                           .new_weight = output<kChunk>(a.weight, a.dtype),
                           .new_m = output<kChunk>(a.m, a.dtype),
                           .new_v = output<kChunk>(a.v, a.dtype),
                           .compute = output<kChunk>(a.compute, a.compute_dtype)};
  const dim3 blocks(map_blocks<kChunk>(a.n)), threads(kMapThreads);
  if (a.average == nullptr) {
    launch("adam", adam_kernel, blocks, threads, 0, stream, a.n, h, a.grad_scale, buffers);
    return;
  }
  const Average average = {.rate = static_cast<float>(a.average_rate),
                           .old = input<kChunk>(a.average, a.dtype),
                           .updated = output<kChunk>(a.average, a.dtype)};
  launch("adam", adam_average_kernel, blocks, threads, 0, stream, a.n, h, a.grad_scale, buffers, average);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
