// The instances that a head's file compiles for compute capability 9.0.
#pragma once

#include "kernels/attention/heads.cuh"
#include "kernels/attention/sm90_dkdv.cuh"
#include "kernels/attention/sm90_dq.cuh"
#include "kernels/attention/sm90_forward.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template <class T, int kHead>
void Sm90Head<T, kHead>::forward(const AttentionFwdArgs& a, Stream stream) {
  launch_sm90_forward<T, kHead>(a, stream);
}

template <class T, int kHead>
void Sm90Head<T, kHead>::backward(const AttentionBwdArgs& a, Stream stream) {
  launch_sm90_dkdv<T, kHead>(a, stream);
  launch_sm90_dq<T, kHead>(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
