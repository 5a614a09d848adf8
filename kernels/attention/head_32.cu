// Attention for heads of 32 channels in 16 bits.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<bf16, 32>;
template struct Head<fp16, 32>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
