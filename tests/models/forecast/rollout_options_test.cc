// The keys of rollouts: what stages and weights mean, and what is refused.
#include "models/forecast/rollout_options.h"

#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "models/vit/options.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/key_facts.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using Assignments = std::vector<std::string>;

RolloutOptions rollout_options(const Assignments& assignments) {
  RunConfig config = testing::checked_config(testing::entries_of(assignments));
  return testing::forecast_of(config).forecast.rollout;
}

std::string refusal_of(Assignments assignments) {
  assignments.insert(assignments.end(), {"img_size=[8,16]", "patch_size=2", "n_in_channels=3", "n_out_channels=3"});
  return testing::error_of([&] { testing::checked_config(testing::entries_of(assignments)); });
}

}  // namespace

TEST_CASE("rollout options: one number, or stages that begin at iterations") {
  const RolloutOptions one = rollout_options({});
  CHECK(one.longest() == 1);
  CHECK_FALSE(one.continues());
  CHECK(one.weights(1) == std::vector<double>{1});
  const RolloutOptions four = rollout_options({"rollout=4"});
  REQUIRE(four.stages().size() == 1);
  CHECK(four.stages()[0].steps == 4);
  CHECK(four.valid_steps() == 4);
  const RolloutOptions staged = rollout_options({"rollout=[[0,1],[20,4],[30,2]]", "valid_rollout=3"});
  REQUIRE(staged.stages().size() == 3);
  CHECK(staged.stages()[1].from_iteration == 20);
  CHECK(staged.stages()[2].steps == 2);
  CHECK(staged.longest() == 4);
  CHECK(staged.valid_steps() == 3);
  CHECK(rollout_options({"valid_rollout=2"}).continues());
}

TEST_CASE("rollout options: weights have the sum 1, and shorter rollouts take the first of a list") {
  CHECK(rollout_options({"rollout=4"}).weights(4) == std::vector<double>{0.25, 0.25, 0.25, 0.25});
  CHECK(rollout_options({"rollout=3", "rollout_weights=last"}).weights(2) == std::vector<double>{0, 1});
  CHECK(rollout_options({"rollout=3", "rollout_gradient=last"}).weights(3) == std::vector<double>{0, 0, 1});
  const RolloutOptions listed = rollout_options({"rollout=3", "rollout_weights=[1,3,4]"});
  CHECK(listed.weights(3) == std::vector<double>{0.125, 0.375, 0.5});
  CHECK(listed.weights(2) == std::vector<double>{0.25, 0.75});
  CHECK_THROWS_WITH(listed.weights(4), "rollout_weights: 3 weights for 4 steps");
  const RolloutOptions late = rollout_options({"rollout=3", "rollout_weights=[0,0,4]"});
  CHECK(late.weights(3) == std::vector<double>{0, 0, 1});
  CHECK_THROWS_WITH(late.weights(2), "rollout_weights: the first 2 of 3 weights are 0");
}

TEST_CASE("rollout options: what does not fit is refused by name") {
  const auto check = [](const Assignments& assignments, const std::string& sentence) {
    CHECK(refusal_of(assignments) == (sentence.empty() ? "" : "config key " + sentence));
  };
  check({"rollout=0"}, "rollout in --set has a forecast of 0 steps; it may have 1 to 1000");
  check({"rollout=[]"}, "rollout in --set is empty; expected steps, or [[0, steps], [iteration, steps], ...]");
  check({"rollout=[[5,2]]"}, "rollout in --set: the first stage begins at iteration 5, not 0");
  check({"rollout=[[0,1],[20,2],[20,3]]"}, "rollout in --set: the iterations of its stages do not rise: 20 follows 20");
  check({"rollout=[[0,1],[20,2],[10,3]]"}, "rollout in --set: the iterations of its stages do not rise: 10 follows 20");
  check({"rollout=[[0,1],[20,0]]"}, "rollout in --set has a forecast of 0 steps; it may have 1 to 1000");
  check({"valid_rollout=0"}, "valid_rollout in --set has a forecast of 0 steps; it may have 1 to 1000");
  check({"rollout=3", "rollout_weights=[1,2]"},
        "rollout_weights in --set holds 2 weights, but the longest rollout has 3 steps");
  check({"rollout=3", "rollout_weights=first"},
        "rollout_weights in --set is first; expected uniform, last or a list of numbers");
  check({"rollout=2", "rollout_weights=[1,-2]"}, "rollout_weights in --set holds a weight below 0");
  check({"rollout=[[0,1],[9,2]]", "rollout_weights=[0,2]"},
        "rollout_weights in --set: a rollout of 1 step takes the first of its weights, and none of these is above 0");
  check({"rollout=2", "rollout_weights=[1,2]", "rollout_gradient=last"},
        "rollout_weights in --set is a list, but config key rollout_gradient last counts the last step alone");
  check({"boundary_width=2"}, "boundary_width in --set is 2, but no forecast is continued: config key rollout is 1");
  check({"rollout=2", "boundary_width=4"}, "boundary_width in --set is 4, which leaves nothing of 8 x 16 points");
  check({"rollout=2", "boundary_width=3"}, "");
  check({"rollout=1001"}, "rollout in --set has a forecast of 1001 steps; it may have 1 to 1000");
  check({"rollout=1000"}, "");
  check({"valid_leads=[]"}, "valid_leads in --set is empty");
  check({R"(valid_leads=["6h","1d","24h"])"}, "valid_leads in --set: its lead times do not rise at 24h");
  check({R"(valid_leads=["6h","1d","36h"])"}, "");
  check({R"(valid_leads=["6h"])", "boundary_width=1"}, "");
  check({"rollout=2", "valid_rollout=3", "rollout_weights=[1,2]"},
        "rollout_weights in --set holds 2 weights, but the longest rollout has 3 steps");
}

TEST_CASE("rollout options: the edges of both sides leave something of the grid between them") {
  const auto refusal = [](const std::string& size, const std::string& width) {
    return testing::error_of([&] {
      testing::checked_config(testing::entries_of({"img_size=" + size, "patch_size=2", "n_in_channels=3",
                                                   "n_out_channels=3", "rollout=2", "boundary_width=" + width}));
    });
  };
  for (const char* size : {"[16,8]", "[8,16]"}) {
    CHECK(refusal(size, "3").empty());
    CHECK(refusal(size, "4").starts_with("config key boundary_width in --set is 4, which leaves nothing of "));
  }
  CHECK(refusal("[16,8]", "-1") == "config key boundary_width in --set must be at least 0, not -1");
}

TEST_CASE("rollout options: inputs that neither a forecast nor the data give are refused") {
  // Without names nobody says that the third channel is a forcing.
  CHECK(testing::error_of([] {
          testing::checked_config(testing::entries_of(
              {"img_size=[8,16]", "patch_size=2", "n_in_channels=3", "n_out_channels=2", "rollout=2"}));
        }) ==
        "config key rollout in --set: a forecast of 2 channels cannot be continued by a model that reads 3, unless "
        "config keys channels and forcing_channels name them");
  // A diagnostic is no input, nor is there an older state of one.
  CHECK(refusal_of({"rollout=2", "history=1", R"(channels=["a","b"])", R"(diagnostic_channels=["d"])",
                    R"(forcing_channels=["d"])"}) ==
        "config key diagnostic_channels in --set holds d, which forcing_channels holds too");
}

TEST_CASE("rollout options: each key's bounds and names, and which may change when a run goes on") {
  RolloutOptions options;
  CHECK(testing::key_facts(options.keys()) ==
        std::vector<std::string>{"rollout; also: rolloutsteps, multistep", "rollout_weights", "rollout_gradient",
                                 "recompute_steps", concat("boundary_width; at least 0, at most ", kLargestExtent),
                                 "valid_rollout", "valid_leads; free on resume"});
  CHECK(options.longest() == 1);
  CHECK(options.rollout_gradient == RolloutGradient::full);
  CHECK_FALSE(options.recompute_steps);
  CHECK(options.boundary_width == 0);
  CHECK_FALSE(options.continues());
  options.valid_leads = {{"6h"}};
  CHECK(options.continues());
}

}  // namespace isobar
