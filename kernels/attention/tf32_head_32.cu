// Attention for heads of 32 channels in tf32.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<Tf32, 32>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
