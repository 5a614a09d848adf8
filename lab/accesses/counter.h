// What the memory accesses of CUDA kernels cost, counted in the emulator.
//
// Kernels are compiled with calls to ThreadSanitizer's functions, which counter.cc has instead of it, before every load
// and store. The n-th access of each lane of a warp at one place of the code is a request of that warp.
//
//   global memory  costs a request the sectors, of 32 bytes, that it touches; at least its bytes / 32
//   shared memory  costs it wavefronts: of the 32 banks, 4 bytes wide, one delivers a word a wavefront, to all lanes
//                  that want it. Lanes go together in 32s, of accesses of 8 bytes in 16s, of 16 bytes (ldmatrix,
//                  cp.async too) in 8s: at least a wavefront each
//
// Lanes of two such groups may want the same words; hardware then serves both groups at once, in cases that are not
// published. `moved` is without that, `merged` with it wherever it could be: the truth lies between.
//
// A byte that several lanes touch is one. Parameters and a thread's own variables cost nothing. Not seen: what TMA and
// wgmma move, and what nvcc makes of the source (accesses that it joins, drops or adds, as in spills).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace isobar::accesses {

struct Cost {
  std::int64_t requests = 0, moved = 0, least = 0;  // sectors or wavefronts
  std::int64_t merged = 0;                          // wavefronts, of shared memory: as below

  Cost& operator+=(const Cost& other) {
    requests += other.requests;
    moved += other.moved;
    least += other.least;
    merged += other.merged;
    return *this;
  }
};

// Where the code accesses memory. Part p of an access that is longer than 16 bytes begins at its byte 16·p.
struct Place {
  const void* code;  // behind the call that tells of it
  int part;
  bool is_shared, is_store;
  auto operator<=>(const Place&) const = default;
};

using Costs = std::map<Place, Cost>;

// Of all places in global or in shared memory.
Cost sum_of(const Costs& costs, bool is_shared);

// Counts what the kernels cost that `launches` starts on the emulator's null stream, by the name of the launch.
// `global` is the memory that they may touch. Throws Error where one touches other memory.
std::map<std::string, Costs> count(std::span<const std::span<const std::byte>> global,
                                   const std::function<void()>& launches);

}  // namespace isobar::accesses
