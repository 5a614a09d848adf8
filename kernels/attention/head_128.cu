// Attention for heads of 128 channels in 16 bits.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<bf16, 128>;
template struct Head<fp16, 128>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
