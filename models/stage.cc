#include "models/stage.h"

#include <cstdint>

#include "engine/tape.h"

namespace isobar {

Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass) {
  Tensors state = inputs;
  std::int64_t number = 0;
  for (const Stage& stage : stages) {
    const Pass mine = pass.stage(number++);
    if (stage.recompute)
      state = recompute([forward = stage.forward, mine](const Tensors& in) { return forward(in, mine); }, state);
    else
      state = stage.forward(state, mine);
  }
  return state;
}

}  // namespace isobar
