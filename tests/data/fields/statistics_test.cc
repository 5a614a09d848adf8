// Statistics against sums in long double, their files, and every check on loading them; latitude weights; pooled
// scores.
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/latitude.h"
#include "data/fields/statistics.h"
#include "data/files/npy.h"
#include "kernels/common/check.h"
#include "models/forecast/scores.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

using Shape = std::vector<std::int64_t>;

std::string statistics_refusal(const std::string& means, const std::string& stds, std::int64_t channels) {
  try {
    load_statistics(means, stds, channels);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("statistics: what fields cannot be divided by is refused by channel") {
  CHECK_NOTHROW(check_deviations({1e-30, 5}, "DIR"));
  CHECK_THROWS_WITH(check_deviations({1, 0}, "DIR"),
                    "DIR: the standard deviation of channel 1 is 0; it must be positive");
  CHECK_THROWS_WITH(check_deviations({1, 1e-42}, "DIR"),
                    ContainsSubstring("DIR: the standard deviation of channel 1 is ") &&
                        ContainsSubstring("; nothing can be divided by that in fp32"));
  CHECK_NOTHROW(check_deviations({std::numeric_limits<float>::min()}, "DIR"));
}

TEST_CASE("statistics: ragged years with a large mean, against long double, for any number of threads") {
  const testing::TemporaryFolder folder;
  const std::int64_t steps[] = {5, 3};
  std::vector<std::vector<float>> years;
  std::uint32_t state = 1;
  for (int y = 0; y < 2; ++y) {
    std::vector<float> values(static_cast<std::size_t>(steps[y] * 2 * 12));
    for (std::size_t i = 0; i < values.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      values[i] = static_cast<float>(state >> 8) * 0x1p-24f + (i / 12 % 2 ? 101325.0f : 0.0f);
    }
    testing::write_fields(folder / (std::to_string(2001 + y) + ".h5"), {steps[y], 2, 3, 4}, values);
    years.push_back(values);
  }
  const FieldSeries dataset({.paths = {folder.path()}});
  const ComputedStatistics one = compute_statistics(dataset, 1), three = compute_statistics(dataset, 3);
  CHECK(one.means == three.means);
  CHECK(one.stds == three.stds);
  CHECK(one.time_means == three.time_means);
  for (std::int64_t window_bytes : {1, 2 * 24 * 4, 3 * 24 * 4}) {  // one, two and three steps at a time
    const ComputedStatistics pieces = compute_statistics(dataset, 2, window_bytes);
    CHECK(pieces.means == one.means);
    CHECK(pieces.stds == one.stds);
    CHECK(pieces.time_means == one.time_means);
  }
  for (std::size_t c = 0; c < 2; ++c) {
    long double sum = 0, squares = 0, count = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& values : years)
        for (std::size_t i = 0; i < values.size(); ++i)
          if (i / 12 % 2 == c) {
            if (pass == 0) sum += values[i], ++count;
            if (pass == 1) squares += (values[i] - sum / count) * (values[i] - sum / count);
          }
    CHECK(std::abs(static_cast<double>(one.means[c] / (sum / count) - 1)) < 1e-14);
    CHECK(std::abs(static_cast<double>(one.stds[c] / std::sqrt(squares / count) - 1)) <
          1e-9);  // E[x²] - E[x]² would miss this by far
  }
  long double at_17 = 0;
  for (const auto& values : years)
    for (std::size_t i = 17; i < values.size(); i += 24) at_17 += values[i];
  CHECK(std::abs(static_cast<double>(one.time_means[17] / (at_17 / 8) - 1)) < 1e-14);

  const auto part = compute_statistics(FieldSeries({.paths = {folder.path()}, .range = StepRange{5, 6}}));
  CHECK(part.time_means[0] == static_cast<double>(years[1][0]));
}

TEST_CASE("statistics: differences of pairs without a hole, against numbers by hand, for any window and threads") {
  const testing::TemporaryFolder folder;
  // One channel of two points; a hole follows step 3.
  const std::vector<float> values = {1, 10, 2, 30, 4, 20, 8, 60, 100, 0, 103, 1};
  testing::write_labelled_fields(folder / "2001.h5", {6, 1, 1, 2}, {.names = {"t2m"}, .hours = {0, 6, 12, 18, 48, 54}},
                                 values);
  const auto computed = [&](std::int64_t dt, const StepRange& range, int threads, std::int64_t window_bytes) {
    return compute_statistics(FieldSeries({.paths = {folder / "2001.h5"}, .dt = dt, .range = range}), threads,
                              window_bytes, TimeDifferences::computed);
  };
  for (const std::int64_t window_bytes : {1, 16, 1 << 20})
    for (const int threads : {1, 3}) {
      // 1 20, 2 -10, 4 40, then 3 1: mean 61/8, squares 2131.
      const ComputedStatistics one = computed(1, {0, 6}, threads, window_bytes);
      CHECK(one.pairs == 4);
      CHECK(one.time_diff_stds[0] == testing::Approx(std::sqrt(2131.0 / 8 - 61.0 / 8 * 61.0 / 8)).epsilon(1e-14));
      // 3 10, 6 30.
      const ComputedStatistics two = computed(2, {0, 6}, threads, window_bytes);
      CHECK(two.pairs == 2);
      CHECK(two.time_diff_stds[0] == testing::Approx(std::sqrt(1045.0 / 4 - 12.25 * 12.25)).epsilon(1e-14));
      CHECK(two.time_means == one.time_means);
      // A range: steps 2 to 4, whose only pair is 2 and 3: 4 40. Means of 4 20, 8 60, 100 0.
      const ComputedStatistics part = computed(1, {2, 5}, threads, window_bytes);
      CHECK(part.pairs == 1);
      CHECK(part.time_diff_stds == std::vector<double>{18});
      CHECK(part.means[0] == testing::Approx(32).epsilon(1e-14));
      CHECK(part.time_means[1] == testing::Approx(80.0 / 3).epsilon(1e-14));
      CHECK(computed(5, {0, 6}, threads, window_bytes).time_diff_stds.empty());
      CHECK(computed(6, {0, 6}, threads, window_bytes).pairs == 0);
    }
  const FieldSeries all({.paths = {folder / "2001.h5"}});
  const ComputedStatistics with = compute_statistics(all, 2, 16, TimeDifferences::computed),
                           without = compute_statistics(all, 2, 16);
  CHECK(without.time_diff_stds.empty());
  CHECK(with.means == without.means);
  CHECK(with.stds == without.stds);
  CHECK(with.time_means == without.time_means);

  const std::string stats = folder / "stats";
  write_statistics(with, 1, 2, stats);
  CHECK(read_npy(stats + "/time_diff_stds.npy").shape == Shape{1, 1, 1, 1});
  CHECK(read_npy(stats + "/time_diff_stds.npy").values == with.time_diff_stds);
  CHECK(load_time_diff_stds(stats + "/time_diff_stds.npy", std::vector<std::string>{"t2m"}) == with.time_diff_stds);
  CHECK_THROWS_WITH(load_time_diff_stds(stats + "/time_diff_stds.npy", std::vector<std::string>{"sst"}),
                    stats + "/stats.json has no channel sst");
  write_statistics(without, 1, 2, stats);
  CHECK_FALSE(std::filesystem::exists(stats + "/time_diff_stds.npy"));  // it was of other data
}

TEST_CASE("statistics: NaN in the fields is refused") {
  const testing::TemporaryFolder folder;
  std::vector<float> values = testing::field_values({4, 1, 2, 2});
  values[9] = std::numeric_limits<float>::quiet_NaN();
  testing::write_fields(folder / "2001.h5", {4, 1, 2, 2}, values);
  const FieldSeries dataset({.paths = {folder / "2001.h5"}});
  CHECK_THROWS_WITH(compute_statistics(dataset, 2), ContainsSubstring("2001.h5: step 2, channel 0 holds NaN"));
}

TEST_CASE("statistics: points that a channel may miss are left out, and those that never have a value are listed") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const testing::TemporaryFolder folder;
  // Two channels of three points in three steps: the first misses its last point always, and its second one once.
  testing::write_labelled_fields(folder / "2001.h5", {3, 2, 1, 3}, {.names = {"sst", "t2m"}, .hours = {0, 6, 12}},
                                 {1, 2, kNan, 7, 8, 9, 3, kNan, kNan, 7, 8, 9, 5, 4, kNan, 7, 8, 9});
  const ComputedStatistics made = compute_statistics(FieldSeries({.paths = {folder / "2001.h5"}, .missing = {"sst"}}),
                                                     2, 1, TimeDifferences::computed);
  CHECK(made.means == std::vector<double>{3, 8});
  CHECK(made.stds[0] == testing::Approx(std::sqrt(2.0)).epsilon(1e-15));
  CHECK(made.time_means == std::vector<double>{3, 3, 3, 7, 8, 9});  // where there is none the channel's mean
  CHECK(made.never_there == std::vector<std::uint8_t>{0, 0, 1, 0, 0, 0});
  CHECK(made.time_diff_stds == std::vector<double>{0, 0});
  const std::string stats = folder / "stats";
  write_statistics(made, 1, 3, stats);
  CHECK(load_never_there(stats, 2, 1, 3) == made.never_there);
  CHECK(load_never_there(stats, 2, 1, 2) == std::vector<std::uint8_t>(4, 0));
  ComputedStatistics others = made;
  others.never_there.clear();
  write_statistics(others, 1, 3, stats);
  CHECK(load_never_there(stats, 2, 1, 3).empty());  // a list of other data would hide points
}

TEST_CASE("statistics: files are written in the tutorial's shapes and read back") {
  const testing::TemporaryFolder folder;
  ComputedStatistics made;
  made.means = {1.5, -2};
  made.stds = {0.1, 3};
  for (int i = 0; i < 2 * 3 * 4; ++i) made.time_means.push_back(i);
  const std::string stats = folder / "new/stats";
  write_statistics(made, 3, 4, stats);
  CHECK(read_npy(stats + "/global_stds.npy").shape == Shape{1, 2, 1, 1});
  CHECK(read_npy(stats + "/time_means.npy").shape == Shape{1, 2, 3, 4});
  const Statistics loaded = load_statistics(stats + "/global_means.npy", stats + "/global_stds.npy", 2);
  CHECK(loaded.means == made.means);
  CHECK(loaded.stds == made.stds);
  CHECK(load_time_means(stats + "/time_means.npy", 2, 3, 4) == made.time_means);
  CHECK(load_time_means(stats + "/time_means.npy", 2, 2, 3) ==
        std::vector<double>{0, 1, 2, 4, 5, 6, 12, 13, 14, 16, 17, 18});
  CHECK_THROWS_WITH(load_time_means(stats + "/time_means.npy", 2, 4, 4),
                    ContainsSubstring("time_means.npy has shape (1, 2, 3, 4); expected (1, 2, 4, 4) or a larger grid"));
  CHECK_THROWS_AS(load_time_means(stats + "/time_means.npy", 3, 3, 4), Error);
  std::vector<float> with_nan(12, 1.0F);
  with_nan[7] = std::numeric_limits<float>::quiet_NaN();  // row 1, column 3
  write_npy(stats + "/time_means.npy", Shape{1, 1, 3, 4}, std::span<const float>(with_nan));
  CHECK_THROWS_WITH(load_time_means(stats + "/time_means.npy", 1, 3, 4), stats + "/time_means.npy holds NaN");
  CHECK(load_time_means(stats + "/time_means.npy", 1, 3, 3) == std::vector<double>(9, 1.0));
}

TEST_CASE("statistics: what cannot normalise is refused by name") {
  const testing::TemporaryFolder folder;
  const std::string means = folder / "means.npy", stds = folder / "stds.npy";
  const auto write = [](const std::string& path, const Shape& shape, const std::vector<float>& values) {
    write_npy(path, shape, std::span<const float>(values));
  };
  write(means, {1, 2, 1, 1}, {1, 2});
  write(stds, {1, 2, 1, 1}, {1, 2});
  CHECK(statistics_refusal(means, stds, 2) == "accepted");
  CHECK(statistics_refusal(means, stds, 3) == means + " has shape (1, 2, 1, 1); expected (1, 3, 1, 1)");
  write(stds, {2}, {1, 2});
  CHECK(statistics_refusal(means, stds, 2) == stds + " has shape (2,); expected (1, 2, 1, 1)");
  write(stds, {1, 2, 1, 1}, {1, 0});
  CHECK(statistics_refusal(means, stds, 2) == stds + ": the standard deviation of channel 1 is 0; it must be positive");
  write(stds, {1, 2, 1, 1}, {-1, 1});
  CHECK(statistics_refusal(means, stds, 2) ==
        stds + ": the standard deviation of channel 0 is -1; it must be positive");
  write(stds, {1, 2, 1, 1}, {1, std::numeric_limits<float>::quiet_NaN()});
  CHECK(statistics_refusal(means, stds, 2) == stds + " holds NaN");
  write(means, {1, 2, 1, 1}, {1, std::numeric_limits<float>::infinity()});
  CHECK(statistics_refusal(means, stds, 2) == means + " holds an infinity");
}

TEST_CASE("latitude weights: the tutorial's, to the digits known") {
  const std::vector<double> w = tutorial_latitude_weights(360);
  CHECK(std::abs(w[0] / -5.786e-6 - 1) < 1e-3);
  CHECK(std::abs(w[359] / w[0] - 1) < 1e-9);
  CHECK(std::abs(w[1] - 0.01377845) < 1e-8);
  CHECK(std::abs(w[89] - 1.10648811) < 1e-8);
  CHECK(std::abs(w[179] - 1.57517049) < 1e-8);
  CHECK(std::abs(w[180] - 1.57517049) < 1e-8);
  double sum = 0;
  for (double weight : w) sum += weight;
  CHECK(std::abs(sum - 360) < 1e-9);
  CHECK_THROWS_AS(tutorial_latitude_weights(1), Error);
}

TEST_CASE("latitude weights: latitudes without any weight are refused") {
  CHECK_THROWS_WITH(latitude_weights(std::vector<double>{90.001, -90.001}),
                    ContainsSubstring("the latitudes have no weight: the sum of their cosines is -"));
  CHECK_THROWS_WITH(tutorial_latitude_weights(1), "img_size leaves 1 row, and latitude weights need at least two");
  CHECK(latitude_weights(std::vector<double>{-30}) == std::vector<double>{1});
}

TEST_CASE("latitude weights: true latitudes where the file has them") {
  const std::vector<double> w = latitude_weights(std::vector<double>{60, 0});
  CHECK(w[0] == testing::Approx(2 * 0.5 / 1.5));
  CHECK(w[1] == testing::Approx(2 * 1.0 / 1.5));

  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {2, 1, 4, 2});
  CHECK(latitude_weights(FieldSeries({.paths = {folder / "2001.h5"}, .height = 3})) == tutorial_latitude_weights(3));
  auto file = hdf5::File::create(folder / "2002.h5");
  const testing::FieldsShape shape = {1, 1, 3, 1};
  file.write("fields", shape, std::span<const float>(testing::field_values(shape)));
  file.write("lat", std::array<std::int64_t, 1>{3}, std::span<const float>(std::vector<float>{60, 0, -60}));
  file.close();
  CHECK(latitude_weights(FieldSeries({.paths = {folder / "2002.h5"}, .height = 2})) == w);
}

TEST_CASE("latitude weights: a band's are the whole grid's") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {2, 1, 6, 2});
  const FieldSeries dataset({.paths = {folder / "2001.h5"}, .height = 5});
  const std::vector<double> all = tutorial_latitude_weights(5);
  CHECK(latitude_weights(dataset, {1, 3}) == std::vector<double>(all.begin() + 1, all.begin() + 4));
  CHECK(latitude_weights(dataset, {4, 1}) == std::vector<double>{all[4]});  // one row is enough
  CHECK_THROWS_WITH(latitude_weights(dataset, {4, 2}), ContainsSubstring("no band of the 5 rows"));
}

TEST_CASE("scores: pooled, and as the mean of samples") {
  // Two samples of two channels on 4 pixels: sums of w e², w p t, w p², w t².
  ScoreTotals totals(2, 4);
  totals.add(std::vector<double>{16, 1, 2, 3, 0, 0, 1, 1});
  totals.add(std::vector<double>{4, 5, 6, 7, 36, 2, 4, 1});
  CHECK(totals.samples() == 2);
  CHECK(totals.rmse() == std::vector<double>{std::sqrt(20.0 / 8), std::sqrt(36.0 / 8)});
  CHECK(totals.mean_sample_rmse() == std::vector<double>{1.5, 1.5});
  CHECK(totals.acc() == std::vector<double>{6 / std::sqrt(8.0 * 10), 2 / std::sqrt(5.0 * 2)});
  CHECK_THROWS_WITH(totals.add(std::vector<double>(7)), "scores of 2 channels do not come in 7 numbers");
  CHECK(totals.raw().size() == 15);
  totals.add(std::vector<double>(16));  // two samples at once
  CHECK(totals.samples() == 4);
}

TEST_CASE("scores: of missing points neither sums nor samples know, and means are over what is present") {
  // Three samples of two channels on 4 pixels of weight 1 in the mean: the four sums, the weights present and missing.
  ScoreTotals totals(2, 4, true);
  totals.add(std::vector<double>{16, 1, 2, 3, 4, 0, /**/ 18, 2, 4, 1, 2, 2});
  totals.add(std::vector<double>{4, 5, 6, 7, 1, 3, /**/ 0, 0, 0, 0, 0, 4});  // nothing of the second channel
  CHECK(totals.samples() == 2);
  totals.add(std::vector<double>{0, 0, 0, 0, 0, 4, /**/ 0, 0, 0, 0, 0, 4});  // nothing at all
  CHECK(totals.samples() == 2);
  CHECK(totals.rmse() == std::vector<double>{std::sqrt(20.0 / 5), std::sqrt(18.0 / 2)});
  CHECK(totals.mean_sample_rmse() == std::vector<double>{2, 3});
  CHECK(totals.acc() == std::vector<double>{6 / std::sqrt(8.0 * 10), 2 / std::sqrt(4.0 * 1)});
  CHECK_THROWS_WITH(totals.add(std::vector<double>(8)), "scores of 2 channels do not come in 8 numbers");

  // A channel that is never there has no score; the other's is not touched by it.
  ScoreTotals never(2, 4, true);
  never.add(std::vector<double>{16, 1, 2, 3, 4, 0, /**/ 0, 0, 0, 0, 0, 4});
  CHECK(never.rmse()[0] == 2);
  CHECK(std::isnan(never.rmse()[1]));
  CHECK(std::isnan(never.mean_sample_rmse()[1]));
  CHECK(std::isnan(never.acc()[1]));
}

TEST_CASE("scores: where no point is missing, a mask changes no bit") {
  ScoreTotals plain(1, 3), masked(1, 3, true);
  for (const double error : {0.1, 0.7, 1.3}) {
    plain.add(std::vector<double>{error, 0.3, 0.2, 0.5});
    masked.add(std::vector<double>{error, 0.3, 0.2, 0.5, 2.9, 0});  // weights whose mean is not quite 1
  }
  CHECK(masked.rmse() == plain.rmse());
  CHECK(masked.mean_sample_rmse() == plain.mean_sample_rmse());
  CHECK(masked.acc() == plain.acc());
}

TEST_CASE("statistics: differences need a point that is there in both steps of a pair") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  // The first point is there in one step, the second one in the other.
  testing::write_labelled_fields(path, {2, 2, 1, 2}, {.names = {"t2m", "sst"}, .hours = {0, 6}},
                                 {1, 2, 3, kNan, 4, 5, kNan, 6});
  const FieldSeries series({.paths = {path}, .missing = {"sst"}});
  CHECK_THROWS_WITH(compute_statistics(series, 2, 1 << 20, TimeDifferences::computed),
                    path + ": channel sst has no point that is there in both steps of a pair");
  CHECK(compute_statistics(series, 2).time_means == std::vector<double>{2.5, 3.5, 3, 6});
}

TEST_CASE("statistics: of some channels they are read by name, with what is said of each, in the order asked for") {
  const testing::TemporaryFolder folder;
  ComputedStatistics made;
  made.means = {1, 2, 3};
  made.stds = {4, 5, 6};
  made.time_means = {10, 11, 20, 21, 30, 31};
  made.time_diff_stds = {7, 8, 9};
  made.labels = FieldLabels{{"t2m", "2m_dewpoint_temperature", "tp"}, {"K", "", "m"}, 6, {1, 1, 4}};
  const std::string stats = folder / "stats", means = stats + "/global_means.npy", stds = stats + "/global_stds.npy",
                    times = stats + "/time_means.npy", changes = stats + "/time_diff_stds.npy";
  write_statistics(made, 1, 2, stats);
  using Names = std::vector<std::string>;
  const Statistics some = load_statistics(means, stds, Names{"tp", "d2m"});
  CHECK(some.means == std::vector<double>{3, 2});
  CHECK(some.stds == std::vector<double>{6, 5});
  REQUIRE(some.labels);
  CHECK(some.labels->channel_names == Names{"tp", "d2m"});
  CHECK(some.labels->units == Names{"m", ""});
  CHECK(some.labels->step_hours == 6);
  CHECK(some.labels->summed == std::vector<std::int64_t>{4, 1});
  CHECK(load_time_means(times, Names{"tp", "t2m"}, 1, 2) == std::vector<double>{30, 31, 10, 11});
  CHECK(load_time_means(times, Names{"tp", "t2m"}, 1, 1) == std::vector<double>{30, 10});
  CHECK(load_time_diff_stds(changes, Names{"d2m"}) == std::vector<double>{8});
  CHECK_THROWS_WITH(load_statistics(means, stds, Names{"t2m", "sst"}), stats + "/stats.json has no channel sst");
  CHECK_THROWS_WITH(load_time_means(times, Names{"sst"}, 1, 2), stats + "/stats.json has no channel sst");
  // Without names the channels are as many, and in the same order.
  made.labels = FieldLabels{{}, {"K", "K", "m"}, 6};
  write_statistics(made, 1, 2, stats);
  CHECK(load_statistics(means, stds, Names{"a", "b", "c"}).means == made.means);
  CHECK_THROWS_WITH(load_statistics(means, stds, Names{"a", "b"}),
                    means + " has shape (1, 3, 1, 1); expected (1, 2, 1, 1)");
  CHECK(load_time_means(times, Names{"a", "b", "c"}, 1, 2) == made.time_means);
  made.time_diff_stds = {7, 0, 9};
  write_statistics(made, 1, 2, stats);
  CHECK_THROWS_WITH(load_time_diff_stds(changes, 3),
                    changes + ": the standard deviation of channel 1 is 0; it must be positive");
}

TEST_CASE("statistics: sums over steps are those of the steps that have them") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  testing::write_labelled_fields(path, {5, 2, 1, 1}, {.names = {"t2m", "tp"}, .hours = {0, 6, 12, 30, 36}},
                                 {1, 10, 2, 20, 3, 40, 4, 80, 6, 160});
  // Sums of two steps: 30 at step 1, 60 at step 2, 240 at step 4; step 3 follows a hole.
  const FieldSeries series({.paths = {path}, .sums = {"tp"}, .dt = 2});
  const ComputedStatistics made = compute_statistics(series, 1, 1 << 20, TimeDifferences::computed);
  CHECK(made.means[0] == testing::Approx(11.0 / 3).epsilon(1e-14));  // of the same steps
  CHECK(made.means[1] == testing::Approx(110).epsilon(1e-14));
  CHECK(made.time_means[1] == testing::Approx(110).epsilon(1e-14));
  REQUIRE(made.labels);
  CHECK(made.labels->summed == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("statistics: a channel that is missing everywhere has none") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  testing::write_labelled_fields(path, {2, 2, 1, 2}, {.names = {"t2m", "sst"}}, {1, 2, kNan, kNan, 3, 4, kNan, kNan});
  CHECK_THROWS_WITH(compute_statistics(FieldSeries({.paths = {path}, .missing = {"sst"}})),
                    path + ": channel sst is missing at every point of every step");
}
