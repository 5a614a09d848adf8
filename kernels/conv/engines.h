// Which engine computes a convolution on a GPU: one of cuDNN's (kernels/conv/cudnn.h) or isobar's own kernels.
//
// The choice is made once per convolution (sizes, types, alignments), for all threads of the process that use the
// device. It is the given one, else, while an AlgorithmTiming lives (kernels/cuda/timing.h), the fastest of cuDNN's
// engines and of the own kernels, else the first engine that cuDNN names. Candidates are timed on operands that are
// drawn for it. An engine is compared with the own kernels, on such operands too, before its first result is used: one
// that differs is never used, and a notice says so (kernels/common/notices.h).
//
// Nothing is chosen while a graph is being captured: a convolution that occurs first there takes the own kernels.
// Without cuDNN, and where it has no engine, so does every one.
#pragma once

#include <map>
#include <string>

#include "kernels/common/device.h"
#include "kernels/conv/conv.h"

namespace isobar::cuda {

// Key: a convolution in words, and whose engines it was chosen from. Value: "own", or "engine 38: 2=1 12=0".
// Engines add in different orders: the same bits need the same choices.
using ConvAlgorithms = std::map<std::string, std::string>;

// Whose engines convolutions on the device are chosen from, in words: "cuDNN 91900" or "own kernels".
std::string conv_engines(Device device);
// Whether all of these were chosen from the device's engines.
bool are_of_these_engines(const ConvAlgorithms& algorithms, Device device);

// From now on convolutions take these. One that is missing, that cuDNN refuses, or that gives other results than the
// own kernels, is as if it were not given. Earlier choices are forgotten.
void use_conv_algorithms(Device device, ConvAlgorithms algorithms);
// Those, given or timed, that convolutions have used since the last use_conv_algorithms.
ConvAlgorithms conv_algorithms_in_use(Device device);

// Whether one of cuDNN's engines has computed it. If not, the own kernels are to.
bool conv_by_cudnn(const ConvFwdArgs& a, Stream stream);
bool conv_by_cudnn(const ConvBwdDataArgs& a, Stream stream);
bool conv_by_cudnn(const ConvBwdWeightArgs& a, Stream stream);

}  // namespace isobar::cuda
