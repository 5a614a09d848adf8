// conv of operands in fp16 on tensor cores.
#include "kernels/conv/tensor_core.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template struct TensorCoreConv<fp16>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
