#include "models/forecast/rollout_options.h"

#include <algorithm>
#include <string>

#include "kernels/common/check.h"
#include "models/vit/options.h"

namespace isobar {
namespace {

constexpr std::int64_t kMaxSteps = 1000;  // more would be a mistake; masks have room for 2^16 (Pass::step)

void check_steps(std::int64_t steps, const std::string& where) {
  ISOBAR_CHECK(steps >= 1 && steps <= kMaxSteps, where, " has a forecast of ", steps, " steps; it may have 1 to ",
               kMaxSteps);
}

void check_stages(const std::vector<RolloutStage>& stages, const std::string& where) {
  ISOBAR_CHECK(!stages.empty(), where, " is empty; expected steps, or [[0, steps], [iteration, steps], ...]");
  ISOBAR_CHECK(stages.front().from_iteration == 0, where, ": the first stage begins at iteration ",
               stages.front().from_iteration, ", not 0");
  for (std::size_t i = 0; i < stages.size(); ++i) {
    check_steps(stages[i].steps, where);
    ISOBAR_CHECK(i == 0 || stages[i].from_iteration > stages[i - 1].from_iteration, where,
                 ": the iterations of its stages do not rise: ", stages[i].from_iteration, " follows ",
                 i == 0 ? 0 : stages[i - 1].from_iteration);
  }
}

}  // namespace

KeyTable RolloutOptions::keys() {
  return {
      "Rollouts",
      {key("rollout", rollout,
           "steps of the forecasts that are trained, each from the one before; [[0, 1], [2000, 2], [3000, 4]]: from "
           "these iterations on")
           .also_called({"rolloutsteps", "multistep"}),
       key("rollout_weights", rollout_weights,
           "weights of the steps' losses: uniform, their mean; last; or a list, as long as the longest rollout, whose "
           "first ones shorter rollouts take"),
       key("rollout_gradient", rollout_gradient,
           "full: through all steps; last: only the last step is trained, the forecasts before it are its data"),
       key("recompute_steps", recompute_steps,
           "steps run again in the backward pass instead of keeping their activations: long rollouts need little more "
           "memory than one step"),
       key("boundary_width", boundary_width,
           "rows and columns along the edges of a region that later inputs take from the data and not from the "
           "forecast; no columns where they go round the globe")
           .within(0, kLargestExtent),
       key("valid_rollout", valid_rollout, "steps of the forecasts of a validation; null: the longest of rollout")},
      [this](const KeyOrigins& origins) { check(origins); }};
}

std::vector<RolloutStage> RolloutOptions::stages() const {
  if (const auto* const steps = std::get_if<std::int64_t>(&rollout)) return {{0, *steps}};
  std::vector<RolloutStage> stages;
  for (const auto& [from, steps] : std::get<1>(rollout)) stages.push_back({from, steps});
  return stages;
}

std::int64_t RolloutOptions::longest() const {
  std::int64_t longest = 1;
  for (const RolloutStage& stage : stages()) longest = std::max(longest, stage.steps);
  return longest;
}

std::vector<double> RolloutOptions::weights(std::int64_t steps) const {
  const auto count = static_cast<std::size_t>(steps);
  const auto* const word = std::get_if<std::string>(&rollout_weights);
  if (rollout_gradient == RolloutGradient::last || (word != nullptr && *word == "last")) {
    std::vector<double> weights(count, 0.0);
    weights.back() = 1;
    return weights;
  }
  if (word != nullptr) return std::vector<double>(count, 1 / static_cast<double>(steps));
  const std::vector<double>& list = std::get<1>(rollout_weights);
  ISOBAR_CHECK(list.size() >= count, "rollout_weights: ", list.size(), " weights for ", steps, " steps");
  std::vector<double> weights(list.begin(), list.begin() + steps);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  ISOBAR_CHECK(sum > 0, "rollout_weights: the first ", steps, " of ", list.size(), " weights are 0");
  for (double& weight : weights) weight /= sum;
  return weights;
}

void RolloutOptions::check(const KeyOrigins& origins) const {
  check_stages(stages(), origins.where("rollout"));
  check_steps(valid_steps(), origins.where("valid_rollout"));
  ISOBAR_CHECK(boundary_width == 0 || continues(), origins.where("boundary_width"), " is ", boundary_width,
               ", but no forecast is continued: config key rollout is 1");
  if (const auto* const word = std::get_if<std::string>(&rollout_weights)) {
    ISOBAR_CHECK(*word == "uniform" || *word == "last", origins.where("rollout_weights"), " is ", *word,
                 "; expected uniform, last or a list of numbers");
    return;
  }
  const std::string where = origins.where("rollout_weights");
  const std::vector<double>& list = std::get<1>(rollout_weights);
  const std::int64_t steps = std::max(longest(), valid_steps());
  ISOBAR_CHECK(std::ssize(list) == steps, where, " holds ", list.size(), " weights, but the longest rollout has ",
               steps, steps == 1 ? " step" : " steps");
  ISOBAR_CHECK(rollout_gradient == RolloutGradient::full, where,
               " is a list, but config key rollout_gradient last counts the last step alone");
  ISOBAR_CHECK(std::ranges::none_of(list, [](double weight) { return weight < 0; }), where, " holds a weight below 0");
  std::vector<RolloutStage> all = stages();
  all.push_back({0, valid_steps()});
  for (const RolloutStage& stage : all)
    ISOBAR_CHECK(std::any_of(list.begin(), list.begin() + stage.steps, [](double weight) { return weight > 0; }), where,
                 ": a rollout of ", stage.steps, stage.steps == 1 ? " step" : " steps",
                 " takes the first of its weights, and none of these is above 0");
}

}  // namespace isobar
