// Which of cuBLASLt's algorithms products take on a GPU.
//
// The library guesses from the sizes. Its first guess is rarely the fastest, so its candidates can be timed, once for
// each product (sizes, types, epilogue, alignments), and what was chosen can be kept and given to another process. Sums
// are added in another order by another algorithm: whoever wants the same bits needs the same algorithms. Everything
// here holds for all threads of the process that use the device.
#pragma once

#include <map>
#include <string>

#include "kernels/common/device.h"

namespace isobar::cuda {

// A product in words, and the 64 bytes of its algorithm in hexadecimal digits; or, of one that can make the sums of A
// on the way, that these are made apart: "sums apart". The plain product then has an entry of its own.
using GemmAlgorithms = std::map<std::string, std::string>;

// What algorithms and the words for products hold for: "NVIDIA H100 80GB HBM3, cuBLASLt 130001, form 1".
std::string gemm_platform(Device device);

// From now on products take these, and where there is none, or one that the library refuses for the product, the
// library's first guess. What was timed before is forgotten.
void use_gemm_algorithms(Device device, GemmAlgorithms algorithms);

// While one lives, a product for which use_gemm_algorithms has given none takes the fastest of the library's
// candidates, which are timed when it is met for the first time, in bursts: some tens of milliseconds. A candidate that
// cannot be run is passed over. Its result is right too.
// Nothing is timed while a graph is being captured.
class GemmTiming {
 public:
  explicit GemmTiming(Device device);
  ~GemmTiming();
  GemmTiming(const GemmTiming&) = delete;
  GemmTiming& operator=(const GemmTiming&) = delete;

 private:
  Device device_;
};

// What products have taken, given or timed, since the last use_gemm_algorithms.
GemmAlgorithms gemm_algorithms_in_use(Device device);

}  // namespace isobar::cuda
