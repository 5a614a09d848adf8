// What a config leaves to the data: sizes that are null, and the split of one folder.
#include "apps/train/from_data.h"

#include "models/config.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace {

ConfigEntries entries_of(const std::vector<std::string>& assignments) {
  ConfigEntries entries;
  for (const std::string& assignment : assignments) set_from_assignment(entries, assignment);
  return entries;
}

}  // namespace

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
  ConfigEntries all = entries_of({"img_size=null", "patch_size=None", "n_in_channels=null", "n_out_channels=null",
                                  "time_features=null", "depth=2"});
  CHECK(sizes_are_left_to_data(all));
  CHECK(fill_sizes(all, {.channels = 3, .height = 30, .width = 44, .tells_time = true}) ==
        "img_size [30,44], patch_size 2, n_in_channels 3, n_out_channels 3, time_features true");
  CHECK_FALSE(sizes_are_left_to_data(all));
  const Config config = config_from(all);
  CHECK(config.img_size == std::array<std::int64_t, 2>{30, 44});
  CHECK(config.patch_size == 2);
  CHECK(config.n_in_channels == 3);
  CHECK(config.n_out_channels == 3);
  CHECK(config.time_features);

  ConfigEntries some = entries_of({"img_size=[24,40]", "patch_size=null", "n_in_channels=2", "n_out_channels=null"});
  CHECK(fill_sizes(some, {.channels = 3, .height = 30, .width = 44}) == "patch_size 2, n_out_channels 2");
  ConfigEntries none = entries_of({"depth=2"});
  CHECK_FALSE(sizes_are_left_to_data(none));
  CHECK(fill_sizes(none, {.channels = 3, .height = 30, .width = 44}) == "");
  CHECK(none.size() == 1);

  ConfigEntries wrong = entries_of({"img_size=null", "patch_size=8", "n_in_channels=null", "n_out_channels=null"});
  fill_sizes(wrong, {.channels = 3, .height = 30, .width = 44});
  CHECK_THROWS_WITH(config_from(wrong), ContainsSubstring("config key img_size in the data must be a multiple of"));
}

TEST_CASE("one folder is split into what was asked for and the rest, else its last fifth is validation") {
  const auto [assignments, chosen] = GENERATE(table<std::vector<std::string>, std::string>({
      {{"depth=2"}, "train_range [0,80], valid_range [80,100]"},
      {{"train_range=[0,70]"}, "valid_range [70,100]"},
      {{"train_range=[40,100]"}, "valid_range [0,40]"},
      {{"valid_range=[60,90]"}, "train_range [0,60]"},
      {{"valid_range=[0,30]"}, "train_range [30,100]"},
      {{"train_range=[0,10]", "valid_range=[50,60]"}, ""},
  }));
  ConfigEntries entries = entries_of(assignments);
  CHECK(fill_ranges(entries, 100) == chosen);
  const Config config = config_from(entries);
  CHECK(((*config.train_range)[1] <= (*config.valid_range)[0] || (*config.valid_range)[1] <= (*config.train_range)[0]));
  ConfigEntries odd = entries_of({});
  CHECK(fill_ranges(odd, 27) == "train_range [0,21], valid_range [21,27]");
  ConfigEntries all = entries_of({"train_range=[0,100]"});
  CHECK_THROWS_WITH(fill_ranges(all, 100), ContainsSubstring("config key train_range") && ContainsSubstring("none of"));
}
