// Whole runs of the command against PyTorch in fp64 (tests/golden/README.md, tools/reference_run.py): every figure that
// a run and a forecast leave behind, from the raw fields and a config.
//
// How near they must be is not typed by hand: where the same run in fp32 strays by e from fp64, rounding errors in fp64
// are 2^-29 of that. isobar may err seven times as much, since the order of its sums is another in every instruction
// set and build and nine updates hand an error on (five times was seen); the reference itself errs once, and both round
// what they write.
#include <png.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "data/maps/map_image.h"
#include "engine/files/reader.h"
#include "models/forecast/forecaster.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_file.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensorboard_events.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;
using testing::Golden;
using testing::isobar_command;
using testing::Outcome;
using testing::TensorBoardEvents;
namespace fs = std::filesystem;

constexpr double kFp64Rounding = 0x1p-53, kFp32Rounding = 0x1p-24;

// The data of the golden runs in the tutorial's layout. Described: with channels, latitudes, longitudes and times.
void write_data(const fs::path& folder, bool described) {
  const Golden data("run_data");
  const auto numbers = [&](const char* key) { return data.metadata(key).get<std::vector<double>>(); };
  const std::vector<double> latitudes = numbers("latitudes"), longitudes = numbers("longitudes");
  const json times_of_files = data.metadata("times");
  for (const auto& [name, units] : times_of_files.items()) {
    const Shape shape = data.shape(name);
    const fs::path file = folder / (name + (described ? ".h5" : "_.h5"));  // no year at the end: undated
    fs::create_directories(file.parent_path());
    hdf5::File h5 = hdf5::File::create(file.string());
    h5.write("fields", shape, std::span<const float>(data.floats(name)));
    if (described) {
      std::vector<double> times;
      for (std::int64_t t = 0; t < shape[0]; ++t) times.push_back(data.metadata("hours").get<double>() * t);
      h5.write("time", std::array{shape[0]}, std::span<const double>(times));
      h5.write_attribute("time", "units", units.get<std::string>());
      h5.write("lat", std::array{shape[2]}, std::span<const double>(latitudes));
      h5.write("lon", std::array{shape[3]}, std::span<const double>(longitudes));
      h5.write("channel", data.metadata("channels").get<std::vector<std::string>>());
    }
    h5.close();
  }
  fs::create_directories(folder / "stats");
  const std::vector<double> means = data.values("means"), stds = data.values("stds");
  const std::array<std::int64_t, 4> per_channel{1, data.shape("means")[0], 1, 1};
  Shape grid = data.shape("time_means");
  grid.insert(grid.begin(), 1);
  write_npy((folder / "stats/global_means.npy").string(), per_channel, std::span<const double>(means));
  write_npy((folder / "stats/global_stds.npy").string(), per_channel, std::span<const double>(stds));
  write_npy((folder / "stats/time_means.npy").string(), grid, std::span<const float>(data.floats("time_means")));
}

// A golden run, made again by the command.
class WholeRun {
 public:
  explicit WholeRun(const std::string& name, const json& more = json::object()) : golden(name) {
    write_data(folder / "data", name == "run_weather");
    json config = golden.metadata("config");
    config.update(more);
    config["log_every"] = 1;
    std::ofstream(folder / "config.json") << config;
    check_done("train --config " + path("config.json") + " --run-dir " + path("run"));
    std::istringstream lines(read_file(folder / "run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json event = json::parse(line);
      (event.at("event") == "train" ? train : valid).push_back(event);
    }
  }

  std::string path(const std::string& name) const { return (folder / name).string(); }
  void check_done(const std::string& command) const {
    const Outcome outcome =
        isobar_command(folder.path(), command + " --data " + path("data") + " --device cpu --threads 1");
    CHECK(outcome.err == "");
    REQUIRE(outcome.status == 0);
  }

  double budget(const std::string& kind) const {
    const double fp32 = golden.metadata("yardstick").at(kind);
    return 8 * fp32 * kFp64Rounding / kFp32Rounding + 2 * kFp64Rounding;
  }

  testing::TemporaryFolder folder;
  Golden golden;
  std::vector<json> train, valid;  // the lines of metrics.jsonl
};

void check_near(const std::string& what, double got, double expected, double relative) {
  INFO(what << ": " << got << ", expected " << expected << ", apart by " << std::abs(got - expected) << ", may be "
            << relative * std::abs(expected));
  CHECK(std::abs(got - expected) <= relative * std::abs(expected));
}

// Numbers, lists of them and objects of both; `got` may have more keys.
void check_near(const std::string& what, const json& got, const json& expected, double relative) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) check_near(what + "." + key, got.at(key), value, relative);
  } else if (expected.is_array()) {
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      check_near(what + "[" + std::to_string(i) + "]", got[i], expected[i], relative);
  } else {
    check_near(what, got.get<double>(), expected.get<double>(), relative);
  }
}

void check_absolutely(const std::string& what, const json& got, const json& expected, double distance) {
  for (const auto& [name, values] : expected.items()) {
    REQUIRE(got.at(name).size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      INFO(what << " of " << name << ": " << got.at(name)[i] << ", expected " << values[i]);
      CHECK(std::abs(got.at(name)[i].get<double>() - values[i].get<double>()) <= distance);
    }
  }
}

// A rate is a cosine, a quotient and a few products: half a dozen roundings.
constexpr double kRate = 6 * kFp64Rounding;

void check_metrics(const WholeRun& run) {
  const json log = run.golden.metadata("log");
  REQUIRE(run.train.size() == log.at("train").size());
  for (std::size_t i = 0; i < run.train.size(); ++i) {
    const json &line = run.train[i], &expected = log.at("train")[i];
    CHECK(line.at("iteration") == expected.at("iteration"));
    CHECK(line.at("epoch") == expected.at("epoch"));
    check_near("loss", line.at("loss"), expected.at("loss"), run.budget("figures"));
    check_near("lr", line.at("lr"), expected.at("lr"), kRate);
    check_near("grad_norm", line.at("grad_norm"), expected.at("grad_norm"), run.budget("figures"));
    CHECK(line.at("samples_per_second").get<double>() > 0);
  }
  REQUIRE(run.valid.size() == log.at("valid").size());
  for (std::size_t i = 0; i < run.valid.size(); ++i) {
    const json &line = run.valid[i], &expected = log.at("valid")[i];
    CHECK(line.at("iteration") == expected.at("iteration"));
    CHECK(line.at("epoch") == expected.at("epoch"));
    check_near("loss", line.at("loss"), expected.at("loss"), run.budget("figures"));
    for (const char* kind : {"rmse", "persistence_rmse"})
      check_near(kind, line.at(kind), expected.at(kind), run.budget("figures"));
  }
}

void check_summary(const WholeRun& run) {
  const json log = run.golden.metadata("log"), summary = json::parse(read_file(run.folder / "run/summary.json"));
  const json &valid = log.at("valid").back(), names = run.golden.metadata("config").at("channel_names");
  CHECK(summary.at("device") == "cpu");
  CHECK(summary.at("precision") == "fp64");
  CHECK(summary.at("iterations") == log.at("train").size());
  check_near("train_loss", summary.at("train_loss"), log.at("epochs").back().at("loss"), run.budget("figures"));
  check_near("val_loss", summary.at("val_loss"), valid.at("loss"), run.budget("figures"));
  const std::vector<double> stds = Golden("run_data").values("stds");
  for (const auto& [kind, key] : {std::pair("rmse", "val_rmse"), std::pair("persistence_rmse", "persistence_rmse")}) {
    check_near(key, summary.at(key), valid.at(kind), run.budget("figures"));
    json physical = valid.at(kind);
    for (std::size_t c = 0; c < physical.size(); ++c) {
      json& value = physical.at(names[c].get<std::string>());
      value = value.get<double>() * stds[c];
    }
    const std::string own_units = key + std::string("_physical");
    check_near(own_units, summary.at(own_units), physical, run.budget("figures") + kFp64Rounding);
  }
}

void check_tensorboard(const WholeRun& run, const TensorBoardEvents& events) {
  const json log = run.golden.metadata("log");
  const auto check = [&](const char* tag, const json& step, const json& expected, double budget) {
    const auto found = events.scalars.find({tag, step.get<std::int64_t>()});
    INFO(tag << " at step " << step);
    REQUIRE(found != events.scalars.end());
    check_near(tag, found->second, expected.get<double>(), budget + kFp32Rounding);
  };
  check("Loss/train", 0, log.at("train")[0].at("loss"), run.budget("figures"));
  for (const json& epoch : log.at("epochs")) {
    check("Loss/train", epoch.at("iteration"), epoch.at("loss"), run.budget("figures"));
    check("Learning Rate", epoch.at("iteration"), epoch.at("next_lr"), kRate);
  }
  for (const json& valid : log.at("valid")) {
    check("Loss/valid", valid.at("iteration"), valid.at("loss"), run.budget("figures"));
    check("RMSE(u10m)/valid", valid.at("iteration"), valid.at("rmse_tutorial").at("u10"), run.budget("figures"));
  }
}

// The last epoch of these runs is the last iteration alone: its rates are those of the last line.
void check_rates(const WholeRun& run, const TensorBoardEvents& events) {
  const json config = run.golden.metadata("config");
  const std::int64_t last = config.at("num_iters");
  const double iterations = events.scalars.at({"Avg iters per sec", last}),
               samples = events.scalars.at({"Avg samples per sec", last});
  check_near("samples", samples, iterations * config.at("global_batch_size").get<double>(), 2 * kFp32Rounding);
  check_near("samples_per_second", run.train.back().at("samples_per_second").get<double>(), samples, 2 * kFp32Rounding);
}

// Pictures as they must look. A forecast may round to another fp32 number than the reference's, and a colour with it.
void check_same_picture(const std::string& png, const Image& expected) {
  png_image header;
  std::memset(&header, 0, sizeof header);
  header.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&header, png.data(), png.size()) != 0);
  header.format = PNG_FORMAT_RGB;
  Image image(static_cast<int>(header.width), static_cast<int>(header.height));
  REQUIRE(png_image_finish_read(&header, nullptr, image.pixels.data(), 0, nullptr) != 0);
  REQUIRE(image.width == expected.width);
  REQUIRE(image.height == expected.height);
  int worst = 0;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const Rgb a = image.pixels[i], b = expected.pixels[i];
    worst = std::max({worst, std::abs(a.r - b.r), std::abs(a.g - b.g), std::abs(a.b - b.b)});
  }
  CHECK(worst <= 1);
}

struct Picture {
  std::size_t channel;
  std::string variable, unit, lead_time, valid_time, file;
};

void check_pictures(const WholeRun& run, const TensorBoardEvents& events, const Picture& picture) {
  const Shape shape = run.golden.shape("picture.target");
  const auto pixels = static_cast<std::size_t>(shape[1] * shape[2]);
  const std::vector<float> target = run.golden.floats("picture.target"),
                           forecast = run.golden.floats("picture.forecast");
  const auto field = [&](const std::vector<float>& values) {
    return Field{static_cast<int>(shape[1]), static_cast<int>(shape[2]),
                 std::span(values).subspan(picture.channel * pixels, pixels)};
  };
  const auto axis = [&](const char* key, std::int64_t length) {
    std::vector<float> degrees = Golden("run_data").metadata(key).get<std::vector<float>>();
    degrees.resize(picture.lead_time == "+1 step" ? 0 : static_cast<std::size_t>(length));
    return degrees;
  };
  const std::vector<float> lat = axis("latitudes", shape[1]), lon = axis("longitudes", shape[2]);
  const std::int64_t last = run.train.back().at("iteration");
  const MapLabels labels{.variable = picture.variable,
                         .unit = picture.unit,
                         .lead_time = picture.lead_time,
                         .valid_time = picture.valid_time,
                         .iteration = last,
                         .lat = lat,
                         .lon = lon};
  check_same_picture(read_file(run.folder / "run/images" / picture.file),
                     target_forecast_error(field(target), field(forecast), labels));
  const auto found = events.images.find({"Visualization, " + picture.variable, last});
  REQUIRE(found != events.images.end());
  check_same_picture(found->second, target_and_prediction(field(target), field(forecast)));
}

void check_config(const WholeRun& run) {
  const json written = json::parse(read_file(run.folder / "run/config.json"));
  const json config = run.golden.metadata("config");
  for (const auto& [key, value] : config.items()) {
    INFO("config key " << key);
    CHECK(written.at(key) == value);
  }
  for (const auto& [key, place] :
       {std::pair("train_data_path", "train"), std::pair("valid_data_path", "valid"),
        std::pair("inf_data_path", "test"), std::pair("global_means_path", "stats/global_means.npy"),
        std::pair("global_stds_path", "stats/global_stds.npy"), std::pair("time_means_path", "stats/time_means.npy")})
    CHECK(written.at(key) == run.path("data/" + std::string(place)));
}

void check_forecast(const WholeRun& run, const std::string& starts) {
  const std::int64_t steps = run.golden.metadata("steps");
  run.check_done("forecast --weights " + run.path("run") + " --steps " + std::to_string(steps) + " --out " +
                 run.path("f.h5") + " --scores " + run.path("scores.json") + starts);
  const json scores = json::parse(read_file(run.folder / "scores.json")), expected = run.golden.metadata("scores");
  CHECK(scores.at("starts") == expected.at("starts"));
  CHECK(scores.at("lead_steps") == expected.at("lead_steps"));
  for (const std::string kind : {"rmse", "persistence_rmse"})
    check_near(kind, scores.at(kind), expected.at(kind), run.budget("figures") + kFp64Rounding);
  for (const std::string kind : {"acc", "persistence_acc"})
    check_absolutely(kind, scores.at(kind), expected.at(kind), run.budget("acc"));

  const hdf5::File h5 = hdf5::File::open((run.folder / "f.h5").string());
  const Shape shape = run.golden.shape("forecast");
  REQUIRE(h5.info("fields").shape == shape);
  const std::vector<double> fields = run.golden.values("forecast"), lead = h5.numbers("lead");
  std::vector<float> written(fields.size());
  h5.read("fields", std::array<std::int64_t, 4>{}, shape, written.data());
  const std::vector<double> stds = Golden("run_data").values("stds");
  double worst = 0;  // beyond its own rounding, in standard deviations
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::size_t channel = i / static_cast<std::size_t>(shape[2] * shape[3]) % static_cast<std::size_t>(shape[1]);
    worst = std::max(worst, (std::abs(written[i] - fields[i]) - kFp32Rounding * std::abs(fields[i])) / stds[channel]);
  }
  CHECK(worst <= run.budget("fields"));
  CHECK(lead == expected.at("lead_steps").get<std::vector<double>>());
}

TEST_CASE("every figure of a run with dropout, accumulation and time features is the reference's") {
  const WholeRun run("run_weather", {{"dtype", "fp64"}, {"num_data_workers", 2}});
  const TensorBoardEvents events(*fs::directory_iterator(run.folder / "run/logs"));
  check_config(run);
  check_metrics(run);
  check_summary(run);
  check_tensorboard(run, events);
  check_rates(run, events);
  check_pictures(run, events, {2, "t2m", "", "+12 h", "2002-10-21 06:00", "map_t2m_00000009.png"});
  check_forecast(run, " --starts 1:5:2");
  const hdf5::File h5 = hdf5::File::open((run.folder / "f.h5").string());
  CHECK(h5.numbers("lat") == std::vector<double>{75, 50, 25, 0, -25, -50});
  CHECK(h5.numbers("lon").back() == 270);
}

TEST_CASE("every figure of a run in the tutorial's way is the reference's") {
  const WholeRun run("run_tutorial", {{"dtype", "fp64"}});
  const TensorBoardEvents events(*fs::directory_iterator(run.folder / "run/logs"));
  check_config(run);
  check_metrics(run);
  check_summary(run);
  check_tensorboard(run, events);
  check_rates(run, events);
  check_pictures(run, events, {1, "v10", "", "+1 step", "", "map_v10_00000007.png"});
  check_forecast(run, " --start 2");

  // The weights: what they start from, and where seven updates lead. fp32 files hold them.
  const auto check_weights = [&](const std::string& when, const std::string& name, const std::vector<double>& got) {
    if (when == "final" && name.ends_with(".k.bias")) return;  // its gradient is 0 in exact arithmetic: noise
    const std::vector<double> expected = run.golden.values(when + "." + name);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) check_near(when + " " + name, got[i], expected[i], 2 * kFp32Rounding);
  };
  nlohmann::ordered_json config = json::parse(read_file(run.folder / "run/config.json"));
  FieldsInfo info;
  info.channel_names = config.at("channel_names").get<std::vector<std::string>>();
  info.statistics = {Golden("run_data").values("means"), Golden("run_data").values("stds")};
  info.row_weights.assign(6, 1.0);
  RunConfig own = testing::checked_config(entries_from(config, "config.json"));
  const Forecaster fresh = testing::forecaster_of(own, info, Device{});
  const SafetensorsFile last(run.folder / "run/checkpoints/step_00000007/model.safetensors");
  for (const NamedParameter& p : fresh.parameters().named()) {
    check_weights("initial", p.name, fresh.parameters().weight(p).to_vector());
    std::vector<double> trained(static_cast<std::size_t>(p.numel()));
    copy_elements(last.at(p.name), DType::fp64, reinterpret_cast<std::byte*>(trained.data()));
    check_weights("final", p.name, trained);
  }
}

TEST_CASE("fp16 skips the updates whose gradients overflow, and the schedule goes on") {
  const WholeRun run("run_fp16", {{"amp_mode", "fp16"}});
  const json log = run.golden.metadata("log"), skipped = run.golden.metadata("skipped");
  // fp16 itself is the yardstick here.
  const double budget = 2 * run.golden.metadata("yardstick").at("figures").get<double>() + kFp32Rounding;
  REQUIRE(run.train.size() == log.at("train").size());
  for (std::size_t i = 0; i < run.train.size(); ++i) {
    const json &line = run.train[i], &expected = log.at("train")[i];
    const bool is_skipped = std::find(skipped.begin(), skipped.end(), line.at("iteration")) != skipped.end();
    INFO("iteration " << line.at("iteration"));
    CHECK(line.at("loss_scale") == run.golden.metadata("loss_scales")[i]);
    CHECK(line.contains("grad_norm") == !is_skipped);
    check_near("lr", line.at("lr"), expected.at("lr"), kRate);
    check_near("loss", line.at("loss"), expected.at("loss"), budget);
    if (!is_skipped) check_near("grad_norm", line.at("grad_norm"), expected.at("grad_norm"), budget);
  }
  for (std::size_t i = 0; i < run.valid.size(); ++i)
    check_near("valid", run.valid[i].at("loss"), log.at("valid")[i].at("loss"), budget);
}

}  // namespace
}  // namespace isobar
