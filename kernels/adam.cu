// adam on CUDA: one launch over the flat buffers, four elements (16 bytes of each fp32 buffer) a thread and turn.
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

__global__ void __launch_bounds__(kMapThreads)
    adam_kernel(std::int64_t n, Hyperparameters h, const double* grad_scale_of_step, Buffers buffers) {
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
  });
}

}  // namespace

void adam(const Adam& a, Stream stream) {
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
  launch("adam", adam_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n, h, a.grad_scale,
         buffers);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
