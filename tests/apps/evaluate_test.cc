// isobar evaluate: what it says of a run's weights is what the run said of them itself.
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/files/npy.h"
#include "engine/files/reader.h"
#include "tests/harness/data_files.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using nlohmann::json;

// A run of two iterations on made-up waves; its last checkpoint. latitudes: of the data's four rows; empty: not told.
// more: flags of the training.
class SmallRun {
 public:
  explicit SmallRun(const std::vector<double>& latitudes = {}, const std::string& more = "") {
    const FieldsShape shape{8, 2, 4, 8};
    for (const std::string part : {"train", "valid"}) {
      std::filesystem::create_directories(folder_ / ("data/" + part));
      std::vector<float> values(field_values(shape));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37f * static_cast<float>(i));
      write_labelled_fields(*this / ("data/" + part + "/2001.h5"), shape, {.names = {"a", "b"}, .latitudes = latitudes},
                            values);
    }
    std::ofstream(folder_ / "small.json") << R"({
      "embed_dim": 16, "depth": 1, "num_heads": 2, "patch_size": 4, "img_size": [4, 8], "n_in_channels": 2,
      "n_out_channels": 2, "global_batch_size": 2, "num_iters": 2, "lr": 1e-2})";
    const Outcome trained = run("train --config " + *this / "small.json" + " --data " + *this / "data" + " --run-dir " +
                                *this / "run " + more + kHere);
    INFO(trained.err);
    REQUIRE(trained.status == 0);
  }

  Outcome run(const std::string& arguments) const { return isobar_command(folder_.path(), arguments); }
  Outcome evaluate(const std::string& more = "") const {
    return run("evaluate --weights " + last() + " --scores " + scores() + kHere + more);
  }
  std::string last() const { return *this / "run/checkpoints/step_00000002/model.safetensors"; }
  std::string scores() const { return *this / "scores.json"; }
  json read(const std::string& file) const { return json::parse(read_file(folder_ / file)); }
  std::string operator/(const std::string& name) const { return (folder_ / name); }

 private:
  static constexpr const char* kHere = " --threads 1 --device cpu";
  TemporaryFolder folder_;
};

TEST_CASE("evaluate finds the loss and the metrics that the run's summary has") {
  const SmallRun run;
  const Outcome outcome = run.evaluate();
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  const json summary = run.read("run/summary.json"), scores = run.read("scores.json");
  CHECK(scores.size() == 5);
  for (const auto& [name, value] : scores.items()) CHECK(summary.at(name) == value);
  CHECK_THAT(outcome.out, ContainsSubstring("weights: " + run.last()) && ContainsSubstring("validation loss ") &&
                              ContainsSubstring("of persistence's RMSE"));
}

TEST_CASE("every command that reads a config names the keys that a later choice of task leaves out") {
  const SmallRun run;
  const std::string forecast = "left out, since vit for forecast has no such keys: ignored_label\n";
  std::ofstream(run / "images.json") << R"({"task": "classification", "ignored_label": 3, "embed_dim": 16, "depth": 1,
    "num_heads": 2, "patch_size": 4, "global_batch_size": 2, "num_iters": 2})";
  const std::string config = " --config " + run / "images.json" +
                             " --set task=forecast --set img_size=[4,8] --set n_in_channels=2 --set n_out_channels=2";
  const std::string here = " --threads 1 --device cpu --data " + run / "data";
  for (const std::string& command :
       {"train --run-dir " + run / "other" + config + here, "check" + config + here, "mesh" + config,
        "forecast --start 0 --out " + run / "out.h5" + " --weights " + run.last() + config + here}) {
    const Outcome outcome = run.run(command);
    INFO(command << '\n' << outcome.err);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring(forecast));
  }
  CHECK_THAT(run.evaluate(" --set task=classification").out,
             ContainsSubstring("left out, since vit for classification has no such keys: accumulate allow_overlap "));
  CHECK_THAT(run.evaluate().out, !ContainsSubstring("left out"));
}

TEST_CASE("evaluate normalises with the statistics that the weights were trained with, not with the data's own") {
  const SmallRun run;
  REQUIRE(run.evaluate().status == 0);
  const json own = run.read("scores.json");
  const std::string other = run / "other", statistics = other + "/stats";
  std::filesystem::copy(run / "data", other, std::filesystem::copy_options::recursive);
  REQUIRE(run.run("data stats " + other + "/train --out " + statistics).status == 0);
  for (const char* name : {"/global_means.npy", "/global_stds.npy"}) {
    std::vector<double> values = read_npy(statistics + name).values;
    for (double& value : values) value = 3 * value + 0.1;
    write_npy(statistics + name, std::array<std::int64_t, 4>{1, 2, 1, 1}, std::span<const double>(values));
  }
  const Outcome outcome = run.evaluate(" --data " + other);
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(run.read("scores.json") == own);
}

TEST_CASE("evaluate: --set wins over --data") {
  const SmallRun run;
  const std::string other = run / "other/valid", set = " --set valid_data_path=" + other;
  std::filesystem::create_directories(other);
  const FieldsShape shape{6, 2, 4, 8};
  std::vector<float> values(field_values(shape));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::cos(0.11f * static_cast<float>(i));
  write_labelled_fields(other + "/2001.h5", shape, {.names = {"a", "b"}}, values);
  const auto loss = [&](const std::string& more) {
    const Outcome outcome = run.evaluate(more);
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return run.read("scores.json").at("val_loss").get<double>();
  };
  const double of_other = loss(set);
  CHECK(of_other != loss(""));
  CHECK(loss(" --data " + run / "data" + set) == of_other);
  CHECK(loss(set + " --data " + run / "data") == of_other);
}

TEST_CASE("evaluate follows --data and --set, and refuses what it cannot judge") {
  const SmallRun run;
  const auto refused = [&](const Outcome& outcome, const std::string& words) {
    CHECK(outcome.status == 1);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(words));
  };
  REQUIRE(run.evaluate(" --set limit_nsamples_val=3").status == 0);
  CHECK(run.read("scores.json").at("val_loss") != run.read("run/summary.json").at("val_loss"));
  refused(run.evaluate(" --data " + run / "nowhere"), "nowhere is not a folder");
  refused(run.evaluate(" --set lr=-1"), "config key lr in --set must be at least 0");
  refused(run.evaluate(" --set depth=2"), "is missing");
  refused(run.run("evaluate --weights " + run.last() + " --scores " + run.last()), "would replace the weights");
  refused(run.run("evaluate --weights " + run.last() + " --scores " + run / "run/config.json"),
          "would replace a file of the run");
  for (const char* data : {"data/valid/2001.h5", "data/train/2001.h5"}) {
    const std::string before = read_file(run / data);
    refused(run.run("evaluate --weights " + run.last() + " --scores " + run / data), "would replace the data");
    CHECK((read_file(run / data) == before));
  }
  for (const char* name : {"x.h5", "x.hdf5", "x.nc", "x.zarr", "x.npy", "x.gz", "x"}) {
    std::ofstream(run / (std::string("data/train/") + name)) << "data";
    refused(run.run("evaluate --weights " + run.last() + " --scores " + run / "data/train/" + name),
            "would replace the data");
    CHECK(read_file(run / (std::string("data/train/") + name)) == "data");
  }
  std::ofstream(run / "data/train/notes.json") << "notes";
  CHECK(run.run("evaluate --weights " + run.last() + " --scores " + run / "data/train/notes.json").status == 0);
  refused(run.run("evaluate --weights " + source_path("tests/golden/vit_weights.safetensors")),
          "does not say what model it is of");
}

TEST_CASE("commands for a language model refuse weights of another task, by the task") {
  const SmallRun run;
  check_error(run.run("generate --device cpu --weights " + run.last()),
              run.last() + " is of the task forecast; text is written by a language_model");
  check_error(run.run("weights convert --to hf --in " + run.last() + " --out " + run / "hf"),
              run.last() +
                  " is of the task forecast and the network vit; a folder of Hugging Face is written of a "
                  "language_model that is a gpt");
  check_error(run.run("weights convert --to nanogpt --in " + run.last() + " --out " + run / "other.safetensors"),
              "these are not the weights of a GPT");
  CHECK_FALSE(std::filesystem::exists(run / "hf"));
  CHECK_FALSE(std::filesystem::exists(run / "other.safetensors"));
}

TEST_CASE("evaluate opens the set that it judges, and no other") {
  const SmallRun run;
  REQUIRE(run.evaluate().status == 0);
  const json valid = run.read("scores.json");
  const Outcome of_train = run.evaluate(" --split train");
  REQUIRE(of_train.status == 0);
  CHECK_THAT(of_train.out, ContainsSubstring("\ntraining loss "));
  const json train = run.read("scores.json");
  CHECK(train.contains("train_loss"));
  CHECK_FALSE(train.contains("val_loss"));
  CHECK(train.at("train_rmse").size() == 2);
  CHECK(train.at("train_persistence_rmse").size() == 2);

  std::filesystem::remove_all(run / "run/stats");  // nor is anything computed
  std::filesystem::rename(run / "data/train", run / "data/train_away");
  const Outcome outcome = run.evaluate();
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.out.find("statistics") == std::string::npos);
  CHECK(run.read("scores.json") == valid);
  CHECK_THAT(run.evaluate(" --split train").err, ContainsSubstring("data/train does not exist"));
  CHECK_THAT(run.evaluate(" --split test").err, ContainsSubstring("there is no test set: name one by the config key "
                                                                  "test_data_path"));
  CHECK_THAT(run.evaluate(" --split all").err, ContainsSubstring("--split"));

  // One sample: less than the batch that the run took.
  std::filesystem::rename(run / "data/train_away", run / "data/train");
  CHECK(run.evaluate(" --split train --set train_range=[0,2]").status == 0);
}

TEST_CASE("evaluate: other samples at once give the same figures, but for rounding") {
  const SmallRun run;
  REQUIRE(run.evaluate().status == 0);
  const json of_run = run.read("scores.json");
  for (const char* at_once : {"1", "3", "100"}) {
    REQUIRE(run.evaluate(std::string(" --batch-size ") + at_once).status == 0);
    const json scores = run.read("scores.json");
    CHECK(scores.at("val_loss").get<double>() == Approx(of_run.at("val_loss").get<double>()).epsilon(1e-6));
  }
  CHECK_THAT(run.evaluate(" --batch-size 0").err, ContainsSubstring("--batch-size"));
}

// With a learning rate of 0 both runs have the weights that they began with.
TEST_CASE("evaluate weighs the rows of a grid at other latitudes by these, as a run there does") {
  const SmallRun tropics({15, 5, -5, -15}, "--set lr=0 --set loss=weighted_mse"),
      arctic({89, 80, 70, 60}, "--set lr=0 --set loss=weighted_mse");
  const auto scores_on = [&](const SmallRun& data) {
    const Outcome outcome = tropics.evaluate(" --set valid_data_path=" + data / "data/valid");
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return tropics.read("scores.json");
  };
  REQUIRE(arctic.evaluate().status == 0);
  const json there = arctic.read("scores.json"), own = scores_on(tropics);
  for (const auto& [name, score] : own.items()) CHECK(score == tropics.read("run/summary.json").at(name));
  CHECK(scores_on(arctic) == there);
  for (const auto& [name, score] : there.items()) {
    INFO(name);
    CHECK(score != own.at(name));
  }
}

TEST_CASE("evaluate weighs rows by the formula where the weights know no latitudes, whatever the data tell") {
  const SmallRun run;
  REQUIRE(run.evaluate().status == 0);
  const json own = run.read("scores.json");
  const FieldsShape shape{8, 2, 4, 8};
  std::vector<float> values(field_values(shape));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37f * static_cast<float>(i));
  const auto with_latitudes = [&](const std::string& name, const std::vector<double>& latitudes) {
    write_labelled_fields(run / name, shape, {.names = {"a", "b"}, .latitudes = latitudes}, values);
    REQUIRE(run.evaluate(" --set valid_data_path=" + run / name).status == 0);
    return run.read("scores.json");
  };
  // The weights know no latitudes: the formula stays.
  CHECK(with_latitudes("polar.h5", {89, 88, 87, 86}) == own);
}

}  // namespace
}  // namespace isobar::testing
