// The CUDA rungs once more, compiled by the host compiler against the emulator (docs/cuda_on_the_cpu.md).
#define ISOBAR_EMULATE
#include "bench/ladder/cuda.cu"
