// Attention for heads of 128 channels in tf32.
#include "kernels/attention/head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Head<Tf32, 128>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
