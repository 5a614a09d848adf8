// What a rung asks of a GPU, counted in the emulator, and the least time that follows from it. Nothing here is
// measured.
#pragma once

#include "bench/ladder/ladder.h"

namespace isobar {

// Whether this build counts memory accesses (lab/accesses/counter.h): it has the emulator, and g++ compiled it.
inline constexpr bool kCountsAccesses = ISOBAR_LADDER_COUNTS;

// Of all launches of one call. One wavefront moves 128 bytes between a multiprocessor's threads and its shared memory
// or first-level cache.
struct RungCounts {
  double sectors = 0;            // of 32 bytes, in global memory
  double least_sectors = 0;      // that the same bytes would fill if they lay side by side
  double global_wavefronts = 0;  // one a request of a warp, and as many as its sectors fill
  double shared_wavefronts = 0;
  double least_shared = 0;   // the same without bank conflicts
  double merged_shared = 0;  // the same if lanes that want the same words are always served at once

  RungCounts times(double factor) const;
};

// Runs an emulated rung once. Throws Error where a rung touches memory that is none of the ladder's arrays.
RungCounts count_rung(const Ladder& ladder, const Rung& rung, const LadderPointers& arrays);

// The published rates of one GPU, a multiprocessor and cycle where nothing else is said.
struct Gpu {
  const char* name;
  double multiprocessors, hertz;
  double wavefronts, fma, tensor_fma, exponentials;
  double memory;  // bytes/s that a large copy reaches
};

// CUDA C++ Programming Guide 13.0, throughput of native instructions on 9.0; of tensor units (tf32) the H100's
// whitepaper, 1024, and 0.63 of it, which mma.sync reaches (Luo et al. 2024, arXiv 2402.13499).
inline constexpr Gpu kPredictedGpu = {"NVIDIA H100", 132, 1.755e9, 1, 128, 0.63 * 1024, 16, 2.9e12};

// The time in which the busiest unit does its part, if it never waits and all others hide behind it: no kernel with
// these counts is faster. Latencies are not in it, nor a GPU that a launch does not fill.
struct Prediction {
  double seconds;
  const char* unit;  // the busiest one
};
Prediction predict(const Ladder& ladder, const Rung& rung, const RungCounts& counts, const Gpu& gpu = kPredictedGpu);

}  // namespace isobar
