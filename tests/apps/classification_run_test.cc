// Whole runs of the command that classify small images: what a run leaves behind, that it learns, resuming bit for bit.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/tensorboard_events.h"
#include "tests/harness/testing.h"

using isobar::read_file;
using isobar::testing::Approx;
using isobar::testing::ContainsSubstring;
using isobar::testing::ImageSet;
using isobar::testing::isobar_command;
using isobar::testing::metrics_of;
using isobar::testing::Outcome;
using isobar::testing::TensorBoardEvents;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Noise below 100 is of class 0, noise from 155 on of class 1: a threshold tells them apart.
ImageSet dark_and_bright(std::size_t count, unsigned seed) {
  ImageSet set{8, 12, "", ""};
  unsigned state = seed;
  for (std::size_t i = 0; i < count; ++i) {
    const bool bright = i % 3 != 0;
    set.labels += static_cast<char>(bright);
    for (int pixel = 0; pixel < 8 * 12; ++pixel) {
      state = state * 1664525u + 1013904223u;  // the generator of Numerical Recipes
      set.pixels += static_cast<char>(static_cast<unsigned char>((state >> 16) % 100 + (bright ? 155 : 0)));
    }
  }
  return set;
}

// Files of images, and a config for them.
class Playground {
 public:
  Playground() {
    fs::create_directories(folder_ / "data");
    isobar::testing::write_images(folder_ / "data", "train", dark_and_bright(67, 1));  // 8 batches of 8, and 3
    isobar::testing::write_images(folder_ / "data", "t10k", dark_and_bright(21, 2));
    std::ofstream(folder_ / "small.json") << R"({
      "task": "classification", "embed_dim": 16, "depth": 2, "num_heads": 2, "patch_size": 4, "dropout": 0.1,
      "global_batch_size": 8, "num_iters": 40, "lr": 3e-3, "lr_schedule": "constant", "optimizer": "adamw",
      "weight_decay": 0.05, "log_every": 5, "validate_every": 10, "checkpoint_every": 10, "keep_checkpoints": 0})";
  }

  std::string operator/(const std::string& name) const { return (folder_ / name).string(); }
  Outcome train(const std::string& run, const std::string& more = "", const std::string& data = "data") const {
    return isobar_command(folder_.path(), "train --config " + *this / "small.json" + " --data " + *this / data +
                                              " --run-dir " + *this / run + " --threads 1 --device cpu " + more);
  }

 private:
  isobar::testing::TemporaryFolder folder_;
};

void check_done(const Outcome& outcome) {
  CHECK(outcome.err == "");
  REQUIRE(outcome.status == 0);
}

json summary_of(const std::string& run) {
  return json::parse(read_file(run + "/summary.json"));
}

}  // namespace

TEST_CASE("a run that classifies leaves its files, and learns") {
  const Playground here;
  check_done(here.train("run"));
  const std::string run = here / "run";

  std::vector<std::int64_t> trained, validated;
  std::vector<double> losses, accuracies;
  for (const json& line : metrics_of(run)) {
    const bool is_valid = line.at("event") == "valid";
    (is_valid ? validated : trained).push_back(line.at("iteration"));
    CHECK(line.at("epoch") == (line.at("iteration").get<int>() + 7) / 8);
    CHECK(line.contains("accuracy") == is_valid);
    if (!is_valid) continue;
    losses.push_back(line.at("loss"));
    accuracies.push_back(line.at("accuracy"));
  }
  CHECK(trained == std::vector<std::int64_t>{5, 10, 15, 20, 25, 30, 35, 40});
  REQUIRE(validated == std::vector<std::int64_t>{0, 10, 20, 30, 40});
  CHECK(losses.front() > 0.4);    // chance: ln 2, or 0.64 from the classes' shares of 1/3 and 2/3
  CHECK(accuracies.front() < 1);  // of untrained weights
  CHECK(losses.back() < 0.05);
  CHECK(accuracies.back() == 1);

  const json summary = summary_of(run);
  CHECK(summary.at("val_accuracy") == accuracies.back());
  CHECK(summary.at("val_loss") == losses.back());
  CHECK(summary.at("iterations") == 40);
  CHECK_FALSE(summary.contains("val_rmse"));
  const std::string log = read_file(run + "/out.log");
  for (const char* line : {"ViT classifier", "67 training samples, 8 iterations an epoch, 21 validation samples",
                           "  Accuracy: 100.00 %, 0 of 21 read wrongly", "       1       14       14  100.00 %"})
    CHECK_THAT(log, ContainsSubstring(line));

  const TensorBoardEvents events(*fs::directory_iterator(run + "/logs"));
  for (std::size_t i = 0; i < validated.size(); ++i) {
    CHECK(events.scalars.at({"Accuracy/valid", validated[i]}) == Approx(accuracies[i]).epsilon(1e-6));
    CHECK(events.scalars.at({"Loss/valid", validated[i]}) == Approx(losses[i]).epsilon(1e-6));
    const std::string picture = events.images.at({"Visualization, read wrongly", validated[i]});
    std::string number = std::to_string(validated[i]);
    number.insert(0, 8 - number.size(), '0');
    CHECK(picture == read_file(run + "/images/wrong_" + number + ".png"));
  }
  // Both have mistakes before, and none after.
  CHECK(read_file(run + "/images/wrong_00000000.png") != read_file(run + "/images/wrong_00000040.png"));

  const json config = json::parse(read_file(run + "/config.json"));
  CHECK(config.at("task") == "classification");
  CHECK(config.at("classes") == 2);
  CHECK(config.at("images_path") == here / "data");
}

TEST_CASE("weights that classify are judged by evaluate, and forecast nothing") {
  const Playground here;
  check_done(here.train("run"));
  const std::string weights = here / "run/checkpoints/step_00000040/model.safetensors";
  const auto command = [&](const std::string& arguments) {
    return isobar_command(here / "", arguments + " --threads 1 --device cpu --weights " + weights);
  };
  check_done(command("evaluate --scores " + here / "scores.json"));
  const json scores = json::parse(read_file(here / "scores.json")), summary = summary_of(here / "run");
  CHECK(scores == json{{"val_loss", summary.at("val_loss")}, {"val_accuracy", summary.at("val_accuracy")}});
  const Outcome forecast = command("forecast --start 0 --out " + here / "f.h5" + " --data " + here / "data");
  CHECK(forecast.status == 1);
  CHECK(forecast.err == "isobar: " + weights + " is a model of the task classification, which forecasts nothing\n");
}

TEST_CASE("a third set of images is judged once at the end, and evaluate needs no training images") {
  const Playground here;
  fs::create_directories(here / "third");
  isobar::testing::write_images(here / "third", "t10k", dark_and_bright(11, 5));
  const std::string test = "--set test_images_path=" + here / "third";
  check_done(here.train("run", test));
  const json summary = summary_of(here / "run");
  CHECK(summary.at("test_accuracy") == 1);
  CHECK(summary.at("test_loss") > 0);
  CHECK(json::parse(read_file(here / "run/config.json")).at("test_images_path") == here / "third");
  CHECK_THAT(read_file(here / "run/out.log"), ContainsSubstring("Accuracy on the test set, and its loss\n"));

  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
    fs::remove(here / ("data/" + std::string(file)));
  const auto judged = [&](const std::string& split) {
    check_done(isobar_command(here / "", "evaluate --threads 1 --device cpu --weights " + here / "run" + " --split " +
                                             split + " --scores " + here / "scores.json"));
    return json::parse(read_file(here / "scores.json"));
  };
  const json scores = judged("test");
  CHECK(scores == json{{"test_loss", summary.at("test_loss")}, {"test_accuracy", 1}});
  CHECK(judged("valid").contains("val_accuracy"));
}

TEST_CASE("a run that classifies and is resumed ends with the same bits") {
  const Playground here;
  const std::string precision = GENERATE("", "--amp_mode bf16 --set grad_accumulation=2");
  CAPTURE(precision);
  check_done(here.train("whole", precision));
  check_done(here.train("broken", precision + " --num_iters 20"));  // in the middle of the third epoch
  check_done(here.train("broken", precision + " --resume"));
  const auto same = [&](const std::string& file) {
    return read_file(here / ("whole/" + file)) == read_file(here / ("broken/" + file));
  };
  CHECK(same("checkpoints/step_00000020/optimizer.safetensors"));
  for (const std::string folder : {"checkpoints/step_00000040", "best"}) {
    CHECK(same(folder + "/model.safetensors"));
    CHECK(same(folder + "/optimizer.safetensors"));
  }
  CHECK(metrics_of(here / "whole") == metrics_of(here / "broken"));
  for (const char* key : {"train_loss", "val_loss", "val_accuracy"})
    CHECK(summary_of(here / "whole").at(key) == summary_of(here / "broken").at(key));
}

TEST_CASE("a run that classifies goes on with its own images only, and starts with those that it is given") {
  const Playground here;
  check_done(here.train("run", "--num_iters 2"));
  fs::create_directories(here / "other");
  isobar::testing::write_images(here / "other", "train", dark_and_bright(67, 3));
  isobar::testing::write_images(here / "other", "t10k", dark_and_bright(21, 4));
  const Outcome resumed = here.train("run", "--resume --num_iters 4", "other");
  CHECK(resumed.status == 1);
  CHECK_THAT(resumed.err, ContainsSubstring("these are not the images that"));
  check_done(here.train("run", "--resume --num_iters 4"));
  check_done(here.train("second", "--num_iters 2 --init " + here / "run/best/model.safetensors", "other"));

  const Outcome empty = here.train("third", "", "run");
  CHECK(empty.status == 1);
  CHECK_THAT(empty.err, ContainsSubstring(" lacks train-images-idx3-ubyte and train-labels-idx1-ubyte"));
  CHECK_FALSE(fs::exists(here / "third"));
}
