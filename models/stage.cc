#include "models/stage.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

thread_local StageWatch* watch = nullptr;

Tensors run_stage(const Stage& stage, const Tensors& inputs, const Pass& pass) {
  if (!stage.recompute) return stage.forward(inputs, pass);
  return recompute([forward = stage.forward, pass](const Tensors& in) { return forward(in, pass); }, inputs);
}

}  // namespace

StageWatch::StageWatch() : previous_(watch) {
  watch = this;
}

StageWatch::~StageWatch() {
  watch = previous_;
}

void StageWatch::note(std::size_t number, const StageUse& use) {
  if (number >= stages_.size()) stages_.resize(number + 1);
  StageUse& most = stages_[number];
  most.kept = std::max(most.kept, use.kept);
  most.largest = std::max(most.largest, use.largest);
}

Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass) {
  return run_stages(stages, inputs, pass, {0, std::ssize(stages)});
}

Tensors run_stages(std::span<const Stage> stages, const Tensors& inputs, const Pass& pass, Part range) {
  Tensors state = inputs;
  for (auto number = static_cast<std::size_t>(range.begin); std::cmp_less(number, range.end); ++number) {
    const Pass mine = pass.stage(static_cast<std::int64_t>(number));
    if (watch == nullptr) {
      state = run_stage(stages[number], state, mine);
      continue;
    }
    const std::size_t before = memory_bytes();
    largest_new_block();  // what others have made is forgotten
    state = run_stage(stages[number], state, mine);
    const std::size_t behind = memory_bytes();
    watch->note(number, {.kept = std::max(behind, before) - before, .largest = largest_new_block()});
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
