// Runs on data with missing points: what has no weight counts nowhere, whatever the layout.
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"
#include "apps/train/trainer.h"
#include "comm/thread_ranks.h"
#include "data/files/hdf5.h"
#include "engine/files/reader.h"
#include "tests/harness/findings.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaskedSteps = 32, kMaskedRows = 8, kMaskedColumns = 8, kMaskedTrainSteps = 24;
const std::vector<std::string> kChannels{"ice", "sst", "wind"};  // the third one has no missing points

// What is missing of ice and sst. A sample's target is the step after its own.
struct Holes {
  bool has_any = true;
  std::int64_t empty_from = kMaskedSteps;  // the first step from which on sst has no point
  std::int64_t land = 0;                   // the first columns, where sst never has a point

  // Of six targets one misses all points of ice, one all of sst, one all of both, one the southern half and one the
  // northern half of both.
  bool is_missing(std::int64_t channel, std::int64_t step, std::int64_t row, std::int64_t column) const {
    if (channel == 2 || !has_any) return false;
    if (channel == 1 && (step >= empty_from || column < land)) return true;
    switch (step % 6) {
      case 1:
      case 2:
        return channel == step % 6 - 1;
      case 3:
        return true;
      case 4:
        return row >= kMaskedRows / 2;
      case 5:
        return row < kMaskedRows / 2 || (channel == 1 && column == 2);
      default:
        return column < channel + 1;
    }
  }
};

// The samples of six whose target has a point of ice or sst; those whose target has one of sst.
constexpr std::array<int, 6> kHasPoint{1, 1, 0, 1, 1, 1}, kHasSst{1, 0, 0, 1, 1, 1};

double value_of(std::int64_t channel, std::int64_t step, std::int64_t row, std::int64_t column) {
  const double wave = std::sin(static_cast<double>(channel) + 0.8 * static_cast<double>(step + column));
  return 5 * wave + static_cast<double>(row) + (channel == 1 ? 285 : 0);  // sst in kelvin
}

template <std::size_t N>
void write_axis(hdf5::File& file, const char* name, const std::array<double, N>& values, const char* units) {
  file.write(name, std::array{static_cast<std::int64_t>(N)}, std::span<const double>(values));
  file.write_attribute(name, "units", units);
}

constexpr std::array<double, kMaskedRows> kLatitudes{70, 60, 50, 40, 30, 20, 10, 0};
constexpr std::array<double, kMaskedColumns> kLongitudes{0, 45, 90, 135, 180, 225, 270, 315};

void write_fields(const fs::path& path, const Holes& holes) {
  std::vector<float> fields;
  std::array<double, kMaskedSteps> hours{};
  for (std::int64_t t = 0; t < kMaskedSteps; ++t) {
    hours[static_cast<std::size_t>(t)] = 6.0 * static_cast<double>(t);
    for (std::int64_t c = 0; c < std::ssize(kChannels); ++c)
      for (std::int64_t y = 0; y < kMaskedRows; ++y)
        for (std::int64_t x = 0; x < kMaskedColumns; ++x)
          fields.push_back(holes.is_missing(c, t, y, x) ? std::numeric_limits<float>::quiet_NaN()
                                                        : static_cast<float>(value_of(c, t, y, x)));
  }
  fs::create_directories(path.parent_path());
  hdf5::File file = hdf5::File::create(path.string());
  file.write("fields", std::array{kMaskedSteps, std::ssize(kChannels), kMaskedRows, kMaskedColumns},
             std::span<const float>(fields));
  file.write("channel", kChannels);
  file.write("lat", std::array{kMaskedRows}, std::span<const double>(kLatitudes));
  file.write("lon", std::array{kMaskedColumns}, std::span<const double>(kLongitudes));
  write_axis(file, "time", hours, "hours since 2001-01-01");
  file.close();
}

void write_height(const fs::path& path) {
  hdf5::File file = hdf5::File::create(path.string());
  write_axis(file, "latitude", kLatitudes, "degrees_north");
  write_axis(file, "longitude", kLongitudes, "degrees_east");
  std::vector<float> height;
  for (std::int64_t i = 0; i < kMaskedRows * kMaskedColumns; ++i) height.push_back(static_cast<float>(i * i % 37));
  file.write("z", std::array{kMaskedRows, kMaskedColumns}, std::span<const float>(height));
  file.write_dimensions("z", std::array<std::string, 2>{"latitude", "longitude"});
  file.close();
}

const std::string kMissing = R"(missing={"ice":0,"sst":"mean"})";

class MissingPoints {
 public:
  explicit MissingPoints(const Holes& holes = {}) {
    write_fields(folder_ / "data/2001.h5", holes);
    write_height(folder_ / "z.nc");
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome isobar(const std::string& arguments) const { return isobar_command(folder_.path(), arguments); }

  // The config keys of a small forecast with every role, in fp64; samples are read in the order of the file.
  std::vector<std::string> keys() const {
    return {R"(channels=["ice","sst"])",
            R"(forcing_channels=["wind"])",
            R"(constant_channels={"z":")" + path("z.nc") + R"(:z"})",
            R"(computed_channels=["cos_zenith"])",
            "train_range=[0," + std::to_string(kMaskedTrainSteps) + "]",
            "valid_range=[" + std::to_string(kMaskedTrainSteps) + "," + std::to_string(kMaskedSteps) + "]",
            "dtype=fp64",
            "embed_dim=16",
            "num_heads=2",
            "depth=1",
            "patch_size=2",
            "dropout=0.1",
            "warmup=0",
            "shuffle=false"};
  }
  Outcome command(const std::string& verb, const std::vector<std::string>& more, const std::string& flags = "") const {
    std::string line = verb + " --config tiny --device cpu --threads 1 --data " + path("data") + " " + flags;
    for (const std::vector<std::string>& entries : {keys(), more})
      for (const std::string& entry : entries) line += " --set '" + entry + "'";
    return isobar(line);
  }
  // What a training that ended well left: its log.
  std::string log_of_training(const std::string& run, const std::vector<std::string>& more,
                              const std::string& flags = "") const {
    const Outcome outcome = command("train", more, "--run-dir " + path(run) + " " + flags);
    INFO(outcome.err);
    CHECK(outcome.err == "");
    REQUIRE(outcome.status == 0);
    return read_file(path(run + "/out.log"));
  }

 private:
  TemporaryFolder folder_;
};

// The same, opened in this process.
class OpenedMissingPoints {
 public:
  OpenedMissingPoints(const MissingPoints& here, std::vector<std::string> more)
      : config_(read_config(entries(here, std::move(more)))), data_(config_.recipe->open(config_.origins, {})) {}

  const OpenedRecipe& data() const { return *data_; }
  const RunConfig& config() const { return config_; }
  std::unique_ptr<Task> task(const Parallel& parallel = Parallel::alone()) const {
    return data_->make_task(config_.compute, Device{}, parallel);
  }

 private:
  static ConfigEntries entries(const MissingPoints& here, std::vector<std::string> more) {
    std::vector<std::string> all = here.keys();
    all.insert(all.end(), {"train_data_path=" + here.path("data"), "valid_data_path=" + here.path("data"),
                           "global_means_path=" + here.path("data/global_means.npy"),
                           "global_stds_path=" + here.path("data/global_stds.npy"),
                           "time_means_path=" + here.path("data/time_means.npy"), "img_size=[8,8]",
                           "time_features=false", "missing_masks=[\"sst\"]", kMissing});
    all.insert(all.end(), more.begin(), more.end());
    return entries_of(all);
  }

  RunConfig config_;
  std::unique_ptr<OpenedRecipe> data_;
};

}  // namespace

// Batches of six in two parts: two data ranks have uneven numbers of samples with weight.
TEST_CASE("missing: a layout has the loss, gradients and weights of one rank, whatever its samples miss") {
  const MissingPoints here;
  const std::vector<std::string> keys{kMissing, R"(missing_masks=["sst"])", "global_batch_size=6",
                                      "grad_accumulation=2"};
  const auto check = [&](const std::string& layout, std::vector<std::string> loss) {
    loss.insert(loss.end(), keys.begin(), keys.end());
    const Outcome outcome = here.command("check", loss, "--full --ranks 4 " + layout);
    INFO(layout << ' ' << loss[0] << '\n' << outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("\npassed\n"));
  };
  for (const char* layout : {"--context-parallel 2", "--tensor-parallel 2", "--context-parallel 4",
                             "--context-parallel 2 --shard-optimizer", "--tensor-parallel 2 --context-parallel 2"})
    check(layout, {"loss=weighted_mse"});
  check("--context-parallel 2", {"loss=relative_l2"});
  check("--context-parallel 2", {"loss=relative_l2", "rollout=2", "rollout_weights=[1,3]"});
  check("--context-parallel 2", {"loss=relative_l2_weighted", "channel_weights=[0,1]"});
}

TEST_CASE("missing: a batch's loss is the mean over its samples that have a point with weight") {
  const MissingPoints here;
  for (const std::string loss : {"relative_l2", "weighted_mse", "relative_l2_weighted"}) {
    INFO(loss);
    const std::array<int, 6>& counts = loss == "relative_l2_weighted" ? kHasSst : kHasPoint;
    const OpenedMissingPoints opened(here, {"loss=" + loss, "channel_weights=[0,1]", "global_batch_size=6"});
    const std::unique_ptr<Task> task = opened.task();
    CHECK_FALSE(task->counts_samples());
    double sum = 0, weight = 0;
    for (std::int64_t sample = 0; sample < 6; ++sample) {
      const Batch batch = read_batch(opened.data().train(), std::vector<std::int64_t>{sample});
      CHECK(task->weight(batch) == counts[static_cast<std::size_t>(sample)]);
      if (task->weight(batch) > 0) sum += task->loss(batch, {}).item();
      weight += task->weight(batch);
    }
    const Batch whole = read_batch(opened.data().train(), std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
    CHECK(task->weight(whole) == weight);
    CHECK(task->loss(whole, {}).item() == Approx(sum / weight).epsilon(1e-13));
  }
}

TEST_CASE("missing: a sample counts the points of each channel of its target, in its rows") {
  const MissingPoints here;
  const OpenedMissingPoints opened(here, {});
  const auto points = [](const Dataset& samples) {
    return tensor_of(read_batch(samples, std::vector<std::int64_t>{0, 2, 3, 4, 5}), "points").to_vector();
  };
  CHECK(points(opened.data().train()) == std::vector<double>{0, 64, 0, 0, 32, 32, 32, 28, 56, 48});
  CHECK(points(*opened.data().train().band({4, 4})) == std::vector<double>{0, 32, 0, 0, 0, 0, 32, 28, 28, 24});
}

// Its validation set has seven samples; one target misses all points.
TEST_CASE("missing: a validation is the mean over samples with weight, whatever batches it is read in") {
  const MissingPoints here;
  const auto loss_in_batches_of = [&](int samples) {
    const OpenedMissingPoints opened(
        here, {"loss=relative_l2_weighted", "channel_weights=[0,1]", concat("global_batch_size=", samples)});
    const std::unique_ptr<Task> task = opened.task();
    Trainer trainer(*task, opened.config().trainer_options());
    Loaders loaders(opened.data().train(), opened.data().valid(), opened.config().reading, opened.config().batch, 1,
                    Device{});
    const std::unique_ptr<Metrics> metrics = task->metrics();
    REQUIRE(trainer.validate(loaders.valid(), *metrics, [] { return false; }));
    return metrics->loss();
  };
  const double one_by_one = loss_in_batches_of(1);
  CHECK(std::isfinite(one_by_one));
  for (const int samples : {2, 3, 7}) CHECK(loss_in_batches_of(samples) == Approx(one_by_one).epsilon(1e-13));
}

TEST_CASE("missing: what a step exchanges is predicted, the weights of samples too") {
  const MissingPoints here;
  const OpenedMissingPoints opened(here, {"global_batch_size=6", "grad_accumulation=2"});
  const MeshSizes sizes{.dp = 2, .cp = 2};
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const TrainerOptions options = opened.config().trainer_options();
    const std::unique_ptr<TaskSource> on_shapes = opened.config().recipe->on_shapes();
    const Parallel parallel = Parallel::start(world, sizes, "tp-cp-dp", {});
    const std::unique_ptr<Task> task = opened.task(parallel);
    Trainer trainer(*task, options, parallel);
    Loaders loaders(opened.data().train(), opened.data().valid(), opened.config().reading, options.batch, 1, Device{},
                    {parallel.dp.rank(), parallel.dp.size(), task->band()});
    const CommLedger before = world.ledger();
    trainer.step([&] { return loaders.next(); });
    const CommLedger made = world.ledger().since(before);
    const auto compare = [&](const TaskSource& source, const std::string& name) {
      const PlannedRank place{.sizes = sizes, .rank = world.rank()};
      findings.expect(made == predict_step(source, options, place, DeviceKind::cpu).traffic, name);
    };
    compare(opened.data(), "predicted of opened data");
    compare(*on_shapes, "predicted of sizes alone");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("missing: data without a missing point train to the bits of a run that refuses them") {
  const MissingPoints here({.has_any = false});
  const std::vector<std::string> keys{"num_iters=4", "global_batch_size=6", "grad_accumulation=2", "log_every=1",
                                      "loss=weighted_mse"};
  std::vector<std::string> masked(keys);
  masked.push_back(kMissing);
  here.log_of_training("plain", keys);
  CHECK_THAT(here.log_of_training("masked", masked), !ContainsSubstring("without weight"));
  CHECK(metrics_of(here.path("plain")) == metrics_of(here.path("masked")));
}

TEST_CASE("missing: the log tells of samples without weight when one is met, and at the end how many there were") {
  const MissingPoints here;
  const std::string log = here.log_of_training("run", {kMissing, "num_iters=5", "global_batch_size=2"}, "--ranks 2");
  CHECK_THAT(log, ContainsSubstring("iteration 2 has samples without weight: all points of their targets are missing"));
  CHECK_THAT(log, ContainsSubstring("iterations 1 to 5: 2 of 10 samples had no weight: all points of their targets"));
  CHECK_THAT(log, !ContainsSubstring("iteration 5 has samples"));

  const Outcome judged =
      here.isobar("evaluate --weights " + here.path("run/checkpoints/step_00000005/model.safetensors") + " --scores " +
                  here.path("scores.json") + " --threads 1 --device cpu");
  CHECK(judged.err == "");
  const auto loss_in = [&](const std::string& file) {
    return nlohmann::json::parse(read_file(here.path(file))).at("val_loss").get<double>();
  };
  CHECK(loss_in("scores.json") == Approx(loss_in("run/summary.json")).epsilon(1e-12));
}

TEST_CASE("missing: what nothing can be learned or judged from is refused by name") {
  const auto refused = [](const MissingPoints& here, const std::vector<std::string>& keys) {
    std::vector<std::string> all{kMissing, "num_iters=4"};
    all.insert(all.end(), keys.begin(), keys.end());
    const Outcome outcome = here.command("train", all, "--run-dir " + here.path("run"));
    CHECK(outcome.status == 1);
    return outcome.err;
  };
  // A batch without any weight, after batches that have some.
  CHECK_THAT(refused(MissingPoints(), {"global_batch_size=1"}),
             ContainsSubstring("isobar: iteration 3: nothing counts in this batch of 1 sample; "));
  CHECK_THAT(refused(MissingPoints({.empty_from = 0}), {}),
             ContainsSubstring("channel sst is missing at every point of every step"));
  CHECK_THAT(refused(MissingPoints({.empty_from = kMaskedTrainSteps}), {}),
             ContainsSubstring("isobar: the validation set of 7 samples cannot judge the model: channel sst is missing "
                               "at every point of every target"));
  // Statistics of the whole grid have points that the part in use has not.
  const MissingPoints land({.land = 4});
  REQUIRE(land.isobar("data stats " + land.path("data") + " --allow-missing --out " + land.path("data")).err == "");
  CHECK(land.command("train", {kMissing, "num_iters=1"}, "--run-dir " + land.path("whole")).status == 0);
  CHECK_THAT(refused(land, {"img_size=[8,4]"}),
             ContainsSubstring("missing.npy: channel sst is missing at every point of the grid in every step"));
}

TEST_CASE("missing: commands that read data refuse holes, or leave them out where that is asked for") {
  const MissingPoints here;
  for (const std::string command : {"stats", "climatology", "convert"}) {
    const std::string out = here.path(command == "climatology" ? "means.nc" : command);
    const std::string line = "data " + command + " " + here.path("data") + " --out " + out + " --channels wind";
    INFO(line);
    CHECK(here.isobar(line).status == 0);
    std::filesystem::remove_all(out);
    const Outcome refusal = here.isobar(line + ",sst");
    CHECK(refusal.status == 1);
    CHECK_THAT(refusal.err, ContainsSubstring("sst"));
    std::filesystem::remove_all(out);
    const Outcome made = here.isobar(line + ",sst --allow-missing");
    INFO(made.err);
    CHECK(made.status == 0);
  }
  CHECK(here.isobar("data climatology " + here.path("data") + " --allow-missing --out " + here.path("all.nc")).status ==
        0);
}

}  // namespace isobar::testing
