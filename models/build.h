// What a layer is made with: where it lists its parameters, how products are computed, and the ranks that share the
// network. A network's page makes its layers with it and looks at none of these: how ranks share a layer is the layer's
// affair.
#pragma once

#include <cstdint>

#include "comm/parallel.h"
#include "engine/parameters.h"
#include "models/compute_options.h"

namespace isobar {

// Parameters and ranks must outlive the network; how products are computed is read while it is made.
struct Build {
  Parameters& parameters;
  const ComputeOptions& compute;
  const Parallel& parallel = Parallel::alone();

  // Of layers that read sequences, [B·T, C]: the tokens T of a whole sample, and how many of them always lie on one
  // rank (a row of patches). 0: as many as x has.
  std::int64_t tokens = 0, token_unit = 1;

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
};

}  // namespace isobar
