// Attention for heads of 48 channels in 16 bits.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<bf16, 48>;
template struct Head<fp16, 48>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
