// Attention for heads of 96 channels in 16 bits.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<bf16, 96>;
template struct Head<fp16, 96>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
