// Attention for heads of 32 channels in fp32.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<float, 32>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
