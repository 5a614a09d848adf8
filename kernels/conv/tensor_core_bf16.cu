// conv of operands in bf16 on tensor cores.
#include "kernels/conv/tensor_core.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template struct TensorCoreConv<bf16>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
