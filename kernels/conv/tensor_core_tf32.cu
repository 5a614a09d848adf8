// conv of operands in tf32 on tensor cores.
#include "kernels/conv/tensor_core.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template struct TensorCoreConv<Tf32>;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
