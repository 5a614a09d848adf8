// Whole runs of the command that compute images from images: the flags, the YAML and the log of NERSC's course, going
// on by itself, several ranks, files, and other networks and tasks.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/data/files/idx_files.h"
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

// The course's config on small images: 2 updates an epoch.
constexpr const char* kSmallCnn =
    " --config cnn --set width=6 --set depth=3 --set img_size=[8,9] --set nsamples=24 --set nsamples_val=13"
    " --set global_batch_size=12 --set log_every=1 --threads 1 --device cpu ";

bool has_line(const std::string& log, const std::string& pattern) {
  return std::regex_search(log, std::regex(pattern));
}

constexpr const char* kNumber = "[0-9.e+-]+";

}  // namespace

TEST_CASE("image regression: the course's command line and YAML as they are, its lines, and a best model") {
  const SmallRuns here(kSmallCnn);
  std::ofstream(here.path("course.yaml")) << R"(
default: &default
  num_data_workers: 1
  in_chan: 1
  out_chan: 2
  depth: 3
  lr: 1E-3
  max_epochs: 3
  max_cosine_lr_epochs: 25
  batch_size: 8
  valid_batch_size: 32
  log_to_screen: !!bool True
  save_checkpoint: !!bool True
  train_path: ''
  val_path: ''

test:
  <<: *default
  batch_size: 16
)";
  const Outcome run = here.command("train --yaml_config=" + here.path("course.yaml").string() +
                                   " --config=test --root_dir=" + here.path("outputs").string() +
                                   " --run_num=ddp-module --threads 1 --device cpu --set img_size=[8,9]"
                                   " --set nsamples=32 --set nsamples_val=13 --set width=4");
  here.done(run);
  CHECK_THAT(run.out, ContainsSubstring("valid_batch_size: a batch of a validation has as many samples"));
  const std::string folder = "outputs/test/CPU/ddp-module/";
  const json config = json::parse(here.file(folder + "config.json"));
  CHECK(config.at("task") == "image_regression");
  CHECK(config.at("model") == "cnn");
  CHECK(config.at("global_batch_size") == 16);
  CHECK(config.at("num_iters") == 6);
  CHECK(config.at("num_epochs") == 3);
  CHECK(config.at("decay_epochs") == 25);
  CHECK(config.at("lr_step") == "epoch");
  CHECK(config.at("betas") == json{0.9, 0.999});
  CHECK(config.at("n_out_channels") == 2);
  CHECK(config.at("activate_output") == true);
  CHECK(config.at("resume") == "auto");

  const std::string log = here.file(folder + "out.log");
  for (const char* line :
       {"running on rank 0 with world size 1\n", "Starting training loop...\n", "Training complete\n"})
    CHECK_THAT(log, ContainsSubstring(line));
  const std::string n = kNumber;
  for (const char* epoch : {"1", "2", "3"})
    CHECK(has_line(log, "Time taken for epoch " + std::string(epoch) + " is " + n + " sec; with " + n + "/" + n +
                            " in tr/val\n.*Loss = " + n + ", Val loss = " + n + "\n"));
  CHECK_THAT(log, !ContainsSubstring("Avg train loss"));
  for (const char* file : {"checkpoints/step_00000006/model.safetensors", "best/model.safetensors", "summary.json"})
    CHECK(fs::exists(here.path(folder + file)));
  const json summary = json::parse(here.file(folder + "summary.json"));
  CHECK(summary.at("val_l1").contains("c1"));
  CHECK(std::abs(summary.at("val_constant_loss").get<double>() - 1 / 12.0) < 0.01);
  CHECK(std::abs(summary.at("val_input_loss").get<double>() - 1 / 6.0) < 0.02);
}

TEST_CASE("image regression: a run goes on by itself, with the same bits as one that was not stopped") {
  const SmallRuns here(kSmallCnn);
  here.done(here.train("whole", "--set num_epochs=4"));
  here.done(here.train("broken", "--set num_epochs=2"));
  const Outcome again = here.train("broken", "--set num_epochs=4");
  here.done(again);
  CHECK_THAT(again.out, ContainsSubstring("Loading checkpoint "));
  for (const std::string file : {"checkpoints/step_00000008/", "best/"})
    for (const char* part : {"model.safetensors", "optimizer.safetensors"})
      CHECK((here.file("whole/" + file + part) == here.file("broken/" + file + part)));
  CHECK(testing::metrics_of(here.path("whole")) == testing::metrics_of(here.path("broken")));
  CHECK_THAT(here.train("broken", "--set num_epochs=4").out, ContainsSubstring(" is finished"));
  here.done(here.train("broken", "--set num_epochs=1 --overwrite"));
  CHECK_FALSE(fs::exists(here.path("broken/checkpoints/step_00000008")));
  const Outcome refused = here.train("broken", "--set num_epochs=4 --set resume=false");
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, ContainsSubstring("holds a run already"));
}

TEST_CASE("image regression: ranks make the run of one, with and without a sharded optimizer") {
  const SmallRuns here(kSmallCnn);
  const std::string fp64 = "--set dtype=fp64 --set num_epochs=3 ";
  here.done(here.train("serial", fp64));
  const std::vector<json> serial = testing::metrics_of(here.path("serial"));
  for (const char* ranks : {"--ranks 2", "--ranks 4", "--ranks 2 --shard-optimizer", "--ranks 4 --shard-optimizer"}) {
    INFO(ranks);
    const Outcome run = here.train("ranks", fp64 + ranks + " --overwrite --comm-report");
    here.done(run);
    CHECK_THAT(run.out, ContainsSubstring("on every rank the prediction is what was counted"));
    CHECK(testing::difference(serial, testing::metrics_of(here.path("ranks"))) < 1e-12);
  }
  here.done(here.train("parts", fp64 + "--set num_epochs=1 --ranks 4 --shard-optimizer"));
  here.done(here.train("parts", fp64 + "--ranks 2"));
  CHECK(testing::difference(serial, testing::metrics_of(here.path("parts"))) < 1e-12);

  const Outcome checked =
      here.command("check" + std::string(kSmallCnn) + "--ranks 4 --shard-optimizer --set dtype=fp64");
  here.done(checked);
  CHECK_THAT(checked.out, ContainsSubstring("\npassed\n"));
  for (const char* shared : {"--tensor-parallel 2", "--context-parallel 2"}) {
    const Outcome refused = here.train("refused", "--ranks 2 " + std::string(shared));
    CHECK(refused.status == 1);
    CHECK_THAT(refused.err, ContainsSubstring("context parallel: "));
    CHECK_FALSE(fs::exists(here.path("refused")));
  }
}

TEST_CASE("image regression: noise is learnt away, and the weights are judged by evaluate") {
  const SmallRuns here(kSmallCnn);
  // Bright and dark rows, in one of two phases.
  for (const auto& [prefix, count] : {std::pair("train", 48), std::pair("t10k", 13)}) {
    testing::ImageSet set{8, 8, "", std::string(static_cast<std::size_t>(count), '\0')};
    for (int i = 0; i < count; ++i)
      for (int pixel = 0; pixel < 64; ++pixel) set.pixels += (pixel / 8 + i) % 2 == 0 ? '\0' : static_cast<char>(255);
    fs::create_directories(here.path("data"));
    testing::write_images(here.path("data"), prefix, set);
  }
  const std::string noisy =
      "--config cnn --set width=8 --set depth=4 --set images=noisy --set activate_output=false --set log_every=1"
      " --set global_batch_size=12 --set num_epochs=40 --set decay_epochs=40 --set lr=1e-2 --threads 1 --device cpu"
      " --data " +
      here.path("data").string() + " --run-dir " + here.path("run").string();
  here.done(here.command("train " + noisy));
  const json summary = json::parse(here.file("run/summary.json"));
  CHECK(std::abs(summary.at("val_input_loss").get<double>() - 0.25) < 0.05);
  CHECK(std::abs(summary.at("val_constant_loss").get<double>() - 0.25) < 0.01);
  CHECK(summary.at("val_loss").get<double>() < 0.05);
  here.done(here.command("evaluate --threads 1 --device cpu --weights " +
                         here.path("run/checkpoints/step_00000160/model.safetensors").string() + " --scores " +
                         here.path("scores.json").string()));
  const json scores = json::parse(here.file("scores.json"));
  for (const char* key : {"val_loss", "val_l1", "val_input_loss", "val_constant_loss"})
    CHECK(scores.at(key) == summary.at(key));
  CHECK(fs::exists(here.path("run/images/prediction_00000160.png")));
}

TEST_CASE("image regression: a vision transformer takes the images, and the CNN forecasts fields") {
  const SmallRuns here(kSmallCnn);
  here.done(
      here.command("train --config cnn --set model=vit --set embed_dim=16 --set num_heads=2 --set depth=1"
                   " --set patch_size=4 --set img_size=[8,12] --set nsamples=24 --set nsamples_val=5"
                   " --set global_batch_size=12 --set num_epochs=2 --threads 1 --device cpu --run-dir " +
                   here.path("vit").string()));
  CHECK_THAT(here.file("vit/out.log"), ContainsSubstring("ViT with "));

  here.done(here.command("data synth --out " + here.path("data").string() +
                         " --train-years 1 --valid-years 1 --steps-per-year 40 --grid 16x32 --channels 4"));
  const std::string forecast =
      "--config tiny --set model=cnn --set width=6 --set 'edge=[\"zeros\",\"wrap\"]'"
      " --set num_iters=8 --set validate_every=4 --set checkpoint_every=4 --threads 1"
      " --device cpu --data " +
      here.path("data").string() + " --run-dir ";
  here.done(here.command("train " + forecast + here.path("whole").string()));
  here.done(
      here.command("train " + forecast + here.path("parts").string() + " --set lr_schedule=constant --num-iters 4"));
  here.done(here.command("train --resume --num-iters 8 --run-dir " + here.path("parts").string()));
  here.done(here.command("forecast --device cpu --start 0 --steps 2 --out " + here.path("f.h5").string() + " --data " +
                         here.path("data").string() + " --weights " + here.path("whole").string()));
  const Outcome classes = here.command("train --config mnist --set model=cnn --data " + here.path("data").string());
  CHECK(classes.status == 1);
}

}  // namespace isobar
