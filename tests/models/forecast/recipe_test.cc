// What a forecast's recipe leaves to the data: sizes that are null, names of channels, and the split of one folder.
#include "models/forecast/recipe.h"

#include "models/vit/options.h"
#include "tests/harness/data_files.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

TEST_CASE("the patch is the largest that divides both sides and leaves a hundred tokens") {
  CHECK(default_patch_size(32, 64) == 4);
  CHECK(default_patch_size(30, 44) == 2);
  CHECK(default_patch_size(7, 10) == 1);
  CHECK(default_patch_size(360, 720) == 8);
  CHECK(default_patch_size(80, 80) == 8);  // a hundred tokens
  CHECK(default_patch_size(72, 88) == 4);  // 99 of 8 x 8
  CHECK(default_patch_size(721, 1440) == 1);
}

TEST_CASE("sizes that are null come from the data, others stay") {
  RunConfig config = read_config(entries_of({"img_size=null", "patch_size=None", "n_in_channels=null",
                                             "n_out_channels=null", "time_features=null", "depth=2"}));
  ForecastRecipe& all = forecast_of(config);
  CHECK(all.wants_sizes());
  CHECK(all.fill_sizes({.channels = 3, .height = 30, .width = 44, .tells_time = true}, config.origins) ==
        "img_size [30,44], patch_size 2, n_in_channels 3, n_out_channels 3, time_features true");
  CHECK_FALSE(all.wants_sizes());
  config.check();
  CHECK(all.forecast.img_size == std::array<std::int64_t, 2>{30, 44});
  CHECK(all.vit.patch_size == 2);
  CHECK(all.forecast.n_in_channels == 3);
  CHECK(all.forecast.n_out_channels == 3);
  CHECK(all.forecast.time_features == true);

  RunConfig some =
      read_config(entries_of({"img_size=[24,40]", "patch_size=null", "n_in_channels=2", "n_out_channels=null"}));
  CHECK(forecast_of(some).fill_sizes({.channels = 3, .height = 30, .width = 44}, some.origins) ==
        "patch_size 2, n_out_channels 2");
  RunConfig none = read_config(entries_of({"depth=2"}));
  CHECK_FALSE(forecast_of(none).wants_sizes());
  CHECK(forecast_of(none).fill_sizes({.channels = 3, .height = 30, .width = 44}, none.origins) == "");
  CHECK(forecast_of(none).forecast.img_size == std::array<std::int64_t, 2>{360, 720});

  RunConfig wrong =
      read_config(entries_of({"img_size=null", "patch_size=8", "n_in_channels=null", "n_out_channels=null"}));
  forecast_of(wrong).fill_sizes({.channels = 3, .height = 30, .width = 44}, wrong.origins);
  CHECK_THROWS_WITH(wrong.check(), ContainsSubstring("config key img_size in the data must be a multiple of"));
}

TEST_CASE("one folder is split into what was asked for and the rest, else its last fifth is validation") {
  const auto [assignments, train, valid] = GENERATE(table<std::vector<std::string>, StepRange, StepRange>({
      {{"depth=2"}, {0, 80}, {80, 100}},
      {{"train_range=[0,70]"}, {0, 70}, {70, 100}},
      {{"train_range=[40,100]"}, {40, 100}, {0, 40}},
      {{"valid_range=[60,90]"}, {0, 60}, {60, 90}},
      {{"valid_range=[0,30]"}, {30, 100}, {0, 30}},
      {{"train_range=[0,10]", "valid_range=[50,60]"}, {0, 10}, {50, 60}},
  }));
  RunConfig config = read_config(entries_of(assignments));
  SplitOptions& split = forecast_of(config).split;
  split.complete_ranges(100);
  CHECK(split.train_range == train);
  CHECK(split.valid_range == valid);
  SplitOptions odd;
  odd.complete_ranges(27);
  CHECK(odd.train_range == StepRange{0, 21});
  CHECK(odd.valid_range == StepRange{21, 27});
  SplitOptions all;
  all.train_range = StepRange{0, 100};
  CHECK_THROWS_WITH(all.complete_ranges(100),
                    ContainsSubstring("config key train_range") && ContainsSubstring("none of"));
}

TEST_CASE("what is left to one folder of files is filled and told") {
  const TemporaryFolder folder;
  write_fields((folder / "2001.h5").string(), {10, 2, 30, 44});
  const std::string path = folder.path().string();
  RunConfig config = read_config(
      entries_of({"train_data_path=" + path, "valid_data_path=" + path, "img_size=null", "patch_size=null",
                  "n_in_channels=null", "n_out_channels=null", "time_features=null", "valid_range=[8,10]"}));
  const std::vector<std::string> told = config.complete_and_check();
  REQUIRE(told.size() == 2);
  CHECK(told[0] ==
        "from the data: img_size [30,44], patch_size 2, n_in_channels 2, n_out_channels 2, time_features false");
  CHECK(told[1] == "training and validation are parts of " + path + " (10 steps): train_range [0,8]");
  CHECK(forecast_of(config).split.train_range == StepRange{0, 8});
  CHECK(config.complete_and_check().empty());  // nothing is left
}

TEST_CASE("names that a file gives its channels are believed, c0 to c19 too") {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (int c = 0; c < 20; ++c) names.push_back("c" + std::to_string(c));
  const FieldsShape shape{2, 20, 2, 4};
  write_labelled_fields((folder / "2001.h5").string(), shape, {.names = names}, field_values(shape));
  write_fields((folder / "unnamed.h5").string(), shape);
  ForecastRecipe recipe;
  recipe.forecast.img_size = {2, 4};
  CHECK(recipe.channel_names_of(Era5Dataset({.paths = {(folder / "2001.h5").string()}})) == names);
  CHECK(recipe.channel_names_of(Era5Dataset({.paths = {(folder / "unnamed.h5").string()}})).front() == "u10");
}

}  // namespace
}  // namespace isobar::testing
