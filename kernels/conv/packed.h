// conv_*_packed - isobar's own convolution on the CPU, behind cpu::conv_* (kernels/conv/conv.h has the contract)
//
// It is the product of kernels/gemm/packed_product.h, whose panels are gathered from where the taps of a window lie:
// packing copies anyway, so that no matrix of patches is ever made. With few output channels most columns of a panel
// would be empty; there the product of each tap is made for itself, [positions, taps x channels], and the taps of each
// result are added in their order.
#pragma once

#include "kernels/conv/conv.h"

namespace isobar::cpu {

void conv_fwd_packed(const ConvFwdArgs& arguments, Stream stream = {});
void conv_bwd_data_packed(const ConvBwdDataArgs& arguments, Stream stream = {});
void conv_bwd_weight_packed(const ConvBwdWeightArgs& arguments, Stream stream = {});

}  // namespace isobar::cpu
