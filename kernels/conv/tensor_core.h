// conv by tensor cores, for arguments that conv_on_tensor_cores says yes to. The contract is that of
// kernels/conv/conv.h, which has checked the arguments.
#pragma once

#include "kernels/conv/conv.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/mma.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// Of operands of one type, each compiled in a file of its own (tensor_core_bf16.cu, ...).
template <class T>
struct TensorCoreConv {
  static void run(const ConvFwdArgs& a, Stream stream);
  static void run(const ConvBwdDataArgs& a, Stream stream);
  static void run(const ConvBwdWeightArgs& a, Stream stream);
};

template <class Args>
void tensor_core_conv(const Args& a, Stream stream) {
  if (a.dtype == DType::bf16) return TensorCoreConv<bf16>::run(a, stream);
  if (a.dtype == DType::fp16) return TensorCoreConv<fp16>::run(a, stream);
  TensorCoreConv<Tf32>::run(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
