// What two sets may not share: steps of one file, by whichever name it is found.
#include "data/fields/split.h"

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
namespace fs = std::filesystem;

namespace {

FieldSeries steps_of(const fs::path& path, StepRange range) {
  return FieldSeries({.paths = {path.string()}, .range = range});
}

}  // namespace

TEST_CASE("split: a step of two sets is refused by whichever names they know its file") {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder / "train");
  fs::create_directories(folder / "valid");
  testing::write_fields(folder / "train/2018.h5", {8, 1, 2, 2});
  testing::write_fields(folder / "valid/2017.h5", {8, 1, 2, 2});
  fs::create_symlink(folder / "train/2018.h5", folder / "valid/2018.h5");
  fs::create_symlink("../train/2018.h5", folder / "valid/2019.h5");
  fs::create_directory_symlink(folder / "train", folder / "again");
  const fs::path file = fs::canonical(folder / "train/2018.h5");
  const FieldSeries train = steps_of(folder / "train", {0, 5});
  const auto refusal = [&](const std::string& path, StepRange range) {
    const FieldSeries valid = steps_of(folder / path, range);
    return testing::error_of([&] {
      refuse_overlap({train, "train_range", "trained"}, {valid, "valid_range", "validation"});
    });
  };
  for (const std::string path : {"train", "train/2018.h5", "train/../train/2018.h5", "valid/2018.h5", "valid/2019.h5",
                                 "again", "again/2018.h5", "again/../valid/2019.h5"}) {
    INFO(path);
    CHECK(refusal(path, {3, 8}) == "train_range and valid_range share steps 3 to 4 of " + file.string() +
                                       ": validation would look at what was trained on (config key allow_overlap "
                                       "permits it)");
    CHECK(refusal(path, {5, 8}) == "");
  }
  CHECK(refusal("valid/2017.h5", {0, 8}) == "");
  // Of a folder's second file steps count from 0 again.
  CHECK(refusal("valid", {0, 8}) == "");
  CHECK(refusal("valid", {12, 16}).starts_with("train_range and valid_range share steps 4 to 4 of " + file.string()));
}

TEST_CASE("split: each set has its own path, range and limit") {
  const testing::TemporaryFolder folder;
  SplitOptions split;
  split.train_data_path = "a";
  split.valid_data_path = "b";
  split.train_range = StepRange{0, 3};
  split.valid_range = StepRange{3, 5};
  split.limit_nsamples = 7;
  split.limit_nsamples_val = 8;
  CHECK_FALSE(split.has_test());
  CHECK_THROWS_WITH(split.source(DataSplit::test), "there is no test set: name one by the config key test_data_path");
  split.test_data_path = "c";
  split.test_range = StepRange{1, 2};
  const auto check = [&](DataSplit kind, const std::string& path, StepRange range, const std::string& key,
                         std::optional<std::int64_t> limit) {
    const SplitSource source = split.source(kind);
    CHECK(source.path == path);
    CHECK(std::get<StepRange>(*source.range) == range);
    CHECK(source.range_key == key);
    CHECK(source.limit == limit);
  };
  check(DataSplit::train, "a", {0, 3}, "train_range", 7);
  check(DataSplit::valid, "b", {3, 5}, "valid_range", 8);
  check(DataSplit::test, "c", {1, 2}, "test_range", std::nullopt);

  CHECK_FALSE(split.is_one_path());
  fs::create_directories(folder / "data");
  fs::create_directory_symlink(folder / "data", folder / "again");
  split.train_data_path = folder / "data";
  for (const char* same : {"data", "again", "data/.", "again/../data"}) {
    split.valid_data_path = (folder / same).string();
    CHECK(split.is_one_path());
  }
  split.valid_data_path = folder.path().string();
  CHECK_FALSE(split.is_one_path());
}

TEST_CASE("split: a null range is what the other one leaves, before it or behind it") {
  const auto completed = [](std::optional<RangeValue> train, std::optional<RangeValue> valid, std::int64_t steps) {
    SplitOptions split;
    split.train_range = train;
    split.valid_range = valid;
    split.complete_ranges(steps);
    return std::vector{std::get<StepRange>(*split.train_range), std::get<StepRange>(*split.valid_range)};
  };
  using Ranges = std::vector<StepRange>;
  CHECK(completed({}, {}, 100) == Ranges{{0, 80}, {80, 100}});
  CHECK(completed({}, {}, 11) == Ranges{{0, 8}, {8, 11}});
  CHECK(completed({}, {}, 2) == Ranges{{0, 1}, {1, 2}});
  CHECK(completed(StepRange{0, 60}, {}, 100) == Ranges{{0, 60}, {60, 100}});
  CHECK(completed(StepRange{40, 100}, {}, 100) == Ranges{{40, 100}, {0, 40}});
  CHECK(completed(StepRange{20, 60}, {}, 100) == Ranges{{20, 60}, {60, 100}});  // validation is what comes later
  CHECK(completed({}, StepRange{80, 100}, 100) == Ranges{{0, 80}, {80, 100}});
  CHECK(completed({}, StepRange{0, 20}, 100) == Ranges{{20, 100}, {0, 20}});
  CHECK(completed({}, StepRange{50, 60}, 100) == Ranges{{0, 50}, {50, 60}});  // training is what comes before
  CHECK(completed(StepRange{1, 2}, StepRange{5, 6}, 100) == Ranges{{1, 2}, {5, 6}});
  CHECK_THROWS_WITH(completed(StepRange{0, 100}, {}, 100),
                    "config key train_range is [0, 100) and leaves none of the 100 steps for the other set");
  CHECK_THROWS_WITH(completed({}, StepRange{0, 7}, 7),
                    "config key valid_range is [0, 7) and leaves none of the 7 steps for the other set");
}

TEST_CASE("split: a lead time is a number of minutes, hours or days, and of whole steps") {
  CHECK(hours_of_lead_time("6h", "x") == 6);
  CHECK(hours_of_lead_time("1.5h", "x") == 1.5);
  CHECK(hours_of_lead_time("90min", "x") == 1.5);
  CHECK(hours_of_lead_time("2d", "x") == 48);
  for (const char* bad : {"", "6", "h", "0h", "-6h", "6 h", "6H", "6hours", "infh", "nand"})
    CHECK_THROWS_WITH(
        hours_of_lead_time(bad, "config key lead_time"),
        "config key lead_time is '" + std::string(bad) + "', but a lead time is a number and min, h or d, as 6h");

  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5", untimed = folder / "b.h5";
  testing::write_labelled_fields(path, {4, 1, 2, 2}, {.hours = {0, 6, 12, 18}});
  testing::write_fields(untimed, {4, 1, 2, 2});
  const FieldSeries series({.paths = {path}});
  CHECK(steps_of_lead_time("6h", series) == 1);
  CHECK(steps_of_lead_time("1d", series) == 4);
  CHECK(steps_of_lead_time("360min", series) == 1);
  for (const char* bad : {"3h", "8h", "9h", "1min"})
    CHECK_THROWS_WITH(steps_of_lead_time(bad, series),
                      "config key lead_time is " + std::string(bad) +
                          ", which is no multiple of the 6 hours from step to step of " + path);
  CHECK_THROWS_WITH(steps_of_lead_time("8h", series, "valid_leads"),
                    "config key valid_leads has 8h, which is no multiple of the 6 hours from step to step of " + path);
  const FieldSeries none({.paths = {untimed}});
  CHECK_THROWS_WITH(steps_of_lead_time("6h", none),
                    "config key lead_time is 6h, but the time from step to step of " + untimed + " is unknown: set dt");
  CHECK_THROWS_WITH(steps_of_lead_time("6h", none, "valid_leads"),
                    "config key valid_leads has 6h, but the time from step to step of " + untimed + " is unknown");
}

TEST_CASE("split: a run that goes on may find its data elsewhere, and one of before a key has what was done then") {
  SplitOptions split;
  std::set<std::string> free, paths;
  std::map<std::string, std::string> older;
  for (const Key& key : split.keys().keys) {
    if (key.may_change_on_resume) free.insert(key.name);
    if (key.is_path) paths.insert(key.name);
    if (!key.older_value.empty()) older[key.name] = key.older_value;
  }
  const std::set<std::string> data{"train_data_path",   "valid_data_path",  "test_data_path",
                                   "global_means_path", "global_stds_path", "time_means_path"};
  CHECK(paths == data);
  std::set<std::string> all = data;
  all.insert("test_range");  // a third set, which a run is not trained by
  CHECK(free == all);
  CHECK(older == std::map<std::string, std::string>{{"allow_overlap", "true"}, {"span_files", "false"}});
  std::map<std::string, std::vector<std::string>> others;
  for (const Key& key : split.keys().keys)
    if (!key.other_names.empty()) others[key.name] = key.other_names;
  CHECK(others == std::map<std::string, std::vector<std::string>>{{"train_data_path", {"traindata"}},
                                                                  {"valid_data_path", {"validdata", "valdata"}},
                                                                  {"test_data_path", {"testdata"}},
                                                                  {"dt", {"timestep"}}});
}
