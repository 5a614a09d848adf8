// Whole runs over forecasts of several steps: a curriculum that is resumed in every stage, ranks, what is refused when
// the data are opened, and the forecast that such a model makes.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/harness/small_runs.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kIterations = 6;

class RolloutRuns : public SmallRuns {
 public:
  RolloutRuns()
      : SmallRuns(
            " --config tiny --device cpu --threads 1 --set num_iters=6 --set log_every=1 --set warmup=2"
            " --set validate_every=3 --set checkpoint_every=1 --set keep_checkpoints=9 --set dtype=fp64"
            " --set embed_dim=16 --set depth=2 --set num_heads=2 --set global_batch_size=4 --set grad_accumulation=2 "
            "--set dropout=0.2"
            " --set num_data_workers=2 --set limit_nsamples=20 --set limit_nsamples_val=3 ") {
    done(command("data synth --out " + path("data").string() +
                 " --train-years 1 --valid-years 1 --steps-per-year 30 --grid 8x16 --channels 2"));
  }

  Outcome train_on(const std::string& run, const std::string& more) const {
    return train(run, "--data " + path("data").string() + " " + more);
  }
  std::string checkpoint(const std::string& run, int iteration) const {
    return run + "/checkpoints/step_0000000" + std::to_string(iteration);
  }
  // A copy of a run that ended with this iteration's checkpoint.
  void cut(const std::string& run, const std::string& copy, int iteration) const {
    fs::copy(path(run), path(copy), fs::copy_options::recursive);
    for (int later = iteration + 1; later <= kIterations; ++later) fs::remove_all(path(checkpoint(copy, later)));
    fs::remove(path(copy + "/summary.json"));
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const nlohmann::json& line : metrics_of(path(run))) all.push_back(line["loss"].get<double>());
    return all;
  }
};

const std::string kStages =
    "--set 'rollout=[[0,1],[2,3],[4,2]]' --set rollout_weights='[3,2,1]' --set boundary_width=1 ";

}  // namespace

TEST_CASE("rollout runs: a curriculum that is resumed in any stage goes on to the same bits") {
  const RolloutRuns here;
  here.done(here.train_on("whole", kStages));
  // Stages go by iterations, not by the parts or the epochs that the loader counts.
  const std::string log = here.file("whole/out.log");
  for (const char* line :
       {"iteration 3 begins a stage: forecasts of 3 steps", "iteration 5 begins a stage: forecasts of 2 steps"})
    CHECK_THAT(log, ContainsSubstring(line));
  CHECK_THAT(log, ContainsSubstring(" - from iteration 1 on: ") &&
                      ContainsSubstring(" - from iteration 3 on: forecasts of 3 steps") &&
                      ContainsSubstring(" - from iteration 5 on: forecasts of 2 steps"));
  const std::size_t last = log.rfind("begins a stage");
  CHECK(log.rfind("begins a stage", last - 1) == log.find("begins a stage"));  // these two alone
  for (int iteration = 1; iteration < kIterations; ++iteration) {
    INFO("resumed after iteration " << iteration);
    const std::string run = "resumed" + std::to_string(iteration);
    here.cut("whole", run, iteration);
    here.done(here.command("train --resume --device cpu --threads 1 --run-dir " + here.path(run).string()));
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
      CHECK(here.file(here.checkpoint(run, kIterations) + file) ==
            here.file(here.checkpoint("whole", kIterations) + file));
    CHECK(here.losses(run) == here.losses("whole"));
  }
}

TEST_CASE("rollout runs: data ranks, bands and a sharded optimizer train as one rank does, stage by stage") {
  const RolloutRuns here;
  here.done(here.train_on("one", kStages));
  const std::vector<double> expected = here.losses("one");
  for (const std::string layout : {"--ranks 2 --shard-optimizer", "--ranks 4 --context-parallel 2"}) {
    INFO(layout);
    const std::string run = layout.substr(8, 1);
    here.done(here.train_on(run, kStages + layout + " --comm-report --set recompute_steps=true"));
    CHECK_THAT(here.file(run + "/out.log"), ContainsSubstring("on every rank the prediction is what was counted"));
    const std::vector<double> losses = here.losses(run);
    REQUIRE(losses.size() == expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) CHECK(std::abs(losses[i] / expected[i] - 1) <= 1e-12);
  }
}

TEST_CASE(
    "rollout runs: a validation rolls out the longest stage, and a model forecasts with its edges from the data") {
  const RolloutRuns here;
  here.done(here.train_on("staged", kStages));
  here.done(here.train_on("fixed", "--set rollout=3 --set 'rollout_weights=[3,2,1]' --set boundary_width=1"));
  const auto first = [&](const std::string& run) { return metrics_of(here.path(run)).front(); };
  CHECK(first("staged") == first("fixed"));  // before training: the measure is the same in every stage
  REQUIRE(first("staged")["event"] == "valid");
  CHECK(first("staged")["last_rmse"] != first("staged")["rmse"]);

  const auto forecast = [&](const std::string& more, const std::string& scores) {
    here.done(here.command("forecast --device cpu --weights " + here.path("fixed").string() + " --data " +
                           here.path("data").string() + " --start 0 --steps 3 --out " + here.path("f.h5").string() +
                           " --scores " + here.path(scores).string() + more));
    return nlohmann::json::parse(here.file(scores))["rmse"].front();
  };
  const nlohmann::json edged = forecast("", "edged.json"), free = forecast(" --set boundary_width=0", "free.json");
  CHECK(edged[0] == free[0]);  // the first input is the data's anyway
  CHECK(edged[1] != free[1]);
}

TEST_CASE("rollout runs: a forecast that is longer than any stretch of the data is refused before the run begins") {
  const RolloutRuns here;
  const Outcome outcome = here.train_on("long", "--set rollout='[[0,1],[5,30]]'");
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.err,
             ContainsSubstring(": a forecast of 30 steps of dt = 1 needs 31 steps in a row, and the longest "
                               "stretch without a hole in time in the range asked for has 30"));
  CHECK_FALSE(fs::exists(here.path("long")));
}

}  // namespace isobar::testing
