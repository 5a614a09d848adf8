// Whole runs on files of named variables: the bits are those of the fast layout, and channels have roles.
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "engine/files/reader.h"
#include "tests/harness/data_files.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSourceSteps = 20, kSourceRows = 4, kSourceColumns = 8;

struct Variable {
  std::string name;
  double phase;
  bool has_holes = false;
};

double value_of(const Variable& variable, std::int64_t step, std::int64_t row, std::int64_t column) {
  if (variable.has_holes && column < 2) return -999;
  return 5 * std::sin(variable.phase + 0.8 * static_cast<double>(step + column)) + static_cast<double>(row);
}

std::vector<float> values_of(const Variable& variable, std::int64_t first, std::int64_t steps, bool northwards) {
  std::vector<float> values;
  for (std::int64_t t = first; t < first + steps; ++t)
    for (std::int64_t y = 0; y < kSourceRows; ++y)
      for (std::int64_t x = 0; x < kSourceColumns; ++x)
        values.push_back(static_cast<float>(value_of(variable, t, northwards ? kSourceRows - 1 - y : y, x)));
  return values;
}

void write_axis(hdf5::File& file, const char* name, const std::vector<double>& values, const char* units) {
  file.write(name, std::array{static_cast<std::int64_t>(values.size())}, std::span<const double>(values));
  file.write_attribute(name, "units", units);
}

// Steps [first, first + steps) of these variables, as NetCDF-4 has them.
void write_netcdf(const fs::path& path, const std::vector<Variable>& variables, std::int64_t first, std::int64_t steps,
                  bool northwards) {
  fs::create_directories(path.parent_path());
  hdf5::File file = hdf5::File::create(path.string());
  std::vector<double> hours, rows, columns;
  for (std::int64_t t = first; t < first + steps; ++t) hours.push_back(6.0 * static_cast<double>(t));
  for (std::int64_t y = 0; y < kSourceRows; ++y)
    rows.push_back(60 - 10.0 * static_cast<double>(northwards ? kSourceRows - 1 - y : y));
  for (std::int64_t x = 0; x < kSourceColumns; ++x) columns.push_back(45.0 * static_cast<double>(x));
  write_axis(file, "time", hours, "hours since 2001-01-01");
  write_axis(file, "latitude", rows, "degrees_north");
  write_axis(file, "longitude", columns, "degrees_east");
  for (const Variable& variable : variables) {
    file.write(variable.name, std::array{steps, kSourceRows, kSourceColumns},
               std::span<const float>(values_of(variable, first, steps, northwards)));
    file.write_dimensions(variable.name, std::array<std::string, 3>{"time", "latitude", "longitude"});
    file.write_attribute(variable.name, "units", "K");
    if (variable.has_holes) file.write_attribute(variable.name, "_FillValue", -999.0);
  }
  const std::vector<float> height = values_of({"z", 0}, 0, 1, northwards);
  file.write("z", std::array{kSourceRows, kSourceColumns}, std::span<const float>(height));
  file.write_dimensions("z", std::array<std::string, 2>{"latitude", "longitude"});
  file.close();
}

const std::vector<Variable> kWeather{{"a", 0}, {"b", 1}, {"c", 2}};

class Sources {
 public:
  Sources() {
    // Three variables in two files a set of steps, and the same as `fields`.
    write_netcdf(folder_ / "raw/one.nc", {kWeather[0], kWeather[2]}, 0, 12, false);
    write_netcdf(folder_ / "raw/two.nc", {kWeather[0], kWeather[2]}, 12, 8, false);
    write_netcdf(folder_ / "raw/other.nc", {kWeather[1]}, 0, kSourceSteps, false);
    write_netcdf(folder_ / "sea/sst.nc", {{"sst", 3, true}}, 0, kSourceSteps, true);
    std::vector<float> fields;
    std::vector<double> hours;
    for (std::int64_t t = 0; t < kSourceSteps; ++t) {
      hours.push_back(6.0 * static_cast<double>(t));
      for (const Variable& variable : {kWeather[0], kWeather[1]}) {
        const std::vector<float> step = values_of(variable, t, 1, false);
        fields.insert(fields.end(), step.begin(), step.end());
      }
    }
    fs::create_directories(folder_ / "fast");
    hdf5::File fast = hdf5::File::create(folder_ / "fast/2001.h5");
    fast.write("fields", std::array{kSourceSteps, std::int64_t{2}, kSourceRows, kSourceColumns},
               std::span<const float>(fields));
    fast.write("channel", std::vector<std::string>{"a", "b"});
    fast.write("lat", std::array{kSourceRows}, std::span<const double>(std::vector<double>{60, 50, 40, 30}));
    fast.write("lon", std::array{kSourceColumns},
               std::span<const double>(std::vector<double>{0, 45, 90, 135, 180, 225, 270, 315}));
    fast.write("time", std::array{kSourceSteps}, std::span<const double>(hours));
    fast.write_attribute("time", "units", "hours since 2001-01-01");
    fast.close();
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome command(const std::string& arguments) const { return isobar_command(folder_.path(), arguments); }
  void train(const std::string& run, const std::string& data, const std::string& more) const {
    const Outcome outcome = command(
        "train --config tiny --device cpu --threads 1 --data " + path(data) + " --run-dir " + path(run) +
        " --set embed_dim=16 --set depth=1 --set num_heads=2 --set patch_size=2 --set num_iters=6 --set warmup=2"
        " --set global_batch_size=2 --set validate_every=3 --set checkpoint_every=3 --set log_every=1 " +
        more);
    INFO(outcome.err);
    CHECK(outcome.err == "");
    REQUIRE(outcome.status == 0);
  }
  std::string weights(const std::string& run) const {
    return read_file(path(run + "/checkpoints/step_00000006/model.safetensors"));
  }

 private:
  TemporaryFolder folder_;
};

const std::string kNames = R"(--set 'channels=["a","b"]' )";

// The numbers of a weights file, without the header.
std::string numbers_of(const std::string& safetensors) {
  std::uint64_t header = 0;
  std::memcpy(&header, safetensors.data(), sizeof header);
  return safetensors.substr(sizeof header + header);
}

}  // namespace

TEST_CASE("sources: variables of several files train to the bits of the fast layout") {
  const Sources here;
  here.train("fast_run", "fast", "");
  here.train("raw_run", "raw", kNames);
  CHECK(metrics_of(here.path("fast_run")) == metrics_of(here.path("raw_run")));
  CHECK(numbers_of(here.weights("fast_run")) == numbers_of(here.weights("raw_run")));
  // Weights forecast from either; the order of the channels in the data is theirs by name.
  for (const std::string data : {"fast", "raw"})
    CHECK(here.command("forecast --device cpu --weights " + here.path("raw_run") + " --data " + here.path(data) +
                       " --start 2 --steps 3 --out " + here.path(data + ".h5"))
              .err == "");
  CHECK(read_file(here.path("fast.h5")) == read_file(here.path("raw.h5")));
}

TEST_CASE("sources: every role, dates and a lead time, and the same bits when it is stopped and resumed") {
  const Sources here;
  const std::string roles =
      kNames + R"(--set 'forcing_channels=["c"]' --set 'constant_channels={"z":")" + here.path("raw/one.nc") +
      R"(:z"}' --set 'computed_channels=["cos_zenith","cos_latitude"]' )" +
      "--set history=1 --set lead_time=12h --set lr_schedule=constant " +
      R"(--set 'train_range=["2001-01-01","2001-01-03"]' --set 'valid_range=["2001-01-04","2001-01-05"]' )";
  here.train("whole", "raw", roles);
  const nlohmann::json config = nlohmann::json::parse(read_file(here.path("whole/config.json")));
  CHECK(config.at("dt") == 2);
  CHECK(config.at("n_in_channels") == 3);
  CHECK(config.at("n_out_channels") == 2);
  CHECK(config.at("channel_names") == nlohmann::json{"a", "b", "c"});
  here.train("stopped", "raw", roles + "--set num_iters=3");
  const Outcome resumed =
      here.command("train --device cpu --threads 1 --resume --run-dir " + here.path("stopped") + " --set num_iters=6");
  CHECK(resumed.status == 0);
  CHECK(numbers_of(here.weights("stopped")) == numbers_of(here.weights("whole")));

  const std::string forecast = "forecast --device cpu --weights " + here.path("whole") + " --data " + here.path("raw") +
                               " --out " + here.path("f.h5");
  const Outcome two = here.command(forecast + " --start 2 --steps 2");
  CHECK(two.err == "");
  CHECK_THAT(two.out, ContainsSubstring("+24 h"));
  CHECK_THAT(here.command(forecast + " --start 1 --steps 2").err, ContainsSubstring("earlier states before it"));
}

TEST_CASE("sources: diagnostics are forecast and not read, and have a persistence of their own") {
  const Sources here;
  here.train("run", "raw", R"(--set 'channels=["b"]' --set 'diagnostic_channels=["a"]' )");
  const nlohmann::json summary = nlohmann::json::parse(read_file(here.path("run/summary.json")));
  here.train("both", "raw", kNames);
  const nlohmann::json both = nlohmann::json::parse(read_file(here.path("both/summary.json")));
  for (const char* name : {"b", "a"})
    CHECK(summary.at("persistence_rmse").at(name) == both.at("persistence_rmse").at(name));
}

TEST_CASE("sources: missing points have no weight, and a forecast is missing where the data are") {
  const Sources here;
  const std::string flags = R"(--set 'missing={"sst":"mean"}' --set 'missing_masks=["sst"]' )";
  here.train("run", "sea", flags);
  CHECK(here.command("forecast --device cpu --weights " + here.path("run") + " --data " + here.path("sea") +
                     " --start 2 --steps 2 --out " + here.path("f.h5"))
            .err == "");
  const hdf5::File file = hdf5::File::open(here.path("f.h5"));
  std::vector<float> fields(2UL * kSourceRows * kSourceColumns);
  file.read("fields", std::array<std::int64_t, 4>{0, 0, 0, 0},
            std::array<std::int64_t, 4>{2, 1, kSourceRows, kSourceColumns}, fields.data());
  for (std::size_t i = 0; i < fields.size(); ++i)
    CHECK(std::isnan(fields[i]) == (i % static_cast<std::size_t>(kSourceColumns) < 2));

  const Outcome refused = here.command("train --config tiny --data " + here.path("sea") + " --run-dir " +
                                       here.path("no") + " --set patch_size=2 --set num_iters=1");
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, ContainsSubstring("sst.nc: step 0, channel sst holds"));
}

TEST_CASE("sources: a channel in a log scale is forecast in its own unit, and other statistics are not taken for it") {
  const Sources here;
  const std::string flags =
      R"(--set 'channels=["b"]' --set 'transforms={"b":20}' --set 'accumulate=["b"]' --set dt=2 )";
  here.train("run", "raw", flags);
  const Outcome forecast = here.command("forecast --device cpu --weights " + here.path("run") + " --data " +
                                        here.path("raw") + " --start 3 --steps 2 --out " + here.path("f.h5"));
  CHECK(forecast.err == "");
  CHECK_THAT(forecast.out, ContainsSubstring("log1p(K / 20)"));  // of the scores
  const hdf5::File file = hdf5::File::open(here.path("f.h5"));
  CHECK(file.strings("units") == std::vector<std::string>{"K"});
  CHECK(here.command("data stats " + here.path("raw/other.nc") + " --out " + here.path("stats")).status == 0);
  const Outcome refused =
      here.command("train --config tiny --data " + here.path("raw") + " --run-dir " + here.path("no") +
                   " --set patch_size=2 " + flags + "--set global_means_path=" + here.path("stats/global_means.npy") +
                   " --set global_stds_path=" + here.path("stats/global_stds.npy"));
  const std::string stats = here.path("stats/stats.json");
  CHECK_THAT(refused.err, ContainsSubstring(stats + " does not say that channel b is in log1p(K / 20), as config key "
                                                    "transforms reads it: these are statistics of other values"));
  const std::string places = "--set global_means_path=" + here.path("stats/global_means.npy") +
                             " --set global_stds_path=" + here.path("stats/global_stds.npy");
  const auto refusal = [&](const std::string& more) {
    return here
        .command("train --config tiny --device cpu --data " + here.path("raw") + " --run-dir " + here.path("no") +
                 R"( --set patch_size=2 --set 'channels=["b"]' )" + more + places)
        .err;
  };
  CHECK_THAT(
      refusal(R"(--set 'accumulate=["b"]' --set dt=2 )"),
      ContainsSubstring(stats + " says that channel b is a sum of 1 step, but config key accumulate reads sums of "
                                "2: these are statistics of other values"));
  fs::remove(stats);
  CHECK_THAT(refusal(R"(--set 'transforms={"b":20}' )"),
             ContainsSubstring(stats + " does not say that channel b is in"));
  // A run's own statistics say both, and are taken where it is resumed.
  const nlohmann::json own = nlohmann::json::parse(read_file(here.path("run/stats/stats.json")));
  CHECK(own.at("summed") == nlohmann::json{2});
  CHECK(own.at("units") == nlohmann::json{"log1p(K / 20)"});
  CHECK(here.command("train --device cpu --resume --run-dir " + here.path("run") + " --set num_iters=7").status == 0);
}

// A safetensors file with an entry less in its metadata.
std::string without_metadata(const std::string& safetensors, const std::string& key) {
  std::uint64_t length = 0;
  std::memcpy(&length, safetensors.data(), sizeof length);
  nlohmann::ordered_json header = nlohmann::ordered_json::parse(safetensors.substr(sizeof length, length));
  CHECK(header.at("__metadata__").erase(key) == 1);
  const std::string text = header.dump();
  const std::uint64_t shorter = text.size();
  std::string file(sizeof shorter, '\0');
  std::memcpy(file.data(), &shorter, sizeof shorter);
  return file + text + numbers_of(safetensors);
}

TEST_CASE("sources: weights forecast the same whatever the order of channels in data and config, or say what differs") {
  const Sources here;
  write_netcdf(here.path("orders/abc.nc"), kWeather, 0, kSourceSteps, false);
  write_netcdf(here.path("orders/cba.nc"), {kWeather[2], kWeather[1], kWeather[0]}, 0, kSourceSteps, true);
  here.train("run", "orders/abc.nc",
             kNames + R"(--set 'forcing_channels=["c"]' --set 'computed_channels=["sin_longitude","cos_longitude"]')");
  const std::string weights = here.path("run/best/model.safetensors");
  const auto forecast = [&](const std::string& data, const std::string& more) {
    fs::remove(here.path("f.h5"));
    const Outcome outcome = here.command("forecast --device cpu --weights " + here.path("run") + " --data " +
                                         here.path(data) + " --start 2 --steps 3 --out " + here.path("f.h5 ") + more);
    return outcome.status == 0 ? read_file(here.path("f.h5")) : outcome.err;
  };
  const auto evaluate = [&](const std::string& more) {
    const Outcome outcome = here.command("evaluate --device cpu --weights " + here.path("run") + " --scores " +
                                         here.path("s.json ") + more);
    return outcome.status == 0 ? read_file(here.path("s.json")) : outcome.err;
  };
  const std::string wanted = forecast("orders/abc.nc", ""), scores = evaluate("");
  CHECK(wanted.size() > 1000);
  CHECK(forecast("orders/cba.nc", "") == wanted);
  CHECK(forecast("orders/cba.nc", R"(--set 'channels=["b","a"]')") == wanted);
  CHECK(forecast("orders/abc.nc", R"(--set 'channels=["b","a"]')") == wanted);
  CHECK(evaluate(R"(--set 'channels=["b","a"]')") == scores);
  CHECK(evaluate("--set valid_data_path=" + here.path("orders/cba.nc")) == scores);

  const std::string other = R"(--set 'channels=["a","c"]' --set 'forcing_channels=["b"]')";
  const std::string sentence =
      "isobar: config key channels names a, c, but " + weights + " was trained with a, b in this role\n";
  CHECK(forecast("orders/abc.nc", other) == sentence);
  CHECK(evaluate(other) == sentence);
  CHECK_THAT(forecast("orders/abc.nc", R"(--set 'computed_channels=["cos_longitude","sin_longitude"]')"),
             ContainsSubstring("was trained with the planes sin_longitude, cos_longitude, but config keys "
                               "computed_channels and constant_channels name cos_longitude, sin_longitude"));
  CHECK_THAT(
      here.command("train --config tiny --device cpu --data " + here.path("orders/abc.nc") + " --run-dir " +
                   here.path("no") + " --init " + weights + " --set num_iters=1 --set embed_dim=16 --set depth=1" +
                   R"( --set num_heads=2 --set patch_size=2 --set 'channels=["b","a"]' )" +
                   R"(--set 'forcing_channels=["c"]' --set 'computed_channels=["sin_longitude","cos_longitude"]')")
          .err,
      ContainsSubstring("channel 0 is 'b', but 'a' in " + weights));
}

TEST_CASE("sources: weights carry their constants, so that the constants' file may be gone") {
  const Sources here;
  const std::string constant = here.path("orography.nc");
  fs::copy(here.path("raw/one.nc"), constant);
  here.train("run", "raw",
             kNames + R"(--set 'constant_channels={"z":")" + constant + R"(:z"}' )" +
                 R"(--set 'computed_channels=["cos_latitude"]')");
  const auto forecast = [&](const std::string& weights, const std::string& to) {
    return here.command("forecast --device cpu --weights " + here.path(weights) + " --data " + here.path("raw") +
                        " --start 2 --steps 2 --out " + here.path(to));
  };
  const auto evaluate = [&](const std::string& to) {
    return here.command("evaluate --device cpu --weights " + here.path("run") + " --scores " + here.path(to));
  };
  CHECK(forecast("run", "there.h5").err == "");
  CHECK(evaluate("there.json").err == "");
  const std::string weights = here.path("run/best/model.safetensors"), old = here.path("old.safetensors");
  write_text(old, without_metadata(read_file(weights), "isobar.constants"));
  CHECK(forecast("old.safetensors", "old.h5").err == "");
  CHECK(read_file(here.path("old.h5")) == read_file(here.path("there.h5")));

  fs::remove(constant);
  CHECK(forecast("run", "gone.h5").err == "");
  CHECK(evaluate("gone.json").err == "");
  CHECK(read_file(here.path("gone.h5")) == read_file(here.path("there.h5")));
  CHECK(read_file(here.path("gone.json")) == read_file(here.path("there.json")));
  CHECK_THAT(forecast("old.safetensors", "no.h5").err, ContainsSubstring("orography.nc does not exist"));
  const Outcome info = here.command("info " + here.path("run"));
  CHECK_THAT(info.out, ContainsSubstring("isobar.constants") && ContainsSubstring(R"("units":"")"));

  {
    hdf5::File file = hdf5::File::create(constant);
    write_axis(file, "latitude", {60, 50, 40, 30}, "degrees_north");
    write_axis(file, "longitude", {0, 45, 90, 135, 180, 225, 270, 315}, "degrees_east");
    std::vector<float> height = values_of({"z", 0}, 0, 1, false);
    height[5] = 7;
    file.write("z", std::array{kSourceRows, kSourceColumns}, std::span<const float>(height));
    file.write_dimensions("z", std::array<std::string, 2>{"latitude", "longitude"});
    file.close();
  }
  const std::string refusal = "isobar: the constant z of " + constant + " is not the one that " + weights +
                              " was trained with: value 5 is 7, and was ";
  CHECK_THAT(forecast("run", "no.h5").err, ContainsSubstring(refusal));
  CHECK_THAT(evaluate("no.json").err, ContainsSubstring(refusal));
  CHECK_THAT(here.command("train --device cpu --resume --run-dir " + here.path("run") + " --set num_iters=8").err,
             ContainsSubstring("the constant z of " + constant + " is not the one that"));
}

TEST_CASE("sources: what does not fit is one sentence") {
  const Sources here;
  const auto refused = [&](const std::string& more) {
    const Outcome outcome = here.command("train --config tiny --device cpu --data " + here.path("raw") + " --run-dir " +
                                         here.path("no") + " --set num_iters=1 --set patch_size=2 " + more);
    CHECK(outcome.status == 1);
    CHECK(!fs::exists(here.path("no")));
    return outcome.err;
  };
  CHECK_THAT(refused(kNames + "--set lead_time=8h"),
             ContainsSubstring("config key lead_time is 8h, which is no multiple of the 6 hours"));
  CHECK_THAT(refused(kNames + "--set lead_time=12h --set dt=3"), ContainsSubstring("dt") && ContainsSubstring("12h"));
  CHECK_THAT(refused(kNames + "--set lead_time=soon"), ContainsSubstring("a lead time is a number and min, h or d"));
  CHECK_THAT(refused(kNames + R"(--set 'forcing_channels=["b"]')"),
             ContainsSubstring("forcing_channels") && ContainsSubstring("holds b, which channels holds too"));
  CHECK_THAT(refused(R"(--set 'channels=["cc"]')"), ContainsSubstring("no channel cc"));
  CHECK_THAT(refused(R"(--set 'forcing_channels=["b"]')"), ContainsSubstring("needs config key channels"));
  CHECK_THAT(refused(kNames + R"(--set 'computed_channels=["cos_zenit"]')"),
             ContainsSubstring("config key computed_channels in --set holds cos_zenit, which cannot be computed; the "
                               "nearest is cos_zenith"));
  CHECK_THAT(
      refused(R"(--set 'channels=["a"]' --set 'constant_channels={"a":")" + here.path("raw/one.nc") + R"(:z"}')"),
      ContainsSubstring("constant_channels in --set holds a, which channels holds too"));
  CHECK_THAT(refused(kNames + R"(--set 'constant_channels={"z":"https://host/c.nc:z"}')"),
             ContainsSubstring("https://host/c.nc is an address, and isobar reads files"));
  CHECK_THAT(refused(kNames + R"(--set 'missing={"sst":"mean"}')"),
             ContainsSubstring("names sst, which is no channel"));
  CHECK_THAT(refused(kNames + R"(--set 'transforms={"b":0}')"), ContainsSubstring("no scale above 0"));
  CHECK_THAT(refused(kNames + R"(--set 'accumulate=["z"]')"), ContainsSubstring("names z, which is no channel"));
  CHECK_THAT(refused(kNames + R"(--set 'missing={"b":"median"}')"),
             ContainsSubstring("expected a number, mean, fill or refuse"));
  CHECK_THAT(refused(kNames + R"(--set 'train_range=["2001-01-01","2002-01-01"]')"),
             ContainsSubstring("goes beyond the data"));
  CHECK_THAT(refused(kNames + R"(--set 'constant_channels={"z":"nowhere.nc:z"}')"), ContainsSubstring("nowhere.nc"));
}

}  // namespace isobar::testing
