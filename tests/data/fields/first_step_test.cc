// The sentence that refuses a first step far off its statistics; tests/apps/fit_test.cc has how far that may be.
#include "data/fields/first_step.h"

#include <cmath>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/statistics.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("first step: the step is counted within its file, and the channel told with both means") {
  const testing::TemporaryFolder folder;
  const std::string second = folder / "2002.h5";
  testing::write_fields(folder / "2001.h5", {2, 2, 1, 2}, std::vector<float>(8, 5));
  testing::write_fields(second, {2, 2, 1, 2}, {5, 5, 5, 5, 5, 5, 26, 28});  // the last channel of the last step
  const FieldSeries series({.paths = {folder.path().string()}});
  const Statistics statistics{.means = {5, 5}, .stds = {1, 0.5}};
  CHECK_NOTHROW(check_first_step(series, 2, {"a", "b"}, statistics));
  CHECK_THROWS_WITH(check_first_step(series, 3, {"a", "b"}, statistics),
                    second +
                        ": step 1, channel b lies 44 standard deviations off its statistics: its mean is 27, "
                        "theirs is 5; is it in another unit?");
  // Deviations to both sides do not cancel.
  testing::write_fields(second, {2, 2, 1, 2}, {5, 5, 5, 5, -16, 26, 5, 5});
  CHECK_THROWS_WITH(check_first_step(FieldSeries({.paths = {second}}), 1, {"a", "b"}, statistics),
                    second +
                        ": step 1, channel a lies 21 standard deviations off its statistics: its mean is 5, "
                        "theirs is 5; is it in another unit?");
}

TEST_CASE("first step: points that a channel may miss count neither way") {
  const testing::TemporaryFolder folder;
  const float hole = std::nanf("");
  const std::string path = folder / "2001.h5";
  testing::write_labelled_fields(path, {2, 1, 2, 2}, {.names = {"sst"}}, {hole, 15, 15, hole, hole, hole, hole, hole});
  const FieldSeries series({.paths = {path}, .missing = {"sst"}});
  CHECK_NOTHROW(check_first_step(series, 0, {"sst"}, {.means = {0}, .stds = {1}}));
  CHECK_NOTHROW(check_first_step(series, 1, {"sst"}, {.means = {100}, .stds = {1}}));  // there is nothing to look at
  CHECK_THROWS_WITH(check_first_step(series, 0, {"sst"}, {.means = {0}, .stds = {0.5}}),
                    testing::ContainsSubstring("channel sst lies 30 standard deviations off"));
}
