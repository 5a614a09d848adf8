// The arguments that every layer is built with: where it registers its parameters, how products are computed, and the
// ranks that share the network. A network's source file passes it on to its layers and reads none of it: how ranks
// share a layer is decided in the layer.
#pragma once

#include <cstdint>

#include "comm/parallel.h"
#include "engine/parameters.h"
#include "models/compute_options.h"

namespace isobar {

// Parameters and ranks must outlive the network; `compute` is read during construction only.
struct Build {
  Parameters& parameters;
  const ComputeOptions& compute;
  const Parallel& parallel = Parallel::alone();

  // For layers that read sequences, [B·T, C]: the number of tokens T of a whole sample, and the number of consecutive
  // tokens that always stay on one rank (a row of patches). tokens 0: as many as x has.
  std::int64_t tokens = 0, token_multiple = 1;
  // Context-parallel ranks have tokens in zig-zag (comm/sharded_axis.h): a causal mask is the same work for all.
  bool zigzag = false;

  // A layer notes what it has of `what`, of which there are `total` (Parameters::dealt).
  void note_over_tp(const char* what, const Part& part, std::int64_t total) const {
    parameters.note_dealt({what, "tp", part.begin, part.end, total});
  }
  void note_over_cp(const char* what, const Part& part, std::int64_t total) const {
    parameters.note_dealt({what, "cp", part.begin, part.end, total});
  }

  Build with_tokens(std::int64_t count, std::int64_t unit = 1) const {
    return {parameters, compute, parallel, count, unit};
  }
  // For layers with a causal mask.
  Build with_causal_tokens(std::int64_t count) const { return {parameters, compute, parallel, count, 1, true}; }
};

}  // namespace isobar
