// The instances that a head's file compiles.
#pragma once

#include "kernels/attention/dkdv.cuh"
#include "kernels/attention/dq.cuh"
#include "kernels/attention/forward.cuh"
#include "kernels/attention/heads.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template <class T, int kHead>
void Head<T, kHead>::forward(const AttentionFwdArgs& a, Stream stream) {
  launch_forward<T, kHead>(a, stream);
}

template <class T, int kHead>
void Head<T, kHead>::backward(const AttentionBwdArgs& a, Stream stream) {
  launch_dkdv<T, kHead>(a, stream);
  launch_dq<T, kHead>(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
