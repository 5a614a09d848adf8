// The second ladder: the matrix product C = A · B in fp32, row-major, no matrix transposed. docs/learn/ladders.md
// walks through its rungs. The project's own is kernels/gemm/: a library's.
//
// bench/ladder/product_cpu.cc holds the rungs for a CPU, bench/ladder/product.cu those for a GPU (and the emulator).
#pragma once

#include <cstdint>

#include "kernels/common/stream.h"

namespace isobar {

struct ProductArgs {
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;  // [m, k]
  const float* b = nullptr;  // [k, n]
  float* c = nullptr;        // [m, n], overwritten
};

namespace cpu {
void product_naive(const ProductArgs& p, Stream stream = {});
void product_ordered(const ProductArgs& p, Stream stream = {});
void product_tiled(const ProductArgs& p, Stream stream = {});
void product_packed(const ProductArgs& p, Stream stream = {});
void product_threaded(const ProductArgs& p, Stream stream = {});
}  // namespace cpu

// The last two copy 16 bytes at once: n and k must be multiples of 4, or they throw Error.
namespace cuda {
void product_naive(const ProductArgs& p, Stream stream = {});
void product_shared(const ProductArgs& p, Stream stream = {});
void product_registers(const ProductArgs& p, Stream stream = {});
void product_async(const ProductArgs& p, Stream stream = {});
void product_tensor(const ProductArgs& p, Stream stream = {});
}  // namespace cuda

namespace emulator {
void product_naive(const ProductArgs& p, Stream stream = {});
void product_shared(const ProductArgs& p, Stream stream = {});
void product_registers(const ProductArgs& p, Stream stream = {});
void product_async(const ProductArgs& p, Stream stream = {});
void product_tensor(const ProductArgs& p, Stream stream = {});
}  // namespace emulator

}  // namespace isobar
