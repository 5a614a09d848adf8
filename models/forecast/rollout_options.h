// Training over forecasts of several steps, each of which continues the one before: options of the config. How the loss
// is made of the steps is in models/forecast/forecaster.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/keys.h"

namespace isobar {

// Through which steps of a rollout gradients pass.
enum class RolloutGradient : std::uint8_t { full, last };

template <>
struct EnumNames<RolloutGradient> {
  static constexpr std::array names{"full", "last"};
};

// From this iteration on (counted from 0) forecasts of so many steps are trained.
struct RolloutStage {
  std::int64_t from_iteration = 0, steps = 1;
};

struct RolloutOptions {
  StagedNumber rollout = std::int64_t{1};
  WordOrNumbers rollout_weights = std::string("uniform");
  RolloutGradient rollout_gradient = RolloutGradient::full;
  bool recompute_steps = false;
  std::int64_t boundary_width = 0;
  std::optional<std::int64_t> valid_rollout;
  std::optional<std::vector<std::string>> valid_leads;  // "6h", "24h"

  KeyTable keys();

  std::vector<RolloutStage> stages() const;  // at least one; the first from iteration 0 on
  std::int64_t longest() const;              // steps, over all stages
  std::int64_t valid_steps() const { return valid_rollout.value_or(longest()); }
  // Whether any forecast is continued, in training or validation.
  bool continues() const { return longest() > 1 || valid_steps() > 1 || valid_leads; }
  // [steps], with sum 1: the weight of each step's loss in a rollout of so many steps. A list is cut to its first
  // `steps` weights. Error if the list is shorter, or if none of these is above 0.
  std::vector<double> weights(std::int64_t steps) const;

 private:
  void check(const KeyOrigins& origins) const;
  void check_leads(const KeyOrigins& origins) const;
};

}  // namespace isobar
