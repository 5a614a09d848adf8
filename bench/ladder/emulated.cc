// The CUDA rungs once more, compiled by the host compiler against the emulator (docs/cuda_on_the_cpu.md).
#if !defined(ISOBAR_EMULATE)  // a build that counts memory accesses has said so
#define ISOBAR_EMULATE
#endif
#include "bench/ladder/attention.cu"
#include "bench/ladder/layernorm.cu"
#include "bench/ladder/product.cu"
