// Attention on compute capability 9.0 for heads of 128 channels.
#include "kernels/attention/sm90_head.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

template struct Sm90Head<bf16, 128>;
template struct Sm90Head<fp16, 128>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
