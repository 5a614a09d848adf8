// Attention for heads of 64 channels in 16 bits.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<bf16, 64>;
template struct Head<fp16, 64>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
