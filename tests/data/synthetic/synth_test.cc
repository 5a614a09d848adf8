// The synthetic data set: the tutorial's layout, the same bytes for the same arguments, and weather that moves.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/fields/channels.h"
#include "data/fields/describe.h"
#include "data/fields/field_file.h"
#include "data/fields/field_series.h"
#include "data/fields/statistics.h"
#include "data/files/npy.h"
#include "data/synthetic/synth.h"
#include "data/synthetic/synthetic_atmosphere.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

SynthOptions small(const std::string& out) {
  return {.out = out,
          .train_years = 2,
          .valid_years = 1,
          .steps_per_year = 5,
          .height = 9,
          .width = 12,
          .channels = 21,
          .seed = 4,
          .threads = 1};
}

std::vector<std::string> files_below(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(std::filesystem::relative(entry.path(), folder).string());
  std::ranges::sort(names);
  return names;
}

// Root mean square of a row's change over six hours, the later row having been turned back by `columns`.
double change(const std::vector<float>& now, const std::vector<float>& later, std::size_t row, std::size_t width,
              std::size_t columns) {
  double sum = 0;
  for (std::size_t i = 0; i < width; ++i) {
    const double difference =
        static_cast<double>(later[row * width + (i + columns) % width]) - static_cast<double>(now[row * width + i]);
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(width));
}

}  // namespace

TEST_CASE("synth: the tutorial's layout, readable by the data set, with statistics of the training years") {
  const testing::TemporaryFolder folder;
  write_synthetic_data(small(folder / "a"));
  CHECK(files_below(folder / "a") == std::vector<std::string>{"stats/global_means.npy", "stats/global_stds.npy",
                                                              "stats/stats.json", "stats/time_means.npy",
                                                              "test/1982.h5", "train/1979.h5", "train/1980.h5",
                                                              "valid/1981.h5"});
  std::vector<std::string> names = tutorial_channel_names();
  names.push_back("c20");
  const FieldSeries train({.paths = {folder / "a/train"}, .channels = names});
  CHECK(train.steps() == 10);
  CHECK(std::string(train.file(0).how_it_is_read()) == "contiguous, pread");
  CHECK(train.latitudes().front() == 90);
  CHECK(train.latitudes().back() == -90);
  CHECK(train.longitudes()[3] == 90);
  CHECK(train.time_of(6).iso() == "1980-01-01T06:00");
  CHECK(train.labels().units.at(2) == "K");
  CHECK(train.labels().units.at(20) == "m/s");
  CHECK(train.labels().step_hours == 6);
  const ComputedStatistics expected = compute_statistics(train);
  const std::string stats = folder / "a/stats";
  const Statistics loaded = load_statistics(stats + "/global_means.npy", stats + "/global_stds.npy", 21);
  CHECK(loaded.means == expected.means);
  CHECK(loaded.stds == expected.stds);
  CHECK(load_time_means(stats + "/time_means.npy", 21, 9, 12) == expected.time_means);
}

TEST_CASE("data info: tells files, times, layout and statistics, and refuses what cannot be used") {
  const testing::TemporaryFolder folder;
  write_synthetic_data(small(folder / "a"));
  const std::string text = describe_data(folder / "a");
  CHECK_THAT(text, ContainsSubstring("2 files, 10 steps of 21 channels on 9 x 12"));
  CHECK_THAT(text, ContainsSubstring("1980.h5  5 steps  1980-01-01T00:00 to 1980-01-02T00:00  contiguous, pread"));
  CHECK_THAT(text, ContainsSubstring("channels: u10 v10 t2m"));
  CHECK_THAT(text, ContainsSubstring("latitudes: 90 to -90, longitudes: 0 to 330"));
  CHECK_THAT(text, ContainsSubstring("time means: 21 x 9 x 12"));
  CHECK_THAT(text, !ContainsSubstring("says nothing"));

  testing::write_fields(folder / "storm.h5", {3, 2, 2, 2}, 0, {.chunk = {1, 2, 2, 2}});
  CHECK_THAT(describe_data(folder / "storm.h5"),
             ContainsSubstring("storm.h5  3 steps  time unknown  chunks, pread (1, 2, 2, 2)"));
  CHECK_THAT(describe_data(folder / "storm.h5"), ContainsSubstring("statistics: none"));
  std::filesystem::create_directory(folder / "two");
  testing::write_fields(folder / "two/a.h5", {3, 2, 2, 2});
  testing::write_fields(folder / "two/b.h5", {2, 2, 2, 2}, 0, {.chunk = {1, 2, 2, 2}});
  CHECK_THAT(describe_data(folder / "two"),
             ContainsSubstring("    a.h5  3 steps  time unknown  contiguous, pread\n"
                               "    b.h5  2 steps  time unknown  chunks, pread (1, 2, 2, 2)\n"));
  write_npy(folder / "a/stats/global_stds.npy", std::array<std::int64_t, 1>{1},
            std::span<const double>(std::vector{1.0}));
  CHECK_THROWS_WITH(describe_data(folder / "a"), ContainsSubstring("global_stds.npy has shape (1,)"));
  for (const char* missing : {"global_stds.npy", "global_means.npy"}) {  // one without the other is no statistics
    std::filesystem::remove_all(folder / "a");
    write_synthetic_data(small(folder / "a"));
    std::filesystem::remove(folder / "a/stats" / missing);
    CHECK_THROWS_WITH(describe_data(folder / "a"), ContainsSubstring(std::string("stats/") + missing));
  }
  write_synthetic_data(small(folder / "a"));
  const auto write_time_means = [&](std::int64_t channels, std::int64_t width) {
    write_npy(folder / "a/stats/time_means.npy", std::array<std::int64_t, 4>{1, channels, 9, width},
              std::span<const double>(std::vector<double>(static_cast<std::size_t>(channels * 9 * width))));
  };
  write_time_means(20, 12);
  CHECK_THROWS_WITH(describe_data(folder / "a"),
                    ContainsSubstring("time_means.npy has shape (1, 20, 9, 12); expected (1, 21, 9, 12)"));
  write_time_means(21, 11);  // as a run with a cropped grid makes and takes them
  CHECK_THAT(describe_data(folder / "a"), ContainsSubstring("  time means: 21 x 9 x 11, of a crop"));
}

TEST_CASE("synth: no year is in two of training, validation and test") {
  const testing::TemporaryFolder folder;
  SynthOptions options = small(folder.path());
  options.valid_years = 2;
  write_synthetic_data(options);
  CHECK(files_below(folder.path()) == std::vector<std::string>{"stats/global_means.npy", "stats/global_stds.npy",
                                                               "stats/stats.json", "stats/time_means.npy",
                                                               "test/1983.h5", "test/1984.h5", "train/1979.h5",
                                                               "train/1980.h5", "valid/1981.h5", "valid/1982.h5"});
}

TEST_CASE("synth: every file starts with the first of January of its year, over leap years") {
  const testing::TemporaryFolder folder;
  write_synthetic_data({.out = folder.path(),
                        .train_years = 22,  // to 2000
                        .steps_per_year = 2,
                        .height = 2,
                        .width = 2,
                        .channels = 1,
                        .threads = 1});
  std::vector<std::string> names = files_below(folder.path());
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".h5"); });
  CHECK(names.size() == 22 + 1 + 1);
  for (const std::string& name : names) {
    INFO(name);
    const FieldSeries year({.paths = {folder / name}});
    CHECK(year.time_of(0).iso() == std::filesystem::path(name).stem().string() + "-01-01T00:00");
  }
}

TEST_CASE("synth: sizes beyond reason are refused before anything is made") {
  const testing::TemporaryFolder folder;
  const auto refused = [&](auto change, const char* sentence) {
    SynthOptions options = small(folder / "out");
    change(options);
    CHECK_THROWS_WITH(write_synthetic_data(options), ContainsSubstring(sentence));
  };
  refused([](SynthOptions& o) { o.train_years = 1000000000; }, "at most 1000 years to train");
  refused([](SynthOptions& o) { o.valid_years = 1001; }, "at most 1000 years to train");
  refused([](SynthOptions& o) { o.train_years = 1001; },
          "at most 1000 years to train and 1000 to validate with, not 1001");
  // The largest values are refused for nothing but the grid, which is looked at last.
  refused([](SynthOptions& o) { o.train_years = 1000, o.valid_years = 1000, o.height = 1; }, "--grid 1x12 needs");
  refused([](SynthOptions& o) { o.steps_per_year = 1460, o.width = 1; }, "--grid 9x1 needs at least two rows");
  refused([](SynthOptions& o) { o.steps_per_year = 2, o.width = 1; }, "--grid 9x1 needs");
  refused([](SynthOptions& o) { o.steps_per_year = 1; }, "--steps-per-year 1 is not between 2 and 1460");
  refused([](SynthOptions& o) { o.valid_years = 0; }, "at least one year to train and one to validate with");
  refused([](SynthOptions& o) { o.out = ""; }, "data synth needs a folder: --out");
  refused([](SynthOptions& o) { o.height = o.width = 2, o.channels = (1 << 26) + 1; },
          "make a step of more than the 268435456 values");
  refused([](SynthOptions& o) { o.channels = 1000000000; }, "--channels 1000000000 on --grid 9x12");
  refused([](SynthOptions& o) { o.height = o.width = 1000000; },
          "on --grid 1000000x1000000 make a step of more than the 268435456 values that data synth writes at most");
  refused([](SynthOptions& o) { o.height = o.width = std::int64_t{1} << 62; }, "on --grid ");
  CHECK(!std::filesystem::exists(folder / "out"));
}

TEST_CASE("synth: same arguments, same bytes, whatever the number of threads, and another seed is other weather") {
  const testing::TemporaryFolder folder;
  SynthOptions options = small(folder / "one");
  write_synthetic_data(options);
  options.out = folder / "three";
  options.threads = 3;
  write_synthetic_data(options);
  options.out = folder / "other";
  options.seed = 5;
  write_synthetic_data(options);
  for (const std::string& name : files_below(folder / "one")) {
    INFO(name);
    CHECK(read_file(folder / "one" / name) == read_file(folder / "three" / name));
    const bool same = name == "stats/stats.json";  // names, units and time step
    CHECK((read_file(folder / "one" / name) == read_file(folder / "other" / name)) == same);
  }
}

TEST_CASE("synth: values are those of an atmosphere") {
  const SyntheticAtmosphere atmosphere(19, 36, 20, 1);
  std::vector<float> fields(20 * 19 * 36);
  struct Range {
    std::size_t channel;
    float lowest, highest;
  };
  for (double hours : {0.0, 5000.0, 100000.0}) {
    atmosphere.fields(hours, fields.data());
    for (const Range& range : {Range{0, -60, 60}, Range{2, 220, 330}, Range{3, 85000, 108000}, Range{4, 90000, 108000},
                               Range{14, 44000, 64000}, Range{17, 0, 100}, Range{18, 0, 100}, Range{19, 0, 90}}) {
      INFO(tutorial_channel_names()[range.channel] << " after " << hours << " hours");
      const auto begin = fields.begin() + static_cast<std::ptrdiff_t>(range.channel * 19 * 36);
      const auto [low, high] = std::minmax_element(begin, begin + 19 * 36);
      CHECK(*low > range.lowest);
      CHECK(*high < range.highest);
      CHECK(*high - *low > 0.02f * (range.highest - range.lowest));
    }
    for (std::size_t row : {std::size_t{0}, std::size_t{18}})  // a pole is one point: scalars agree along its row
      for (std::size_t channel : {std::size_t{2}, std::size_t{4}, std::size_t{14}, std::size_t{19}}) {
        const auto begin = fields.begin() + static_cast<std::ptrdiff_t>((channel * 19 + row) * 36);
        const auto [low, high] = std::minmax_element(begin, begin + 36);
        CHECK(*high - *low <= 1e-6f * *high);
      }
  }
}

// Figures of the documentation and of measurements were made with this weather: a change of it must be meant.
TEST_CASE("synth: the weather of a seed stays what it is") {
  const std::int64_t channels = 21, height = 7, width = 9;
  const SyntheticAtmosphere atmosphere(height, width, channels, 3);
  std::vector<float> fields(static_cast<std::size_t>(channels * height * width));
  struct Expected {
    double hours;
    std::vector<double> sums;  // of each channel's values, the value at row h and column w taken (1 + 3 h + w) times
  };
  const Expected expected[] = {
      {0, {1334.24925, 29.2291871, 252299.911, 88766845.6, 89054076,   246056.509, 1670.73787,
           33.4047521, 526142.703, 3038.08501, -48.273116, 12067716.7, 6100.197,   -184.791358,
           47571801,   227518.977, 174565474,  50767.524,  50126.3683, 19445.4849, 44270.0806}},
      {3000, {1187.66158, 57.9410578, 250654.276, 88756620.5, 89043826.7, 244446.582, 1475.86815,
              66.2183723, 277636.916, 2593.49382, 201.625625, 11827263.8, 5110.42809, 374.301808,
              47355020.9, 225944.995, 174357606,  50935.3725, 50670.9012, 18100.0787, 44288.7073}},
      {123456.5, {1346.00768,  -100.429173, 252404.862, 88760152.5,  89047321.9, 246209.004, 1675.41358,
                  -114.776227, 525737.109,  2974.37729, -208.004492, 12077197.4, 5914.26612, -78.5031875,
                  47605745.8,  227651.272,  174595819,  50759.1747,  50703.1857, 19839.6396, 44084.7656}}};
  for (const auto& [hours, sums] : expected) {
    atmosphere.fields(hours, fields.data());
    REQUIRE(sums.size() == static_cast<std::size_t>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < height * width; ++i)
        sum += static_cast<double>(fields[static_cast<std::size_t>(c * height * width + i)]) *
               static_cast<double>(1 + 3 * (i / width) + i % width);
      INFO(atmosphere.channel_names()[static_cast<std::size_t>(c)] << " after " << hours << " hours: " << sum);
      CHECK(sum == testing::Approx(sums[static_cast<std::size_t>(c)]).epsilon(2e-6).margin(1e-2));
    }
  }
}

// docs/data.md: f ψ is the eddies' part of the geopotential, v the derivative of ψ to the east, -u the one to the
// north.
TEST_CASE("synth: the wind is that of the geopotential's gradient") {
  const std::int64_t height = 721, width = 720;
  const SyntheticAtmosphere atmosphere(height, width, 15, 2);  // u500, v500 and z500 are numbers 12 to 14
  const auto plane = static_cast<std::size_t>(height * width);
  std::vector<float> fields(15 * plane);
  atmosphere.fields(1234, fields.data());
  const auto at = [&](std::size_t channel, std::size_t row, std::size_t column) {
    return static_cast<double>(fields[channel * plane + row * static_cast<std::size_t>(width) + column]);
  };
  const auto psi = [&](std::size_t row, std::size_t column) {
    const double latitude = (90 - 0.25 * static_cast<double>(row)) * M_PI / 180;
    return at(14, row, column) / (2 * 7.292e-5 * 6.371e6 * std::sin(latitude));
  };
  const auto eddy_of_u = [&](std::size_t row, std::size_t column) {
    double mean = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) mean += at(12, row, i) / 720;
    return at(12, row, column) - mean;
  };
  const auto eddy_of_psi = [&](std::size_t row, std::size_t column) {
    double mean = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) mean += psi(row, i) / 720;
    return psi(row, column) - mean;
  };
  const double degree = M_PI / 180;
  for (const std::size_t row : {std::size_t{120}, std::size_t{200}, std::size_t{560}})
    for (const std::size_t column : {std::size_t{1}, std::size_t{250}, std::size_t{600}}) {
      const double cosine = std::cos((90 - 0.25 * static_cast<double>(row)) * degree);
      const double east = (psi(row, column + 1) - psi(row, column - 1)) / degree;  // half a degree each
      const double north = (eddy_of_psi(row - 1, column) - eddy_of_psi(row + 1, column)) / (0.5 * degree);
      INFO("row " << row << ", column " << column);
      CHECK(at(13, row, column) == testing::Approx(east / cosine).epsilon(0.01).margin(0.1));
      CHECK(eddy_of_u(row, column) == testing::Approx(-north).epsilon(0.01).margin(0.1));
    }
}

TEST_CASE("synth: the patterns move at the speed of the zonal index") {
  const SyntheticAtmosphere atmosphere(3, 4, 1, 7);
  CHECK(atmosphere.carried_hours(0) == 0);
  for (double hours : {10.0, 200.0, 5000.0}) {
    const double speed = (atmosphere.carried_hours(hours + 0.5) - atmosphere.carried_hours(hours - 0.5));
    CHECK(std::abs(speed - atmosphere.zonal_index(hours)) < 1e-5);
    CHECK(std::abs(speed - 1) > 1e-3);
  }
}

TEST_CASE("synth: the weather is far from persistent, and a forecaster who carries it eastwards is right") {
  const std::size_t width = 72, row = 9;  // 45 degrees north on a grid of 5 degrees
  const SyntheticAtmosphere atmosphere(37, static_cast<std::int64_t>(width), 2, 0);
  std::vector<float> now(2 * 37 * width), later(now.size());
  double persistence = 0, carried = 0, variance = 0;
  for (int t = 0; t < 40; ++t) {
    atmosphere.fields(6.0 * t, now.data());
    atmosphere.fields(6.0 * (t + 1), later.data());
    const std::vector<float> v(now.begin() + 37 * width, now.end()), v_later(later.begin() + 37 * width, later.end());
    double best = change(v, v_later, row, width, 0);
    persistence += best;
    for (std::size_t columns = 1; columns < 6; ++columns)
      best = std::min(best, change(v, v_later, row, width, columns));
    carried += best;
    variance += change(std::vector<float>(v.size()), v, row, width, 0);
  }
  INFO("root mean squares: wind " << variance / 40 << ", change " << persistence / 40 << ", carried " << carried / 40);
  CHECK(persistence > 0.4 * variance);
  CHECK(carried < 0.5 * persistence);
}

TEST_CASE("synth: what cannot be made is refused, and other years are not overwritten") {
  const testing::TemporaryFolder folder;
  const auto with = [&](auto change) {
    SynthOptions options = small(folder / "a");
    change(options);
    return options;
  };
  CHECK_THROWS_WITH(write_synthetic_data(with([](SynthOptions& o) { o.steps_per_year = 1461; })),
                    "--steps-per-year 1461 is not between 2 and 1460 (six-hourly)");
  CHECK_THROWS_WITH(write_synthetic_data(with([](SynthOptions& o) { o.height = 1; })),
                    ContainsSubstring("--grid 1x12"));
  CHECK_THROWS_WITH(write_synthetic_data(with([](SynthOptions& o) { o.channels = 0; })),
                    "--channels 0 is less than one");
  CHECK_THROWS_AS(write_synthetic_data(with([](SynthOptions& o) { o.train_years = 0; })), Error);
  CHECK(!std::filesystem::exists(folder / "a"));
  std::filesystem::create_directories(folder / "a/train");
  testing::write_text(folder / "a/train/2000.h5", "something else");
  CHECK_THROWS_WITH(
      write_synthetic_data(small(folder / "a")),
      (folder / "a/train/2000.h5").string() + " is not of the data set to be made here; choose another folder");
  CHECK(files_below(folder / "a") == std::vector<std::string>{"train/2000.h5"});
}
