// The kernels by type and size of a head, one file each (head_48.cu, fp32_head_64.cu, tf32_head_64.cu, ...). Heads of
// other sizes are padded with zeros to the next larger one.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/mma.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template <class T, int kHead>
struct Head {
  static void forward(const AttentionFwdArgs& a, Stream stream);
  static void backward(const AttentionBwdArgs& a, Stream stream);  // after the workspace was filled
};

// Like visit_cuda_floating; with tf32, fp32 operands are Tf32.
template <class F>
void visit_operands(DType dtype, bool tf32, F&& f) {
  if (dtype == DType::fp32 && tf32) return f(Type<Tf32>{});
  visit_cuda_floating(dtype, f);
}

template <class T, class F>
void visit_head_size(std::int64_t head_size, F&& f) {
  if (head_size <= 32) return f(Head<T, 32>());
  if constexpr (!std::is_same_v<T, float>) {
    if (head_size <= 48) return f(Head<T, 48>());
  }
  if (head_size <= 64) return f(Head<T, 64>());
  if constexpr (sizeof(T) == 2) {
    if (head_size <= 80) return f(Head<T, 80>());
    if (head_size <= 96) return f(Head<T, 96>());
  }
  f(Head<T, 128>());
}

// The same for compute capability 9.0, 16 bits.
template <class T, int kHead>
struct Sm90Head {
  static void forward(const AttentionFwdArgs& a, Stream stream);
  static void backward(const AttentionBwdArgs& a, Stream stream);  // after the workspace was filled
};

template <class T, class F>
void visit_sm90_head_size(std::int64_t head_size, F&& f) {
  if (head_size <= 48) return f(Sm90Head<T, 48>());
  if (head_size <= 64) return f(Sm90Head<T, 64>());
  f(Sm90Head<T, 128>());
}

// Fills the workspace (backward.cuh).
void launch_delta(const AttentionBwdArgs& a, Stream stream);

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
