// Whole runs of the command on a pipeline of ranks: the files and figures of one rank, under any layout that goes on,
// after being killed anywhere; what is reported, drawn and refused.
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/metrics_difference.h"
#include "tests/harness/small_runs.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using nlohmann::json;

// Words of which the next follows from the last one.
std::string piped_text() {
  std::string text;
  unsigned state = 3;
  for (int i = 0; i < 500; ++i) {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes
    text += (state >> 20) % 3 == 0 ? "delta " : (state >> 20) % 3 == 1 ? "epsilon " : "zeta ";
  }
  return text;
}

// Dropout, clipping, decay, an average, parts of unequal size, epochs that end between checkpoints.
class PipedRuns : public SmallRuns {
 public:
  explicit PipedRuns(const std::string& more = "")
      : SmallRuns(
            " --set task=language_model --set seq_length=12 --set embed_dim=16 --set depth=4 --set num_heads=2"
            " --set vocab_multiple=8 --set hidden_dropout=0.1 --set attention_dropout=0.1 --set global_batch_size=10"
            " --set grad_accumulation=4 --set num_iters=24 --set lr=1e-2 --set lr_schedule=constant --set "
            "optimizer=adamw --set eps=1e-3"
            " --set grad_clip=0.1 --set dtype=fp64 --set log_every=1 --set validate_every=8 --set checkpoint_every=5"
            " --set keep_checkpoints=0 --set ema=0.9 --threads 1 --device cpu --comm-timeout 60 " +
            more) {
    std::ofstream(path("text.txt")) << piped_text();
  }
  Outcome train(const std::string& run, const std::string& more = "") const {
    return SmallRuns::train(run, "--data " + path("text.txt").string() + " " + more);
  }
  Outcome resume(const std::string& run, const std::string& more) const {
    return command("train --resume --threads 1 --device cpu --comm-timeout 60 --run-dir " + path(run).string() + " " +
                   more);
  }
  std::vector<json> metrics(const std::string& run) const { return metrics_of(path(run)); }
  std::string last_weights(const std::string& run) const {
    return file(run + "/checkpoints/step_00000024/model.safetensors");
  }
};

}  // namespace

TEST_CASE("a run on a pipeline is the run of one rank: losses, weights, files") {
  const PipedRuns runs;
  runs.done(runs.train("serial"));
  const std::vector<json> serial = runs.metrics("serial");
  for (const std::string layout :
       {"--ranks 2 --pipeline-parallel 2", "--ranks 4 --pipeline-parallel 4 --pipeline-split even",
        "--ranks 2 --pipeline-parallel 2 --pipeline-chunks 2",
        "--ranks 4 --pipeline-parallel 2 --shard-optimizer --late-agreement",
        "--ranks 8 --pipeline-parallel 2 --tensor-parallel 2 --sequence-parallel --shard-optimizer",
        "--ranks 3 --pipeline-parallel 3 --pipeline-split 1,3,0 --parallel-order pp-tp-cp-dp"}) {
    INFO(layout);
    const Outcome run = runs.train("piped", "--overwrite " + layout);
    runs.done(run);
    CHECK(difference(serial, runs.metrics("piped")) < 1e-10);
    const json summary = json::parse(runs.file("piped/summary.json"));
    CHECK(summary["layout"]["pp"] == (layout.starts_with("--ranks 3") ? 3 : layout.find("l 4") != layout.npos ? 4 : 2));
    CHECK(summary["parameters"] == json::parse(runs.file("serial/summary.json"))["parameters"]);
    CHECK_THAT(run.out, ContainsSubstring(", PP = "));
  }
}

TEST_CASE("an untied run on a pipeline ends with the bits of one rank, in fp64, fp32 and bf16") {
  for (const char* precision : {"", "--set dtype=fp32 ", "--set dtype=fp32 --set amp_mode=bf16 "}) {
    INFO(precision);
    const PipedRuns runs(std::string("--set tie_head=false --set grad_clip=0 ") + precision);
    runs.done(runs.train("serial"));
    runs.done(runs.train("piped", "--ranks 4 --pipeline-parallel 4"));
    CHECK((runs.last_weights("piped") == runs.last_weights("serial")));
    CHECK((runs.file("piped/best/model.safetensors") == runs.file("serial/best/model.safetensors")));
    CHECK((runs.file("piped/checkpoints/step_00000024/optimizer.safetensors") ==
           runs.file("serial/checkpoints/step_00000024/optimizer.safetensors")));
  }
}

TEST_CASE("a pipeline that is killed goes on, under it with the same bits and under any layout with the same losses") {
  const PipedRuns runs;
  const std::string layout = "--ranks 4 --pipeline-parallel 2 ";
  runs.done(runs.train("whole", layout));
  const std::vector<json> whole = runs.metrics("whole");
  int killed = 0;
  for (const int call : {60, 333, 700, 1100}) {
    INFO("killed in call " << call);
    const std::string run = "killed" + std::to_string(call);
    {
      const std::string what = "rank=1 call=" + std::to_string(call) + " do=die";
      const EnvironmentVariable fault("ISOBAR_FAULT", what.c_str());
      killed += runs.train(run, layout).status == -SIGKILL ? 1 : 0;
    }
    runs.done(runs.resume(run, layout));
    CHECK((runs.last_weights(run) == runs.last_weights("whole")));
    CHECK(difference(whole, runs.metrics(run)) == 0);
  }
  CHECK(killed == 4);
  // Four ranks, then one, then tensor parallel, then another pipeline.
  runs.done(runs.train("moved", layout + "--set num_iters=6"));
  for (const auto& [iterations, other] : {std::pair(12, ""), std::pair(18, "--ranks 2 --tensor-parallel 2"),
                                          std::pair(24, "--ranks 4 --pipeline-parallel 4 --shard-optimizer")}) {
    INFO(other);
    runs.done(runs.resume("moved", std::string(other) + " --set num_iters=" + std::to_string(iterations)));
  }
  const std::vector<json> moved = runs.metrics("moved");
  for (const json& line : whole)
    for (const json& other : moved)
      if (line["event"] == "train" && other["event"] == "train" && line["iteration"] == other["iteration"])
        CHECK(other["loss"].get<double>() == Approx(line["loss"].get<double>()).epsilon(1e-10));
}

TEST_CASE("a rank of a pipeline that fails in a message ends all of them, and is named") {
  const PipedRuns runs;
  const EnvironmentVariable fault("ISOBAR_FAULT", "rank=2 call=400 do=throw");
  const Outcome failed = runs.train("failed", "--ranks 4 --pipeline-parallel 4");
  CHECK(failed.status == 1);
  CHECK_THAT(failed.err, ContainsSubstring("isobar: rank 2: ISOBAR_FAULT: an error was asked for at "));
}

TEST_CASE("the --comm-report of a pipeline: predicted is counted on every rank, and how long each place is idle") {
  const PipedRuns runs("--set num_iters=4 ");
  for (const char* layout : {"--ranks 4 --pipeline-parallel 2", "--ranks 2 --pipeline-parallel 2 --pipeline-chunks 2",
                             "--ranks 8 --pipeline-parallel 4 --tensor-parallel 2"}) {
    INFO(layout);
    const Outcome run = runs.train("reported", std::string("--overwrite --comm-report ") + layout);
    runs.done(run);
    CHECK_THAT(run.out, ContainsSubstring("on every rank the prediction is what was counted"));
    CHECK_THAT(run.out, ContainsSubstring("pp        send_receive"));
    CHECK_THAT(run.out, ContainsSubstring("place 1: idle for "));
  }
  const std::string alone = "--shard-optimizer: one data-parallel rank holds all moments of what it trains\n";
  const auto said = [&](const std::string& layout) {
    return runs.train("sharded", "--overwrite --pipeline-parallel 2 --shard-optimizer " + layout).out;
  };
  CHECK_THAT(said("--ranks 2"), ContainsSubstring(alone));
  CHECK_THAT(said("--ranks 4"), !ContainsSubstring(alone));
}

TEST_CASE("mesh --pipeline draws the schedule, and predicts the work of each piece") {
  const PipedRuns runs;
  const Outcome drawn = runs.command("mesh --pp 2 --pipeline --parts 3");
  runs.done(drawn);
  CHECK_THAT(drawn.out, ContainsSubstring("rank 0   F0 F1       B0    F2 B1       B2\n"
                                          "rank 1      F0 B0    F1 B1    F2 B2\n"
                                          "idle: 25.0 % of the time"));
  // Of GPT-2 over two places the second has the head too, which is as much as five of its blocks.
  const std::string gpt2 =
      "mesh --config gpt2 --set vocab_size=50257 --set seq_length=1024 --set positions=1024"
      " --device cpu --pp 2 --pipeline --parts 8 ";
  const Outcome balanced = runs.command(gpt2), even = runs.command(gpt2 + "--pipeline-split even");
  runs.done(balanced);
  runs.done(even);
  CHECK_THAT(balanced.out, ContainsSubstring("place 0: stages 0-8, 8 blocks, "));
  CHECK_THAT(even.out, ContainsSubstring("place 0: stages 0-6, 6 blocks, "));
  CHECK_THAT(balanced.out, ContainsSubstring("holds 2 parts at most"));
}

TEST_CASE("check compares a pipeline with one rank") {
  const PipedRuns runs;
  const Outcome checked =
      runs.command("check --threads 1 --device cpu --data " + runs.path("text.txt").string() +
                   " --set task=language_model --set seq_length=12 --set embed_dim=16 --set depth=6 --set num_heads=2"
                   " --set dtype=fp64 --set global_batch_size=8 --set grad_accumulation=4 --set warmup=0"
                   " --ranks 8 --pipeline-parallel 2 --pipeline-chunks 2 --tensor-parallel 2 --shard-optimizer");
  runs.done(checked);
  CHECK_THAT(checked.out, ContainsSubstring("three steps of dp 2 x tp 2 x cp 1 x pp 2 beside one rank, fp64 on cpu"));
  CHECK_THAT(checked.out, ContainsSubstring("\npassed\n"));
}

TEST_CASE("what a pipeline cannot do is refused in a sentence, before a run folder is made") {
  const PipedRuns runs;
  const auto refusal = [&](const std::string& flags) {
    const Outcome refused = runs.train("refused", flags);
    CHECK(refused.status == 1);
    CHECK(!std::filesystem::exists(runs.path("refused")));
    return refused.err;
  };
  CHECK_THAT(refusal("--ranks 5 --pipeline-parallel 5"),
             ContainsSubstring("--pipeline-parallel 5 needs 5 blocks at least, and the GPT has 4"));
  CHECK_THAT(refusal("--ranks 4 --pipeline-parallel 3"),
             ContainsSubstring("--ranks 4 is no multiple of --tensor-parallel 1 x --context-parallel 1 x "
                               "--pipeline-parallel 3"));
  CHECK_THAT(refusal("--ranks 2 --pipeline-parallel 2 --pipeline-chunks 2 --set grad_accumulation=5"),
             ContainsSubstring("the 5 parts of a batch (grad_accumulation) are no multiple of the 2 ranks"));
  CHECK_THAT(refusal("--pipeline-chunks 2"), ContainsSubstring("go with --pipeline-parallel of 2 ranks at least"));
  CHECK_THAT(refusal("--ranks 2 --pipeline-parallel 2 --pipeline-split 1,2"),
             ContainsSubstring("--pipeline-split: the numbers add up to 3 blocks, and the network has 4"));
  CHECK_THAT(refusal("--ranks 2 --pipeline-parallel 2 --pipeline-split most"),
             ContainsSubstring("--pipeline-split most: balanced, even, or the number of blocks of each piece"));
  CHECK_THAT(refusal("--ranks 2 --pipeline-parallel 2 --noddp"), ContainsSubstring("--noddp: ranks of a pipeline"));
  CHECK_THAT(refusal("--ranks 2 --pipeline-parallel 2 --set cuda_graph=true"), ContainsSubstring("cuda_graph"));
  CHECK_THAT(refusal("--ranks 2 --pipeline-parallel 0"), ContainsSubstring("at least one rank is needed"));
}

}  // namespace isobar::testing
