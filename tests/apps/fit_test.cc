// Nothing that does not fit is computed with: units, time step and holes, in training, resuming and forecasting, as the
// command meets them. Each refusal is one sentence, and leaves nothing behind.
#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/first_step.h"
#include "data/fields/statistics.h"
#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx;
using testing::ContainsSubstring;
using testing::FieldsShape;
using testing::isobar_command;
using testing::Labels;
using testing::Outcome;
using testing::write_labelled_fields;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kHeight = 4, kWidth = 8;
const std::vector<std::string> kNames = {"t2m", "u10"}, kUnits = {"K", "m s**-1"};

std::vector<double> hours_every(double step, std::int64_t steps) {
  std::vector<double> hours;
  for (std::int64_t t = 0; t < steps; ++t) hours.push_back(step * static_cast<double>(t));
  return hours;
}

// Temperatures about 280 (or as many degrees lower) and winds about 0.
std::vector<float> weather(std::int64_t steps, double lower = 0) {
  std::vector<float> values;
  for (std::int64_t t = 0; t < steps; ++t)
    for (std::int64_t i = 0; i < 2 * kHeight * kWidth; ++i) {
      const double wave = std::sin(2 * M_PI * static_cast<double>(i % kWidth - t) / kWidth) + std::sin(0.1 * i);
      values.push_back(static_cast<float>(i < kHeight * kWidth ? 280 - lower + 10 * wave : 5 * wave));
    }
  return values;
}

// Data in the tutorial's layout, six-hourly, with all labels, and a config of a very small model.
class Weather {
 public:
  Weather() {
    for (const char* part : {"train", "valid", "test"}) fs::create_directories(folder_ / "data" / part);
    write("train/2001", 16, {kNames, kUnits, hours_every(6, 16)});
    write("valid/2002", 5, {kNames, kUnits, hours_every(6, 5)});
    write("test/2003", 8, {kNames, kUnits, hours_every(6, 8)});
    std::ofstream(folder_ / "small.json") << R"({
      "embed_dim": 16, "depth": 1, "num_heads": 2, "patch_size": 4, "img_size": [4, 8], "n_in_channels": 2,
      "n_out_channels": 2, "global_batch_size": 2, "num_iters": 2, "lr": 1e-3})";
    statistics();
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }
  std::string file(const std::string& name) const { return *this / ("data/" + name + ".h5"); }
  void write(const std::string& name, std::int64_t steps, const Labels& labels, double lower = 0) const {
    write_labelled_fields(file(name), {steps, 2, kHeight, kWidth}, labels, weather(steps, lower));
  }

  Outcome run(const std::string& arguments) const { return isobar_command(folder_.path(), arguments); }
  void statistics() const {
    REQUIRE(run("data stats " + *this / "data/train" + " --out " + *this / "data/stats").status == 0);
  }
  Outcome train(const std::string& more = "") const {
    return run("train --config " + *this / "small.json" + " --data " + *this / "data" + " --run-dir " + *this / "run" +
               " --threads 1 --device cpu " + more);
  }
  Outcome forecast(const std::string& more = "--start 0") const {
    return run("forecast --weights " + *this / "run" + " --data " + *this / "data" +
               " --threads 1 --device cpu --out " + *this / "f.h5 " + more);
  }

 private:
  testing::TemporaryFolder folder_;
};

void check_done(const Outcome& outcome) {
  CHECK(outcome.err == "");
  CHECK(outcome.status == 0);
}

const std::vector<std::string> kCelsius = {"degC", "m/s"};

}  // namespace

TEST_CASE("what nobody says is not told as a fact, and doubted where the numbers cannot be it") {
  const Weather here;
  const auto write = [&](double lower) {
    for (const auto& [name, steps] : {std::pair("train/2001", 16), std::pair("valid/2002", 5)})
      here.write(name, steps, {kNames}, lower);
    fs::remove_all(here / "data/stats");
  };
  write(0);
  const Outcome kelvin = here.train();
  check_done(kelvin);
  CHECK_THAT(kelvin.out, !ContainsSubstring("  K\n") && !ContainsSubstring("m/s"));
  CHECK_THAT(kelvin.out,
             ContainsSubstring(here.file("train/2001") + " has no 'time', and its name and its 16 steps are "
                                                         "not those of a year: no hours are known\n"));
  CHECK(!SafetensorsFile(here / "run/best/model.safetensors").metadata().contains("isobar.units"));
  here.write("test/2003", 8, {kNames});
  check_done(here.forecast());  // nor by a forecast
  CHECK(!hdf5::File::open(here / "f.h5").has("units"));
  // Where the validation set alone tells no time, it is named.
  here.write("train/2001", 16, {kNames, {}, hours_every(6, 16)});
  const Outcome half = here.train("--overwrite");
  check_done(half);
  CHECK_THAT(half.out,
             ContainsSubstring(here.file("valid/2002") + " has no 'time', and its name and its 5 steps are "));
  write(273);
  const Outcome celsius = here.train("--overwrite");
  CHECK(celsius.status == 0);
  CHECK(std::count(celsius.err.begin(), celsius.err.end(), '\n') == 1);
  CHECK_THAT(celsius.err,
             ContainsSubstring("isobar: warning: channel t2m is said to be in no unit, and its mean of ") &&
                 ContainsSubstring(" cannot be in K"));
}

TEST_CASE("a channel that does not change has no statistics to be normalised with") {
  const Weather here;
  fs::remove_all(here / "data/stats");
  std::vector<float> values = weather(16);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i / (kHeight * kWidth) % 2 == 1) values[i] = 5;
  write_labelled_fields(here.file("train/2001"), {16, 2, kHeight, kWidth}, {kNames, kUnits, hours_every(6, 16)},
                        values);
  check_error(here.train(), "the training steps of " + here / "data/train" +
                                ": the standard deviation of channel 1 is 0; it must be positive");
}

TEST_CASE("units that are not those of the statistics are refused in training") {
  const Weather here;
  here.write("train/2001", 16, {kNames, kCelsius, hours_every(6, 16)});
  here.write("valid/2002", 5, {kNames, kCelsius, hours_every(6, 5)});
  check_error(here.train(),
              here.file("train/2001") + ": channel t2m is in degC, but in K in " + here / "data/stats/stats.json");
  fs::remove(here / "data/stats/stats.json");
  check_error(here.train(), here.file("train/2001") + ": channel t2m is in degC, but in K in the table of known names");
  here.statistics();
  check_done(here.train());
}

TEST_CASE("training and validation in different units or time steps are refused") {
  const Weather here;
  here.write("valid/2002", 5, {kNames, kCelsius, hours_every(6, 5)});
  check_error(here.train(),
              here.file("valid/2002") + ": channel t2m is in degC, but in K in " + here.file("train/2001"));
  here.write("valid/2002", 5, {kNames, kUnits, hours_every(3, 5)});
  check_error(here.train(),
              here.file("valid/2002") + ": its steps are 3 hours apart, but 6 hours in " + here.file("train/2001"));
  CHECK_FALSE(fs::exists(here / "run"));
}

TEST_CASE("statistics of another time step or of other channels are refused") {
  const Weather here;
  std::ofstream(here / "data/stats/stats.json") << R"({"channels": ["t2m", "u10"], "units": null, "step_hours": 1})";
  check_error(here.train(), here.file("train/2001") + ": its steps are 6 hours apart, but 1 hour in ");
  std::ofstream(here / "data/stats/stats.json") << R"({"channels": ["t2m", "v10"]})";
  check_error(here.train(), "channel 1 is 'u10', but 'v10' in ");
  std::ofstream(here / "data/stats/stats.json") << R"({"channels": )";
  check_error(here.train(), "stats.json");
}

TEST_CASE("a first step far off its statistics is refused by channel, file and step") {
  const Weather here;
  here.write("train/2001", 16, {kNames}, 273.15);  // nobody says that these are degrees Celsius
  check_error(here.train(), here.file("train/2001") + ": step 0, channel t2m lies ");
  here.write("train/2001", 16, {kNames});
  here.write("valid/2002", 5, {kNames}, 273.15);
  check_error(here.train(), here.file("valid/2002") + ": step 0, channel t2m lies ");
  here.write("valid/2002", 5, {kNames});
  check_done(here.train());
  here.write("test/2003", 8, {kNames}, 273.15);
  check_error(here.forecast("--start 3"), here.file("test/2003") + ": step 3, channel t2m lies ");
  CHECK_FALSE(fs::exists(here / "f.h5"));
}

TEST_CASE("first step: a field may lie so far off its statistics, and no further") {
  const testing::TemporaryFolder folder;
  const auto accepted = [&](double mean, double std, float value) {
    testing::write_fields(folder / "2001.h5", {1, 1, 2, 2}, std::vector<float>(4, value));
    try {
      check_first_step(FieldSeries({.paths = {folder / "2001.h5"}}), 0, {"x"}, {{mean}, {std}});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  CHECK(accepted(0, 1, 20));
  CHECK_FALSE(accepted(0, 1, 20.1f));
  CHECK_FALSE(accepted(0, 1, -20.1f));
  CHECK(accepted(8, 1, 28));  // a level of eight standard deviations is not yet one to be looked at
  CHECK(accepted(10, 1, 17.5f));
  CHECK_FALSE(accepted(10, 1, 17.6f));
  CHECK(accepted(-20, 2, -35));
  CHECK_FALSE(accepted(-20, 2, -35.2f));
  CHECK(accepted(100, 1, 120));
  CHECK_FALSE(accepted(100, 1, 120.1f));
}

TEST_CASE("first step: other units are seen, weather is not refused") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const auto refused = [&](double mean, double std, std::vector<float> field) {
    const FieldsShape shape = {1, 1, 2, 2};
    testing::write_fields(path, shape, field);
    try {
      check_first_step(FieldSeries({.paths = {path}}), 0, {"x"}, {{mean}, {std}});
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  const double t2m = 278.45, t2m_std = 21.3;  // of the globe, in K
  CHECK(refused(t2m, t2m_std, {5, 20, -10, 30}));
  CHECK(refused(t2m, t2m_std, {38, 40, 42, 41}));
  CHECK_FALSE(refused(t2m, t2m_std, {190, 200, 195, 205}));  // the Antarctic winter
  CHECK_FALSE(refused(t2m, t2m_std, {320, 322, 318, 319}));
  CHECK(refused(96500, 9600, {1013, 1005, 850, 990}));              // sp in hPa
  CHECK_FALSE(refused(96500, 9600, {51000, 52000, 55000, 50000}));  // Tibet
  CHECK(refused(54100, 3350, {5500, 5600, 5400, 5200}));            // z500 in metres
  CHECK_FALSE(refused(1e-4, 3e-4, {0, 0.005F, 0.004F, 0.006F}));    // a downpour, in m an hour
  CHECK(refused(1e-4, 3e-4, {0, 5, 4, 6}));                         // the same in mm
  CHECK_FALSE(refused(0, 5, {40, 60, 50, 45}));                     // a hurricane
}

TEST_CASE("weights know units and lead time, and a forecast refuses data of others") {
  const Weather here;
  check_done(here.train());
  const SafetensorsFile weights(here / "run/best/model.safetensors");
  CHECK(weights.metadata().at("isobar.units") == R"(["K","m s**-1"])");
  CHECK(nlohmann::json::parse(weights.metadata().at("isobar.lead_hours")) == 6);
  check_done(here.forecast());
  here.write("test/2003", 8, {kNames, {"kelvin", "m/s"}, hours_every(6, 8)});
  check_done(here.forecast());

  fs::remove(here / "f.h5");
  here.write("test/2003", 8, {kNames, kCelsius, hours_every(6, 8)});
  check_error(here.forecast(), here.file("test/2003") + ": channel t2m is in degC, but in K in " + here / "run/best");
  here.write("test/2003", 8, {kNames, kUnits, hours_every(3, 8)});
  check_error(
      here.forecast(),
      here.file("test/2003") + ": its steps are 3 hours apart, so that dt = 1 is 3 hours, but " + here / "run/best");
  CHECK_FALSE(fs::exists(here / "f.h5"));
  check_done(here.forecast("--start 0 --set dt=2"));  // six hours again
  here.write("test/2003", 8, {kNames});
  check_done(here.forecast());  // what says nothing is taken as it is
}

TEST_CASE("weights of hourly data do not forecast six-hourly data") {
  const Weather here;
  here.write("train/2001", 16, {kNames, kUnits, hours_every(1, 16)});
  here.write("valid/2002", 9, {kNames, kUnits, hours_every(1, 9)});
  here.statistics();
  check_done(here.train("--set dt=6"));
  check_error(here.forecast(),
              here.file("test/2003") + ": its steps are 6 hours apart, so that dt = 6 is 36 hours, but ");
}

TEST_CASE("a forecast from data that say no units has those of the weights") {
  const Weather here;
  check_done(here.train());
  here.write("test/2003", 8, {kNames, {}, hours_every(6, 8)});
  check_done(here.forecast());
  CHECK(hdf5::File::open(here / "f.h5").strings("units") == kUnits);
}

TEST_CASE("weights of before units and lead time were kept work as they did") {
  const Weather here;
  check_done(here.train());
  check_done(here.forecast());
  const std::string before = read_file(here / "f.h5"), file = here / "run/best/model.safetensors";
  const SafetensorsFile weights(file);
  Metadata metadata = weights.metadata();
  CHECK(metadata.erase("isobar.units") == 1);
  CHECK(metadata.erase("isobar.lead_hours") == 1);
  write_safetensors(here / "old.safetensors", weights.tensors(), metadata);
  const std::string old = "forecast --weights " + here / "old.safetensors" +
                          " --threads 1 --device cpu --start 0 --out " + here / "old.h5" + " --data " + here / "data";
  check_done(here.run(old));
  const bool same = read_file(here / "old.h5") == before;
  CHECK(same);
  here.write("test/2003", 8, {kNames, kUnits, hours_every(3, 8)});
  check_done(here.run(old));
  check_done(here.train("--overwrite --init " + here / "old.safetensors"));
}

TEST_CASE("a run goes on, or starts, from weights of the same data only") {
  const Weather here;
  check_done(here.train("--set checkpoint_every=1"));
  const auto resumed = [&] { return here.train("--resume --num_iters 4"); };
  const std::string metrics = read_file(here / "run/metrics.jsonl");
  for (const char* name : {"train/2001", "valid/2002"}) here.write(name, 16, {kNames, kUnits, hours_every(3, 16)});
  here.statistics();
  check_error(resumed(), "its steps are 3 hours apart");
  for (const char* name : {"train/2001", "valid/2002"}) here.write(name, 16, {kNames, kCelsius, hours_every(6, 16)});
  here.statistics();
  check_error(resumed(), "channel t2m is in degC, but in K in " + here / "run/checkpoints/step_00000002");
  fs::copy(here / "run/best/model.safetensors", here / "init.safetensors");
  check_error(here.train("--overwrite --init " + here / "init.safetensors"), "channel t2m is in degC, but in K in ");
  CHECK(read_file(here / "run/metrics.jsonl") == metrics);
}

TEST_CASE("pairs over a hole in time are left out of training and validation, and counted") {
  const Weather here;
  std::vector<double> hours = hours_every(6, 16);
  for (std::size_t t = 10; t < 16; ++t) hours[t] += 720;  // a month is missing
  here.write("train/2001", 16, {kNames, kUnits, hours});
  here.write("valid/2002", 5, {kNames, kUnits, {0, 6, 12, 48, 54}});
  const Outcome outcome = here.train();
  check_done(outcome);
  CHECK_THAT(outcome.out, ContainsSubstring("14 training samples") && ContainsSubstring("3 validation samples"));
  CHECK_THAT(outcome.out,
             ContainsSubstring("training: 1 pair left out: 1 hole in time in " + here.file("train/2001") + "\n"));
  CHECK_THAT(outcome.out,
             ContainsSubstring("validation: 1 pair left out: 1 hole in time in " + here.file("valid/2002") + "\n"));
}

TEST_CASE("a forecast across a hole in time is refused by name") {
  const Weather here;
  check_done(here.train());
  here.write("test/2003", 8, {kNames, kUnits, {0, 6, 12, 18, 48, 54, 60, 66}});
  check_error(here.forecast("--start 1 --steps 3"), "a forecast of 3 steps from step 1 crosses a hole in time of " +
                                                        here.file("test/2003") +
                                                        ": step 3 is 2001-01-01T18:00, step 4 is 2001-01-03T00:00");
  CHECK_FALSE(fs::exists(here / "f.h5"));
  check_done(here.forecast("--start 0 --steps 3"));
  check_done(here.forecast("--start 4 --steps 3"));
  check_done(here.forecast("--start 4 --steps 8"));              // it ends after the data
  check_done(here.forecast("--start 2001-01-01T06 --steps 3"));  // a date leaves no doubt about the leads' times
}

TEST_CASE("times that repeat or go back are refused in training and by data stats") {
  const Weather here;
  std::vector<double> hours = hours_every(6, 16);
  hours[7] = hours[6];
  here.write("train/2001", 16, {kNames, kUnits, hours});
  check_error(here.train(), here.file("train/2001") + ": 'time': steps 6 and 7 have one time");
  const std::string stats = "data stats " + here / "data/train" + " --out " + here / "new";
  check_error(here.run(stats), "steps 6 and 7 have one time");
  hours[7] = hours[5];
  here.write("train/2001", 16, {kNames, kUnits, hours});
  check_error(here.run(stats), here.file("train/2001") + ": 'time': goes back from ");
  CHECK_FALSE(fs::exists(here / "new"));
}

TEST_CASE("data stats keeps what the files say, and files that contradict each other have no statistics") {
  const Weather here;
  const nlohmann::json kept = nlohmann::json::parse(read_file(here / "data/stats/stats.json"));
  CHECK(kept.at("channels") == kNames);
  CHECK(kept.at("units") == kUnits);
  CHECK(kept.at("step_hours") == 6);
  here.write("train/2004", 4, {kNames, kCelsius, hours_every(6, 4)});
  const std::string stats = "data stats " + here / "data/train" + " --out " + here / "new";
  check_error(here.run(stats), here.file("train/2004") + ": channel t2m is in degC, but in K in the files before it");
  here.write("train/2004", 4, {kNames, kUnits, hours_every(1, 4)});
  check_error(here.run(stats),
              here.file("train/2004") + ": its steps are 1 hour apart, but 6 hours in the files before it");
}

// The names of the dimension scales of a dataset, as other readers of HDF5 find them.
std::vector<std::string> dimensions_of(const std::string& path, const char* dataset) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), opened = H5Dopen2(file, dataset, H5P_DEFAULT);
  const hid_t space = H5Dget_space(opened);
  const auto add_name = [](hid_t, unsigned, hid_t scale, void* names) -> herr_t {
    char name[64] = "";
    H5Iget_name(scale, name, sizeof name);
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  };
  std::vector<std::string> names;
  for (int i = 0; i < H5Sget_simple_extent_ndims(space); ++i)
    H5DSiterate_scales(opened, static_cast<unsigned>(i), nullptr, add_name, &names);
  H5Sclose(space);
  H5Dclose(opened);
  H5Fclose(file);
  return names;
}

TEST_CASE("a forecast file says units, valid times and what its dimensions are") {
  const Weather here;
  check_done(here.train());
  check_done(here.forecast("--start 2 --steps 3"));
  CHECK(dimensions_of(here / "f.h5", "fields") == std::vector<std::string>{"/lead", "/channel", "/row", "/column"});
  CHECK(dimensions_of(here / "f.h5", "time") == std::vector<std::string>{"/lead"});
  CHECK(dimensions_of(here / "f.h5", "units") == std::vector<std::string>{"/channel"});
  const hdf5::File file = hdf5::File::open(here / "f.h5");
  CHECK(file.strings("units") == kUnits);
  const FieldSeries forecast({.paths = {here / "f.h5"}});
  CHECK(forecast.time_of(0).iso() == "2001-01-01T18:00");
  CHECK(forecast.time_of(2).iso() == "2001-01-02T06:00");
  CHECK(forecast.labels().step_hours == 6);
}

TEST_CASE("a forecast file says the units that are known, where some are not") {
  const Weather here;
  const std::vector<std::string> some{"K", ""};
  here.write("train/2001", 16, {kNames, some, hours_every(6, 16)});
  here.write("valid/2002", 5, {kNames, some, hours_every(6, 5)});
  here.write("test/2003", 8, {kNames, some, hours_every(6, 8)});
  here.statistics();
  check_done(here.train());
  check_done(here.forecast());
  CHECK(hdf5::File::open(here / "f.h5").strings("units") == some);
}

TEST_CASE("with dt 2 valid times and the weights' lead time are two steps of the data apart") {
  const Weather here;
  check_done(here.train("--set dt=2"));
  const SafetensorsFile weights(here / "run/best/model.safetensors");
  CHECK(nlohmann::json::parse(weights.metadata().at("isobar.lead_hours")) == 12);
  check_done(here.forecast("--start 1 --steps 3"));
  const FieldSeries forecast({.paths = {here / "f.h5"}});
  CHECK(forecast.time_of(0).iso() == "2001-01-01T18:00");
  CHECK(forecast.time_of(1).iso() == "2001-01-02T06:00");
  CHECK(forecast.time_of(2).iso() == "2001-01-02T18:00");
  CHECK(forecast.labels().step_hours == 12);
}

TEST_CASE("people see the units that the data say") {
  const Weather here;
  for (const char* name : {"train/2001", "valid/2002"})
    here.write(name, 16, {{"tas", "wind"}, {"degC", "m s**-1"}}, 273.15);
  here.statistics();
  const Outcome outcome = here.train();
  check_done(outcome);
  CHECK_THAT(outcome.out, ContainsSubstring("  degC\n") && ContainsSubstring("  m s**-1\n"));
}
