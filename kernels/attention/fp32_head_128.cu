// Attention for heads of 128 channels in fp32.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<float, 128>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
