// Whole runs of the command that compute volumes from volumes: the log of NERSC's tutorial, resuming, several ranks,
// files, the tutorial's flags and YAML, and other tasks.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "tests/harness/metrics_difference.h"
#include "tests/harness/small_runs.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;
using testing::ContainsSubstring;
using testing::Outcome;
using testing::SmallRuns;
namespace fs = std::filesystem;

// 2 updates an epoch.
constexpr const char* kSmallUnet =
    " --config unet_cpu --set volumes=synthetic --set width=2 --set levels=2 --set data_size=4 --set nsamples=16"
    " --set nsamples_val=5 --set global_batch_size=8 --set log_every=1 --threads 1 --device cpu ";

// Smooth fields, of which the target is a function.
void write_volumes(const fs::path& folder, float phase) {
  constexpr std::int64_t kLength = 12;
  fs::create_directories(folder);
  hdf5::File file = hdf5::File::create((folder / "box.h5").string());
  std::vector<float> input, target;
  for (std::int64_t c = 0; c < 5; ++c)
    for (std::int64_t i = 0; i < kLength * kLength * kLength; ++i) {
      const auto x = static_cast<float>(i % kLength), y = static_cast<float>(i / kLength % kLength);
      const float value = 0.5f * std::sin(phase + x / 2 + static_cast<float>(c % 4)) * std::cos(y / 3);
      if (c < 4) input.push_back(value);
      target.push_back(value * value);
    }
  file.write("Nbody", std::vector<std::int64_t>{4, kLength, kLength, kLength}, input);
  file.write("Hydro", std::vector<std::int64_t>{5, kLength, kLength, kLength}, target);
  file.close();
}

}  // namespace

TEST_CASE("volume regression: a run has the tutorial's lines, falls below the input's error, and is judged again") {
  const SmallRuns here(kSmallUnet);
  here.done(here.train("run", "--set num_epochs=30 --set lr=2e-2 --set augment=none"));
  const std::string log = here.file("run/out.log");
  for (const char* line : {"Starting Training Loop...", "Time taken for epoch 30 is ",
                           "  Avg train loss=", "  Avg val loss=", "  Total validation time: ", "DONE ---- rank 0"})
    CHECK_THAT(log, ContainsSubstring(line));
  const json summary = json::parse(here.file("run/summary.json"));
  double l1 = 0;
  for (const char* channel : {"rho", "vx", "vy", "vz", "T"}) l1 += summary.at("val_l1").at(channel).get<double>() / 5;
  CHECK(std::abs(l1 - summary.at("val_loss").get<double>()) < 1e-12);
  CHECK(std::abs(summary.at("val_input_l1").at("rho").get<double>() - 0.25) < 0.02);
  CHECK(summary.at("val_loss").get<double>() < 0.25);
  CHECK(fs::exists(here.path("run/images/prediction_00000060.png")));
  here.done(here.command("evaluate --threads 1 --device cpu --weights " +
                         here.path("run/checkpoints/step_00000060/model.safetensors").string() + " --scores " +
                         here.path("scores.json").string()));
  const json scores = json::parse(here.file("scores.json"));
  for (const char* key : {"val_loss", "val_l1", "val_input_l1"}) CHECK(scores.at(key) == summary.at(key));
}

TEST_CASE("volume regression: a run that was stopped and resumed has the bits of one that was not") {
  for (const std::string kind : {"", "--set crops=tutorial --set augment=tutorial --set shuffle=false",
                                 "--set data_size=[4,8,8] --set wrap=true"}) {
    INFO(kind);
    const SmallRuns here(kSmallUnet);
    const std::string settings = "--set lr_schedule=constant " + kind;
    here.done(here.train("whole", settings + " --num_iters 8"));
    here.done(here.train("broken", settings + " --num_iters 5"));
    here.done(here.command("train --resume --num-iters 8 --run-dir " + here.path("broken").string()));
    for (const char* part : {"model.safetensors", "optimizer.safetensors"})
      CHECK((here.file(std::string("whole/checkpoints/step_00000008/") + part) ==
             here.file(std::string("broken/checkpoints/step_00000008/") + part)));
  }
}

TEST_CASE("volume regression: every validation has the same samples, which are of the run's seed") {
  const SmallRuns here(kSmallUnet);
  const auto losses = [&](const std::string& run, const std::string& more) {
    here.done(here.train(run, "--set num_epochs=3 --set lr=0 " + more));
    std::vector<double> found;
    for (const json& line : testing::metrics_of(here.path(run)))
      if (line.at("event") == "valid") found.push_back(line.at("loss").get<double>());
    return found;
  };
  const std::vector<double> one = losses("one", ""), other = losses("other", "--set seed=5 --set conv_scale=0"),
                            zero = losses("zero", "--set conv_scale=0");
  REQUIRE(one.size() >= 2);
  for (const double loss : one) CHECK(loss == one[0]);
  CHECK(other[0] != zero[0]);  // networks without weights: other samples
}

// With periodic volumes every crop of a run is one that wraps in some way, unless it begins at a place that others have
// too: the losses differ.
TEST_CASE("volume regression: a run on periodic volumes is another one, and is not resumed without wrap") {
  const SmallRuns here(kSmallUnet);
  const std::string short_run = " --set data_size=[4,8,4] --num_iters 2";
  here.done(here.train("within", short_run));
  here.done(here.train("around", "--set wrap=true" + short_run));
  CHECK(testing::metrics_of(here.path("within")) != testing::metrics_of(here.path("around")));
  const Outcome refused =
      here.command("train --resume --num-iters 4 --set wrap=false --run-dir " + here.path("around").string());
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, ContainsSubstring("wrap"));
  const Outcome evaluated = here.command("evaluate --threads 1 --device cpu --weights " + here.path("around").string());
  here.done(evaluated);
}

TEST_CASE("volume regression: ranks make the run of one, with and without a sharded optimizer") {
  const SmallRuns here(kSmallUnet);
  const std::string fp64 = "--set dtype=fp64 --set num_epochs=3 --set lambda_rho=1e-3 ";
  here.done(here.train("serial", fp64));
  const std::vector<json> serial = testing::metrics_of(here.path("serial"));
  for (const char* ranks : {"--ranks 2", "--ranks 4", "--ranks 4 --shard-optimizer"}) {
    INFO(ranks);
    const Outcome run = here.train("ranks", fp64 + ranks + " --overwrite --comm-report");
    here.done(run);
    CHECK_THAT(run.out, ContainsSubstring("on every rank the prediction is what was counted"));
    CHECK(testing::difference(serial, testing::metrics_of(here.path("ranks"))) < 1e-12);
  }
  const Outcome checked =
      here.command("check" + std::string(kSmallUnet) + "--ranks 4 --shard-optimizer --set dtype=fp64");
  here.done(checked);
  CHECK_THAT(checked.out, ContainsSubstring("\npassed\n"));
  for (const char* shared : {"--tensor-parallel 2", "--context-parallel 2"}) {
    const Outcome refused = here.train("refused", "--ranks 2 " + std::string(shared));
    CHECK(refused.status == 1);
    CHECK_THAT(refused.err, ContainsSubstring("context parallel: "));
    CHECK_FALSE(fs::exists(here.path("refused")));
  }
}

TEST_CASE(
    "volume regression: the tutorial's YAML and flags as they are, on files read and in memory with the same bits") {
  const SmallRuns here(kSmallUnet);
  write_volumes(here.path("data/train"), 0);
  write_volumes(here.path("data/valid"), 1);
  std::ofstream(here.path("UNet.yaml")) << R"(
base: &base
  weight_init: {conv_init: 'normal', conv_scale: 0.02, conv_bias: 0.}
  lambda_rho: 0
  full_scale: True
  global_batch_size: 4
  base_batch_size: 4
  Nsamples: 8
  Nsamples_val: 4
  num_epochs: 10
  enable_amp: False
  enable_apex: False
  enable_benchy: False
  enable_jit: False
  expdir: '/logs'
  lr_schedule: {scaling: 'sqrt', start_lr: 2.E-4, end_lr: 0., warmup_steps: 128}
  data_loader_config: 'lowmem'
  box_size: [1024, 512]
  data_size: 8
  num_data_workers: 2
  N_out_channels: 5
  train_path: '/nowhere/train.h5'
  val_path: '/nowhere/valid.h5'
  use_cache: None

short: &short
  <<: *base
  Nsamples: 4
)";
  const auto run = [&](const std::string& number, const std::string& more) {
    here.done(here.command(
        "train --yaml_config=" + here.path("UNet.yaml").string() + " --config=short --run_num=" + number +
        " --num_epochs=2 --set expdir=" + here.path("logs").string() +
        " --set width=2 --set levels=2 --threads 1 --device cpu --data " + here.path("data").string() + " " + more));
    return "logs/short/CPU/" + number + "/";
  };
  const std::string from_files = run("00", ""), in_memory = run("01", "--data_loader_config inmem");
  const json config = json::parse(here.file(from_files + "config.json"));
  CHECK(config.at("task") == "volume_regression");
  CHECK(config.at("nsamples") == 4);
  CHECK(config.at("num_iters") == 2);
  CHECK(config.at("warmup") == 128);
  CHECK(config.at("volumes") == "file");
  CHECK(json::parse(here.file(in_memory + "config.json")).at("volumes") == "memory");
  CHECK((here.file(from_files + "checkpoints/step_00000002/model.safetensors").size() > 0));
  CHECK(testing::metrics_of(here.path(from_files)) == testing::metrics_of(here.path(in_memory)));
}

TEST_CASE("volume regression: the U-Net takes images and forecasts fields, the CNN takes volumes") {
  const SmallRuns here(kSmallUnet);
  here.done(
      here.command("train --config unet_cpu --set model=cnn --set depth=2 --set width=2 --set volumes=synthetic"
                   " --set data_size=4 --set nsamples=16 --set nsamples_val=5 --set global_batch_size=8"
                   " --set num_epochs=1 --threads 1 --device cpu --run-dir " +
                   here.path("cnn").string()));
  CHECK_THAT(here.file("cnn/out.log"), ContainsSubstring("CNN with "));
  here.done(
      here.command("train --config cnn --set model=unet --set levels=2 --set width=2 --set img_size=[8,12]"
                   " --set nsamples=12 --set nsamples_val=3 --set global_batch_size=6 --set num_epochs=1"
                   " --threads 1 --device cpu --run-dir " +
                   here.path("images").string()));
  here.done(here.command("data synth --out " + here.path("planet").string() +
                         " --train-years 1 --valid-years 1 --steps-per-year 40 --grid 16x32 --channels 4"));
  const std::string forecast =
      "--config tiny --set model=unet --set width=2 --set levels=3 --set bounded=false"
      " --set 'edge=[\"zeros\",\"wrap\"]' --set num_iters=4 --threads 1 --device cpu --data " +
      here.path("planet").string() + " --run-dir " + here.path("forecast").string();
  here.done(here.command("train " + forecast));
  here.done(here.command("forecast --device cpu --start 0 --steps 2 --out " + here.path("f.h5").string() + " --data " +
                         here.path("planet").string() + " --weights " + here.path("forecast").string()));
}

}  // namespace isobar
