// A network as a list of stages: embedding, blocks, head. Whatever crosses from one stage to the next is a tensor in
// its list, so that the network can be cut between any two of them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/parameters.h"
#include "models/pass.h"

namespace isobar {

using Tensors = std::vector<Tensor>;

struct Stage {
  // What the stage before returned (the network's inputs for the first stage) -> what the next one gets. It must be a
  // pure function of these tensors, the pass and parameters, and may not outlive its network.
  std::function<Tensors(const Tensors& inputs, Pass pass)> forward;
  // All parameters that it reads. One that several stages list is tied: its gradient is the sum of theirs.
  Weights weights;
  // The backward pass runs the stage again: of its tensors only the inputs are kept until then (engine/recompute.cc).
  bool recompute = false;
};

// Runs the stages in their order and returns what the last one returns.
Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass);

// Error naming a parameter that no stage lists.
void check_stages(std::span<const Stage> stages, const Parameters& parameters);

}  // namespace isobar
