// isobar's own kernels of conv on CUDA (conv.cu), whatever else may compute a convolution there. The contract is that
// of kernels/conv/conv.h, which has checked the arguments.
#pragma once

#include "kernels/conv/conv.h"

namespace isobar::cuda {
void own_conv_fwd(const ConvFwdArgs& a, Stream stream);
void own_conv_bwd_data(const ConvBwdDataArgs& a, Stream stream);
void own_conv_bwd_weight(const ConvBwdWeightArgs& a, Stream stream);
}  // namespace isobar::cuda

namespace isobar::emulator {
void own_conv_fwd(const ConvFwdArgs& a, Stream stream);
void own_conv_bwd_data(const ConvBwdDataArgs& a, Stream stream);
void own_conv_bwd_weight(const ConvBwdWeightArgs& a, Stream stream);
}  // namespace isobar::emulator
