// Weights of channels by number, name and preset, against numbers worked out by hand.
#include "models/forecast/channel_weights.h"

#include <cmath>
#include <string>
#include <vector>

#include "data/fields/channels.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using Values = std::vector<double>;
using Names = std::vector<std::string>;

Values weights(const WeightsByName& value, const Names& names, const Values& stds = {}, const Values& changes = {}) {
  return channel_weights_of(value, names, stds, changes);
}

void check_near(const Values& found, const Values& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - wanted[i]) <= 1e-15 * std::abs(wanted[i]));
}

WeightsByName preset(const char* name) {
  return std::string(name);
}

}  // namespace

TEST_CASE("channels: a name tells variable and level, or a variable without level, or nothing") {
  const auto parts = [](const char* name) {
    const auto found = known_channel_parts(name);
    if (!found) return std::string("none");
    return found->variable + (found->level.empty() ? std::string() : " at " + found->level);
  };
  CHECK(parts("u10") == "u10");
  CHECK(parts("10m_u_component_of_wind") == "u10");
  CHECK(parts("2t") == "t2m");
  CHECK(parts("u1000") == "u at 1000");
  CHECK(parts("u_component_of_wind_850") == "u at 850");
  CHECK(parts("z_50") == "z at 50");
  CHECK(parts("tcwv") == "tcwv");
  for (const char* unknown : {"t", "temperature", "c0", "t0", "sp850", "", "850", "x850"}) {
    INFO(unknown);
    CHECK(parts(unknown) == "none");
  }
}

TEST_CASE("channel weights: numbers as they are, by name, and 1 for what is not named") {
  const Names names{"u10", "t2m", "t850"};
  CHECK(weights(Values{1, 0, 2.5}, names) == Values{1, 0, 2.5});
  const std::map<std::string, double> named{{"2m_temperature", 3}, {"u10", 0}};
  CHECK(weights(named, names) == Values{0, 3, 1});
  CHECK_THROWS_WITH(weights(std::map<std::string, double>{{"t85", 3}}, names),
                    "config key channel_weights names t85, which is not forecast; the nearest is t850");
  CHECK_THROWS_WITH(weights(std::map<std::string, double>{{"u10", 0}, {"t2m", 0}, {"t850", 0}}, names),
                    "config key channel_weights must have a weight above 0");
  CHECK_THROWS_WITH(weights(Values{1, 2}, names),
                    "config key channel_weights must hold 3 weights (n_out_channels), not 2");
  CHECK_THROWS_WITH(weights(Values{0, 0, 0}, names), "config key channel_weights must have a weight above 0");
  // Without names of channels a config's are believed until the data tell theirs.
  CHECK_NOTHROW(check_channel_weights(std::map<std::string, double>{{"t85", 0}}, 3, {}, "K"));
}

// The mean over levels of p / mean(p), as a weight of each: for t at 850 and 500 hPa 850/675/2 and 500/675/2.
TEST_CASE("channel weights: graphcast") {
  check_near(weights(preset("graphcast"), {"u10", "t2m", "msl", "t850", "t500", "z500", "tcwv"}),
             {0.1, 1, 0.1, 850.0 / 1350, 500.0 / 1350, 1, 0.1});
}

// 0.1, 1, 1, 0.85, 0.05, 0.01 with a sum of 3.01.
TEST_CASE("channel weights: makani_auto") {
  check_near(weights(preset("makani_auto"), {"u10", "t2m", "d2m", "t850", "z50", "tcc"}),
             {0.1 / 3.01, 1 / 3.01, 1 / 3.01, 0.85 / 3.01, 0.05 / 3.01, 0.01 / 3.01});
  // The seven variables without level that weigh a tenth, beside one that weighs 1.
  check_near(weights(preset("makani_auto"), {"u10", "v10", "tp", "sp", "msl", "tcwv", "sst", "t2m"}),
             {0.1 / 1.7, 0.1 / 1.7, 0.1 / 1.7, 0.1 / 1.7, 0.1 / 1.7, 0.1 / 1.7, 0.1 / 1.7, 1 / 1.7});
}

TEST_CASE("channel weights: change is the inverse variance of the normalised change, and presets are multiplied") {
  const Names names{"t2m", "t850"};
  check_near(weights(preset("change"), names, {20, 15}, {2, 5}), {100, 9});
  check_near(weights(Names{"graphcast", "change"}, names, {20, 15}, {2, 5}), {100, 9});
  check_near(weights(Names{"makani_auto", "change"}, names, {20, 15}, {2, 5}), {100 / 1.85, 9 * 0.85 / 1.85});
  CHECK(need_changes(preset("change")));
  CHECK(need_changes(Names{"graphcast", "change"}));
  CHECK_FALSE(need_changes(preset("graphcast")));
  CHECK_FALSE(need_changes(Values{1}));
}

TEST_CASE("channel weights: refused are unknown presets, names without level, and changes that nobody knows") {
  CHECK_THROWS_WITH(weights(preset("grafcast"), {"t2m"}),
                    "config key channel_weights names the weights grafcast; there are graphcast, makani_auto, change");
  CHECK_THROWS_WITH(weights(Names{"change", "makani"}, {"t2m"}, {1}, {1}),
                    "config key channel_weights names the weights makani; there are graphcast, makani_auto, change");
  for (const char* name : {"graphcast", "makani_auto"})
    CHECK_THROWS_WITH(weights(preset(name), {"t2m", "c1"}),
                      std::string("config key channel_weights is ") + name +
                          ", which goes by variables and levels, and the name of channel c1 tells neither; give its "
                          "weights by name, {\"c1\": 1}");
  CHECK_THROWS_WITH(weights(preset("change"), {"c0"}, {1}),
                    "config key channel_weights is change, and the standard deviations of the channels' change are not "
                    "known");
  CHECK_THROWS_WITH(weights(preset("change"), {"c0"}, {1}, {0}),
                    "config key channel_weights is change, and channel c0 never changes");
}

}  // namespace isobar::testing
