// A network as a list of stages: embedding, blocks, head. Whatever crosses from one stage to the next is a tensor in
// its list, so that the network can be cut between any two of them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "models/pass.h"

namespace isobar {

using Tensors = std::vector<Tensor>;

struct Stage {
  // What the stage before returned (the network's inputs for the first stage) -> what the next one gets. It must be a
  // pure function of these tensors, the pass and parameters, and may not outlive its network.
  std::function<Tensors(const Tensors& inputs, Pass pass)> forward;
  // The backward pass runs the stage again: of its tensors only the inputs are kept until then (engine/recompute.cc).
  bool recompute = false;
};

// What a stage of a forward pass needs of memory. Of several passes the most.
struct StageUse {
  std::size_t kept = 0;     // bytes more than before the stage that are held behind it: mostly for the backward pass
  std::size_t largest = 0;  // bytes of its largest tensor
};

// As long as it lives, the passes of this thread note what their stages need.
class StageWatch {
 public:
  StageWatch();
  ~StageWatch();
  StageWatch(const StageWatch&) = delete;
  StageWatch& operator=(const StageWatch&) = delete;

  const std::vector<StageUse>& stages() const { return stages_; }

 private:
  friend Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass);
  void note(std::size_t number, const StageUse& use);

  StageWatch* const previous_;
  std::vector<StageUse> stages_;
};

// Runs the stages in their order and returns what the last one returns.
Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass);

}  // namespace isobar
