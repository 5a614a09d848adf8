// Forecasts as users make them: from any start whose inputs exist, by date, beyond the data and across New Year, many
// at once, into files of every format; and what is refused.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/files/hdf5.h"
#include "data/files/stored_arrays.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/small_runs.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kRows = 4, kColumns = 8, kSteps = 24;
constexpr double kDecember29 = (17 * 365 + 4 - 3) * 24;  // 2017-12-29T00 in hours since 2001-01-01

// Steps [first, first + steps) of two channels and a forcing; six-hourly from 2017-12-29T00 on: New Year is step 12.
std::vector<float> weather(std::int64_t first, std::int64_t steps, std::int64_t channels, std::int64_t from_channel) {
  std::vector<float> values;
  for (std::int64_t t = first; t < first + steps; ++t)
    for (std::int64_t c = from_channel; c < from_channel + channels; ++c)
      for (std::int64_t i = 0; i < kRows * kColumns; ++i)
        values.push_back(static_cast<float>(
            280 + 5 * std::sin(0.7 * static_cast<double>(t + i % kColumns) + static_cast<double>(c + i / kColumns))));
  return values;
}

std::vector<double> hours(std::int64_t first, std::int64_t steps) {
  std::vector<double> list;
  for (std::int64_t t = first; t < first + steps; ++t) list.push_back(kDecember29 + 6 * static_cast<double>(t));
  return list;
}

class Forecasts : public SmallRuns {
 public:
  Forecasts()
      : SmallRuns(
            " --config tiny --device cpu --threads 2 --set embed_dim=16 --set depth=1 --set num_heads=2"
            " --set patch_size=2 --set num_iters=4 --set warmup=2 --set global_batch_size=2 --set lr=1e-2 ") {
    write("whole/one", 0, kSteps);
    write("two/one", 0, 12);
    write("two/two", 12, kSteps - 12);
  }

  // Channels t2m and u10, and a forcing in a file of its own.
  void write(const std::string& name, std::int64_t first, std::int64_t steps, std::int64_t forcing_steps = -1) const {
    fs::create_directories(path(name).parent_path());
    const std::int64_t of_forcing = forcing_steps < 0 ? steps : forcing_steps;
    write_file(name, {"t2m", "u10"}, {"K", "m s-1"}, hours(first, steps), weather(first, steps, 2, 0));
    write_file(name + "_forcing", {"ssrd"}, {"J m-2"}, hours(first, of_forcing), weather(first, of_forcing, 1, 2));
  }
  void write_file(const std::string& name, const std::vector<std::string>& channels,
                  const std::vector<std::string>& units, const std::vector<double>& times,
                  const std::vector<float>& fields) const {
    hdf5::File file = hdf5::File::create(path(name + ".h5").string());
    file.write("fields", std::array{std::ssize(times), std::ssize(channels), kRows, kColumns},
               std::span<const float>(fields));
    file.write("channel", channels);
    file.write("units", units);
    file.write("time", std::array{std::ssize(times)}, std::span<const double>(times));
    file.write_attribute("time", "units", "hours since 2001-01-01");
    file.write("lat", std::array{kRows}, std::span<const double>(std::vector<double>{67.5, 22.5, -22.5, -67.5}));
    file.write("lon", std::array{kColumns},
               std::span<const double>(std::vector<double>{0, 45, 90, 135, 180, 225, 270, 315}));
    file.close();
  }
  void train_on(const std::string& data, const std::string& more = "") const {
    done(train("run", "--data " + path(data).string() + R"( --set 'channels=["t2m","u10"]' )" + more));
  }
  Outcome forecast(const std::string& data, const std::string& out, const std::string& more) const {
    return command("forecast --device cpu --threads 2 --weights " + path("run").string() + " --data '" +
                   path(data).string() + "'" + (out.empty() ? "" : " --out " + path(out).string()) + " " + more);
  }
  Json scores(const std::string& data, const std::string& more) const {
    done(forecast(data, "", "--scores " + path("scores.json").string() + " " + more));
    return Json::parse(file("scores.json"));
  }
  void refused(const Outcome& outcome, const std::string& words) const {
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(words));
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    CHECK_FALSE(fs::exists(path("no.nc")));
  }
  std::vector<float> values(const std::string& name, const std::string& variable) const {
    const auto arrays = open_stored_arrays(path(name).string());
    const std::vector<std::int64_t> shape = arrays->find(variable)->shape;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<float> all(static_cast<std::size_t>(count));
    arrays->open(variable)->read(std::vector<std::int64_t>(shape.size(), 0), shape, all.data());
    return all;
  }
};

const std::string kForced = R"(--set 'forcing_channels=["ssrd"]' --set 'computed_channels=["cos_latitude"]' )";

}  // namespace

TEST_CASE("forecasts: across New Year, from two files as from one, with truth and without, bit for bit") {
  const Forecasts here;
  here.train_on("whole", "--set time_features=true ");
  const std::string start = "--start 2017-12-31T12 --steps 6";
  here.done(here.forecast("whole", "whole.h5", start));
  here.done(here.forecast("two", "two.h5", start));
  CHECK((here.file("two.h5") == here.file("whole.h5")));
  const std::string apart = here.path("two/two.h5").string();
  const Outcome told = here.forecast("two/one.h5", "given_apart.h5", start + " --data " + apart);
  here.done(told);
  CHECK((here.file("given_apart.h5") == here.file("whole.h5")));
  CHECK_THAT(told.out,
             ContainsSubstring("written to " + here.path("given_apart.h5").string() +
                               ": the forecast from step 10 (2017-12-31T12:00), fields [lead 6, channel 2, 4, 8], HDF5 "
                               "that h5py, netCDF and xarray read\n"));
  const Outcome one = here.forecast("two/one.h5", "given_apart.nc", start + " --data " + apart);
  here.done(one);
  CHECK_THAT(one.out, ContainsSubstring(": 2 channels [time 1, prediction_timedelta 6, 4, 8], from step 10 "
                                        "(2017-12-31T12:00), that xarray reads\n"));
  CHECK_THAT(open_stored_arrays(here.path("given_apart.nc").string())->attributes().at("history").texts.at(0),
             ContainsSubstring(" --data " + here.path("two/one.h5").string() + " --data " + apart +
                               " --start 2017-12-31T12 --steps 6 (weights of iteration "));
  here.done(here.forecast("whole", "whole.nc", start));
  here.done(here.forecast("two", "two.nc", start));
  here.write("past/one", 0, 11);  // it ends with the start: no truth at all
  const Outcome none = here.forecast("past", "past.nc", start + " --scores " + here.path("s.json").string());
  here.done(none);
  CHECK_THAT(none.out, ContainsSubstring("the data have no truth at any lead: no scores"));
  const Json scores = Json::parse(here.file("s.json"));
  CHECK(scores.at("scored_starts") == Json(std::vector<int>(6, 0)));
  CHECK(scores.at("rmse").at("t2m") == Json(std::vector<Json>(6, nullptr)));
  for (const char* variable : {"t2m", "u10", "time", "prediction_timedelta"}) {
    CHECK(here.values("two.nc", variable) == here.values("whole.nc", variable));
    CHECK(here.values("past.nc", variable) == here.values("whole.nc", variable));
  }
  const FieldSeries series({.paths = {here.path("past.nc").string()}, .channels = {"t2m", "u10"}, .choose = true});
  CHECK(series.time_of(0).iso() == "2017-12-31T18:00");
  CHECK(series.time_of(5).iso() == "2018-01-02T00:00");
}

TEST_CASE("forecasts: every format has the same values, and every batch makes the same bits") {
  const Forecasts here;
  here.train_on("whole", kForced + "--set history=1 ");
  const std::string starts = "--starts 2017-12-29T06:2017-12-31T06:12h --steps 3 ";
  here.done(here.forecast("whole", "f.nc", starts + "--batch 1 --scores " + here.path("one.json").string()));
  const std::vector<float> t2m = here.values("f.nc", "t2m"), u10 = here.values("f.nc", "u10");
  REQUIRE(t2m.size() == 5 * 3 * kRows * kColumns);
  for (const std::string batch : {"--batch 2", "--batch 3", "--batch 5", "--batch 100", ""}) {
    CAPTURE(batch);
    here.done(here.forecast("whole", "g.nc", starts + batch + " --scores " + here.path("many.json").string()));
    CHECK(here.values("g.nc", "t2m") == t2m);
    CHECK(here.values("g.nc", "u10") == u10);
    CHECK(here.file("many.json") == here.file("one.json"));
  }
  for (const std::string more : {"", "--compress"}) {
    here.done(here.forecast("whole", "f.zarr", starts + more));
    CHECK(here.values("f.zarr", "u10") == u10);
    here.done(here.forecast("whole", "c.nc", starts + more));
    CHECK(here.values("c.nc", "u10") == u10);
    CHECK(((here.file("c.nc") == here.file("f.nc")) == more.empty()));
  }
  here.done(here.forecast("whole", "wb2.zarr", starts + "--wb2"));
  CHECK(here.values("wb2.zarr", "10m_u_component_of_wind") == u10);
  here.done(here.forecast("whole", "f.h5", starts));
  const hdf5::File h5 = hdf5::File::open(here.path("f.h5").string());
  std::vector<float> fields(3 * 2 * kRows * kColumns);
  h5.read("fields", std::array<std::int64_t, 4>{}, std::array<std::int64_t, 4>{3, 2, kRows, kColumns}, fields.data());
  for (std::size_t lead = 0; lead < 3; ++lead)
    for (std::size_t i = 0; i < kRows * kColumns; ++i) {
      REQUIRE(fields[2 * lead * kRows * kColumns + i] == t2m[lead * kRows * kColumns + i]);
      REQUIRE(fields[(2 * lead + 1) * kRows * kColumns + i] == u10[lead * kRows * kColumns + i]);
    }
  // What the files say they were made by.
  const Outcome told = here.forecast("whole", "f.nc", starts);
  here.done(told);
  CHECK_THAT(told.out, ContainsSubstring("written to " + here.path("f.nc").string() +
                                         ": 2 channels [time 5, prediction_timedelta 3, 4, 8], from step 1 "
                                         "(2017-12-29T06:00) to step 9 (2017-12-31T06:00), that xarray reads\n"));
  const std::string iteration = Json::parse(here.file("run/best/state.json")).at("trainer").at("iteration").dump();
  CHECK(open_stored_arrays(here.path("f.nc").string())->attributes().at("history").texts ==
        std::vector<std::string>{
            concat("isobar forecast --weights ", here.path("run").string(), " --data ", here.path("whole").string(),
                   " --starts 2017-12-29T06:2017-12-31T06:12h --steps 3 (weights of iteration ", iteration, ")")});
  // A start by its number is that of its date.
  here.done(here.forecast("whole", "number.h5", "--start 1 --steps 3"));
  CHECK((here.file("number.h5") == here.file("f.h5")));
}

TEST_CASE("forecasts: leads are scored where there is truth, and the number of starts is told") {
  const Forecasts here;
  here.train_on("whole");
  const Json json = here.scores("whole", "--starts 20:24 --steps 3");
  CHECK(json.at("starts") == 4);
  CHECK(json.at("scored_starts") == Json{3, 2, 1});
  const Json alone = here.scores("whole", "--start 20 --steps 3"),
             two = here.scores("whole", "--starts 20:22 --steps 2");
  CHECK(alone.at("rmse").at("t2m").at(2) == json.at("rmse").at("t2m").at(2));
  CHECK(two.at("rmse").at("t2m").at(1) == json.at("rmse").at("t2m").at(1));
  CHECK(two.at("persistence_rmse").at("u10").at(1) == json.at("persistence_rmse").at("u10").at(1));
  // Persistence by hand: the state of step 20 for that of step 21.
  const std::vector<float> before = weather(20, 1, 1, 0), after = weather(21, 1, 1, 0);
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double weight = std::cos((i / kColumns % 3 == 0 ? 67.5 : 22.5) * std::numbers::pi / 180);
    sum += weight * std::pow(static_cast<double>(after[i]) - static_cast<double>(before[i]), 2);
    weights += weight;
  }
  const double persistence = alone.at("persistence_rmse").at("t2m").at(0).get<double>();
  CHECK(std::abs(persistence / std::sqrt(sum / weights) - 1) < 1e-5);
  const Outcome table = here.forecast("whole", "", "--starts 20:24 --steps 4");
  CHECK_THAT(table.out, ContainsSubstring("  starts\n"));
  CHECK_THAT(table.out, ContainsSubstring("-            -       0\n"));  // no truth at +24 h

  // A start by date goes over a hole: leads are at their times. By the number of a step it is refused.
  std::vector<double> times = hours(0, 8);
  for (std::size_t i = 4; i < 8; ++i) times[i] += 6;  // step 4 is missing
  std::vector<float> fields = weather(0, 4, 2, 0), rest = weather(5, 4, 2, 0);
  fields.insert(fields.end(), rest.begin(), rest.end());
  fs::create_directories(here.path("hole"));
  here.write_file("hole/one", {"t2m", "u10"}, {"K", "m s-1"}, times, fields);
  const Json over = here.scores("hole", "--starts 2017-12-29T12:2017-12-29T12 --steps 4"),
             there = here.scores("whole", "--starts 2017-12-29T12:2017-12-29T12 --steps 4");
  CHECK(over.at("scored_starts") == Json{1, 0, 1, 1});
  for (const int lead : {0, 2, 3}) CHECK(over.at("rmse").at("u10").at(lead) == there.at("rmse").at("u10").at(lead));
  here.refused(here.forecast("hole", "no.nc", "--start 2 --steps 4"),
               concat("a forecast of 4 steps from step 2 crosses a hole in time of ", here.path("hole/one.h5").string(),
                      ": step 3 is 2017-12-29T18:00, step 4 is 2017-12-30T06:00; give the start as a date"));
  here.refused(here.forecast("hole", "no.nc", "--start 3 --steps 1"),
               "a forecast of 1 step from step 3 crosses a hole in time of ");
  here.done(here.forecast("hole", "", "--start 2 --steps 1 --scores " + here.path("s.json").string()));
  here.refused(here.forecast("hole", "no.nc", "--start 2 --steps 100001"),
               "a forecast of 100001 steps is longer than the 100000 that isobar makes");
}

TEST_CASE(
    "forecasts: forcings are read where the data have them, beyond the states too, else channel and time are told") {
  const Forecasts here;
  here.train_on("whole", kForced);
  here.write("past/one", 0, 11, 14);  // forcings for two more steps after the state of 2017-12-31T12 and one between
  here.done(here.forecast("whole", "whole.nc", "--start 2017-12-31T12 --steps 4"));
  here.done(here.forecast("past", "past.nc", "--start 2017-12-31T12 --steps 4"));
  CHECK(here.values("past.nc", "t2m") == here.values("whole.nc", "t2m"));
  // The forcing of the step after the start is read for the second lead, and not before.
  here.write("other/one", 0, 11, 14);
  std::vector<float> forcing = weather(0, 14, 1, 2);
  for (std::size_t i = 11 * kRows * kColumns; i < 12 * kRows * kColumns; ++i) forcing[i] += 3;
  here.write_file("other/one_forcing", {"ssrd"}, {"J m-2"}, hours(0, 14), forcing);
  here.done(here.forecast("other", "other.nc", "--start 2017-12-31T12 --steps 4"));
  const std::vector<float> other = here.values("other.nc", "t2m"), same = here.values("past.nc", "t2m");
  for (std::size_t lead = 0; lead < 4; ++lead) {
    const auto first = static_cast<std::ptrdiff_t>(lead * kRows * kColumns), end = first + kRows * kColumns;
    CHECK(std::equal(other.begin() + first, other.begin() + end, same.begin() + first) == (lead == 0));
  }
  here.refused(
      here.forecast("past", "no.nc", "--start 2017-12-31T12 --steps 5"),
      "a forecast of 5 steps from 2017-12-31T12:00 (step 10): the data have no ssrd at 2018-01-01T12:00, which "
      "the model reads as forcings");
  here.refused(here.forecast("past", "no.nc", "--start 2017-12-31T18 --steps 1"),
               "there is no t2m, u10 at 2017-12-31T18:00");
}

TEST_CASE("forecasts: what is computed of the time is that of a lead's own time, over a hole and beyond the data too") {
  const Forecasts here;
  here.train_on("whole", R"(--set 'computed_channels=["cos_zenith"]' --set time_features=true )");
  std::vector<double> times = hours(0, 8);
  for (std::size_t i = 4; i < 8; ++i)
    times[i] += 6;  // the fifth step is missing; the last one is that of 2017-12-31T00
  std::vector<float> fields = weather(0, 4, 2, 0);
  const std::vector<float> rest = weather(5, 4, 2, 0);
  fields.insert(fields.end(), rest.begin(), rest.end());
  fs::create_directories(here.path("hole"));
  here.write_file("hole/one", {"t2m", "u10"}, {"K", "m s-1"}, times, fields);
  for (const std::string start : {"2017-12-29T06", "2017-12-30T18"}) {
    const std::string arguments = "--start " + start + " --steps 9";
    here.done(here.forecast("whole", "whole.nc", arguments));
    here.done(here.forecast("hole", "hole.nc", arguments));
    for (const char* variable : {"t2m", "u10", "time", "prediction_timedelta"}) {
      INFO(start << ' ' << variable);
      CHECK(here.values("hole.nc", variable) == here.values("whole.nc", variable));
    }
  }
}

TEST_CASE(
    "forecasts: sums of steps are forecast from where the data have all their steps, and scored where they have") {
  const Forecasts here;
  here.train_on("whole", R"(--set dt=2 --set 'accumulate=["u10"]' )");
  here.refused(here.forecast("whole", "no.nc", "--start 0 --steps 1"),
               "a forecast of 1 step from 2017-12-29T00:00 (step 0): the data have not the 1 steps before it that its "
               "sums need (config key accumulate)");
  const Json json = here.scores("whole", "--starts 1:22:10 --steps 2");
  CHECK(json.at("lead_steps") == Json{2, 4});
  CHECK(json.at("scored_starts") == Json{3, 2});  // from 1, 11 and 21, to 23 and 25, which is beyond the end
}

TEST_CASE("forecasts: what a start lacks, and outputs that would replace inputs, are refused") {
  const Forecasts here;
  here.train_on("whole", "--set history=2 --set boundary_width=1 --set rollout=2 ");
  here.refused(here.forecast("whole", "no.nc", "--start 2017-12-29T06 --steps 2"),
               "the data have no 2 earlier states before it, which the model reads: no t2m from 2017-12-28T18:00");
  here.refused(here.forecast("whole", "no.nc", "--start 2018-01-03T18 --steps 2"),
               "the data have no t2m at 2018-01-04T00:00, whose edges the model reads");
  here.done(here.forecast("whole", "data.zarr", "--start 4 --steps 4"));
  here.done(here.forecast("whole", "data.nc", "--start 4 --steps 4"));
  for (const char* data : {"data.zarr", "data.nc"})
    here.refused(here.forecast(data, data, "--start 2 --steps 1"), " would replace the data");
  here.refused(here.forecast("data.zarr", "data.zarr/f.nc", "--start 2 --steps 1"), " would replace the data");
  here.refused(here.forecast("*.nc", "data.nc", "--start 2 --steps 1"), " would replace the data");
  here.refused(here.forecast("whole", "whole", "--start 4 --steps 1"), "whole is a folder");
  here.refused(here.forecast("whole", "f.grib", "--start 4 --steps 1"), "isobar writes no grib");
}

TEST_CASE("forecasts: a lead time in hours is the steps of the data at hand, and what --set gives is checked") {
  const Forecasts here;
  here.train_on("whole", "--set lead_time=12h ");
  // Every other step of the same weather.
  std::vector<float> fields;
  std::vector<double> times;
  for (std::int64_t step = 0; step < kSteps; step += 2) {
    const std::vector<float> one = weather(step, 1, 2, 0);
    fields.insert(fields.end(), one.begin(), one.end());
    times.push_back(hours(step, 1).front());
  }
  fs::create_directories(here.path("half"));
  here.write_file("half/one", {"t2m", "u10"}, {"K", "m s-1"}, times, fields);
  const std::string start = "--start 2017-12-30T00 --steps 3 ";
  const Outcome told = here.forecast("whole", "whole.nc", start), half = here.forecast("half", "half.nc", start);
  here.done(told);
  here.done(half);
  CHECK(told.out.find("from the data: ") == told.out.npos);  // every size is that of the weights
  CHECK(half.out.find("from the data: ") == half.out.npos);
  for (const char* variable : {"t2m", "u10", "time", "prediction_timedelta"})
    CHECK(here.values("half.nc", variable) == here.values("whole.nc", variable));
  CHECK_THAT(told.out, ContainsSubstring("+12 h") && ContainsSubstring("+36 h"));
  here.refused(here.forecast("whole", "no.nc", start + "--set lead_time=9h"),
               "config key lead_time is 9h, which is no multiple of the 6 hours from step to step of ");
  // Keys that a forecast does not use are checked too, as those of any config.
  here.refused(here.forecast("whole", "no.nc", start + "--set lr=-1"), "config key lr in --set must be ");
  here.refused(here.forecast("whole", "no.nc", start + "--set patch_size=3"),
               "must be a multiple of patch_size (3), not 4");
}

TEST_CASE("data stats counts the files that hold steps, those of channels that lie beside each other too") {
  const Forecasts here;
  const auto said = [&](const std::string& arguments) {
    const Outcome outcome = here.command("data stats --out " + here.path("s").string() + " " + arguments);
    here.done(outcome);
    return outcome.out;
  };
  const std::string whole = here.path("whole").string(), two = here.path("two").string();
  CHECK_THAT(said(whole + " --channels u10,ssrd"),
             ContainsSubstring("\n24 steps of 2 files, 23 pairs of them 6 hours"));
  CHECK(Json::parse(here.file("s/stats.json")).at("channels") == Json{"u10", "ssrd"});
  CHECK_THAT(said(two + " --channels ssrd,u10"), ContainsSubstring("\n24 steps of 4 files, 23 pairs of them 6 hours"));
  CHECK(Json::parse(here.file("s/stats.json")).at("channels") == Json{"ssrd", "u10"});
  CHECK_THAT(said(two + " --channels ssrd --range 12 24 --dt 2"),
             ContainsSubstring("\n12 steps of 1 file, 10 pairs of them 12 hours apart"));
}

// Which moments meet the middle of a file depends on the machine; tests/data/forecasts/writer_test.cc has the end of a
// writer at any moment for certain.
TEST_CASE("forecasts: killed at random moments, no half file has the name of one") {
  const Forecasts here;
  here.train_on("whole");
  const std::string starts = "--starts 0:23 --steps 8";
  for (const char* name : {"k.nc", "k.zarr"}) {
    CAPTURE(name);
    const auto begin = std::chrono::steady_clock::now();
    here.done(here.forecast("whole", name, starts));
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
    const std::vector<float> t2m = here.values(name, "t2m");
    fs::remove_all(here.path(name));
    std::minstd_rand random(3);
    for (int kills = 0; kills < 8;) {
      const auto moment = static_cast<useconds_t>(random() % static_cast<std::uint64_t>(whole.count()));
      const Outcome outcome =
          isobar_command(here.path(),
                         "forecast --device cpu --weights " + here.path("run").string() + " --data " +
                             here.path("whole").string() + " --out " + here.path(name).string() + " " + starts,
                         [&](pid_t child) {
                           ::usleep(moment);
                           ::kill(child, SIGKILL);
                         });
      kills += outcome.status == 0 ? 0 : 1;
      if (fs::exists(here.path(name))) CHECK(here.values(name, "t2m") == t2m);
      fs::remove_all(here.path(name));
    }
    here.done(here.forecast("whole", name, starts));
    CHECK(here.values(name, "t2m") == t2m);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(here.path()))
    CHECK_FALSE(entry.path().filename().string().starts_with(".k"));  // the next writer removed what was left
}

}  // namespace isobar::testing
