// The choice of cuBLASLt's algorithms for products on a GPU.
//
// The library guesses from the sizes, and its first guess is rarely the fastest. So its candidates can be timed, once
// per product (sizes, types, epilogue, alignments), and the choices can be saved and passed to another process.
// Algorithms add in different orders: the same bits need the same algorithms. All of this applies to all threads of the
// process that use the device.
#pragma once

#include <map>
#include <string>

#include "kernels/common/device.h"

namespace isobar::cuda {

// Key: a product in words. Value: the 64 bytes of its algorithm in hexadecimal digits. If the product could also
// compute the sums of A, but a separate pass does it, the value is "sums apart", and the plain product has its own
// entry.
using GemmAlgorithms = std::map<std::string, std::string>;

// The platform for which algorithms and keys are valid: "NVIDIA H100 80GB HBM3, cuBLASLt 130001, form 1".
std::string gemm_platform(Device device);

// From now on products use these algorithms. A product without one, or whose algorithm the library refuses, uses the
// library's first guess. Earlier timings are forgotten.
void use_gemm_algorithms(Device device, GemmAlgorithms algorithms);

// While an AlgorithmTiming (kernels/cuda/timing.h) lives, a product without an algorithm from use_gemm_algorithms uses
// the fastest of the library's candidates. They are timed in bursts when the product first occurs: some tens of
// milliseconds. A candidate that cannot run is skipped. The product's result is correct then, too.
// Nothing is timed while a graph is being captured.

// The algorithms, given or timed, that products have used since the last use_gemm_algorithms.
GemmAlgorithms gemm_algorithms_in_use(Device device);

}  // namespace isobar::cuda
