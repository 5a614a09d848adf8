// Attention for heads of 80 channels in 16 bits.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<bf16, 80>;
template struct Head<fp16, 80>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
