// A network as a list of stages: embedding, blocks, head. Everything that passes from one stage to the next is in the
// list of tensors between them, so the network can be cut between any two stages.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "engine/parameters.h"
#include "models/pass.h"

namespace isobar {

using Tensors = std::vector<Tensor>;

struct Stage {
  // Maps the tensors of the previous stage (for the first stage: the network's inputs) to those of the next. It must be
  // a pure function of these tensors, the pass and the parameters. It refers to its network, which must outlive it.
  std::function<Tensors(const Tensors& inputs, Pass pass)> forward;
  // All parameters that it reads. A parameter listed by several stages is tied: its gradient is the sum over them.
  Weights weights;
  // The backward pass runs the stage again; until then only its inputs are kept (engine/recompute.cc).
  bool recompute = false;
};

// The memory that a stage of a forward pass needs; the max over several passes.
struct StageUse {
  std::size_t kept = 0;     // bytes more than before the stage that are held after it, mostly for the backward pass
  std::size_t largest = 0;  // bytes of its largest tensor
};

// While it lives, the passes of this thread note the memory of their stages.
class StageWatch {
 public:
  StageWatch();
  ~StageWatch();
  StageWatch(const StageWatch&) = delete;
  StageWatch& operator=(const StageWatch&) = delete;

  const std::vector<StageUse>& stages() const { return stages_; }

 private:
  friend Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass, Part range);
  void note(std::size_t number, const StageUse& use);

  StageWatch* const previous_;
  std::vector<StageUse> stages_;
};

// Runs the stages in order and returns the result of the last one.
Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass);
// The same for stages [range.begin, range.end) of them, which draw the masks that they have in the whole network.
Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass, Part range);

// Error naming a parameter that no stage lists.
void check_stages(std::span<const Stage> stages, const Parameters& parameters);

}  // namespace isobar
