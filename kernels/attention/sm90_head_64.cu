// Attention on compute capability 9.0 for heads of 64 channels.
#include "kernels/attention/sm90_head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Sm90Head<bf16, 64>;
template struct Sm90Head<fp16, 64>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
