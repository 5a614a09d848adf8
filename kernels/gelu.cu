// gelu on CUDA: a thread takes eight elements at a time, and computes in fp32 with the device library's erf and tanh.
#include "kernels/gelu.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8;
constexpr float kSqrtHalf = 0.70710678118654752f;      // 1/√2
constexpr float kInvSqrtTwoPi = 0.39894228040143268f;  // 1/√(2π)
constexpr float kSqrtTwoOverPi = 0.79788456080286536f;
constexpr float kCubic = 0.044715f;

__device__ __forceinline__ float normal_cdf(float x) {
  return 0.5f * (1.0f + erff(x * kSqrtHalf));
}

__device__ __forceinline__ float gelu(float x, bool exact) {
  if (exact) return x * normal_cdf(x);
  return 0.5f * x * (1.0f + tanhf(kSqrtTwoOverPi * (x + kCubic * x * x * x)));
}

__device__ __forceinline__ float gelu_derivative(float x, bool exact) {
  if (exact) return normal_cdf(x) + x * kInvSqrtTwoPi * expf(-0.5f * x * x);
  const float t = tanhf(kSqrtTwoOverPi * (x + kCubic * x * x * x));
  const float inner = kSqrtTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

__global__ void __launch_bounds__(kMapThreads) gelu_fwd_kernel(std::int64_t n, bool exact, Input x, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk];
    load(x, i, count, v);
    for (float& element : v) element = gelu(element, exact);
    store(y, i, count, v);
  });
}

__global__ void __launch_bounds__(kMapThreads)
    gelu_bwd_kernel(std::int64_t n, bool exact, Input dy, Input x, Output dx) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk], d[kChunk];
    load(x, i, count, v);
    load(dy, i, count, d);
    for (int k = 0; k < kChunk; ++k) d[k] *= gelu_derivative(v[k], exact);
    store(dx, i, count, d);
  });
}

bool is_exact(const char* kernel, Activation kind) {
  ISOBAR_CHECK(kind != Activation::none, kernel, ": the kind of GELU is missing");
  return kind == Activation::gelu_erf;
}

}  // namespace

void gelu_fwd(const GeluFwdArgs& a, Stream stream) {
  require_cuda_dtypes("gelu_fwd", a.dtype);
  const bool exact = is_exact("gelu_fwd", a.kind);
  if (a.n == 0) return;
  launch("gelu_fwd", gelu_fwd_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n, exact,
         input<kChunk>(a.x, a.dtype), output<kChunk>(a.y, a.dtype));
}

void gelu_bwd(const GeluBwdArgs& a, Stream stream) {
  require_cuda_dtypes("gelu_bwd", a.dtype);
  const bool exact = is_exact("gelu_bwd", a.kind);
  if (a.n == 0) return;
  launch("gelu_bwd", gelu_bwd_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n, exact,
         input<kChunk>(a.dy, a.dtype), input<kChunk>(a.x, a.dtype), output<kChunk>(a.dx, a.dtype));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
