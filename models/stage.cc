#include "models/stage.h"

#include "engine/tape.h"

namespace isobar {

std::vector<Tensor> run_stages(std::span<const Stage> stages, const std::vector<Tensor>& inputs,
                               const Context& context) {
  std::vector<Tensor> state = inputs;
  for (const Stage& stage : stages) {
    if (stage.recompute)
      state = recompute([forward = stage.forward, context](const auto& in) { return forward(in, context); }, state);
    else
      state = stage.forward(state, context);
  }
  return state;
}

}  // namespace isobar
