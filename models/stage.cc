#include "models/stage.h"

#include <cstdint>
#include <set>

#include "engine/tape.h"
#include "kernels/common/check.h"

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

void check_stages(std::span<const Stage> stages, const Parameters& parameters) {
  std::set<int> listed;
  for (const Stage& stage : stages) listed.insert(stage.weights.begin(), stage.weights.end());
  for (int handle = 0; handle < parameters.handles(); ++handle)
    ISOBAR_CHECK(listed.contains(handle), "no stage of the network lists the parameter ", parameters.name_of(handle));
}

}  // namespace isobar
