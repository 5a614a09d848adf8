// `isobar train --ranks N`: one run, whatever the number of ranks, and what ends it.
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/metrics_difference.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;
using testing::ContainsSubstring;
using testing::difference;
using testing::isobar_command;
using testing::Outcome;
namespace fs = std::filesystem;

// A small run in fp64, with dropout, an uneven validation set, parts, decay, and clipping that bites.
constexpr const char* kSettings =
    " --config tiny --set num_iters=8 --set log_every=1 --set validate_every=4 --set limit_nsamples_val=13"
    " --set dtype=fp64 --set embed_dim=16 --set depth=2 --set num_heads=2 --set global_batch_size=12"
    " --set grad_accumulation=2 --set optimizer=adamw --set eps=1e-3 --set grad_clip=0.05 --set recompute=true"
    " --set dropout=0.2 ";

class RanksRun {
 public:
  RanksRun() {
    const Outcome made = isobar_command(
        folder_.path(), "data synth --out " + (folder_ / "data").string() +
                            " --train-years 1 --valid-years 1 --steps-per-year 40 --grid 16x32 --channels 4");
    REQUIRE(made.status == 0);
  }

  Outcome train(const std::string& run, const std::string& arguments,
                const std::function<void(pid_t)>& meanwhile = {}) const {
    return isobar_command(folder_.path(),
                          "train --data " + (folder_ / "data").string() + " --run-dir " + (folder_ / run).string() +
                              kSettings + arguments,
                          meanwhile);
  }
  fs::path path(const std::string& run) const { return folder_ / run; }

  // The weights after the last iteration.
  std::string weights(const std::string& run) const {
    return read_file(path(run) / "checkpoints/step_00000008/model.safetensors");
  }

 private:
  testing::TemporaryFolder folder_;
};

void set_fault(const char* fault) {
  fault != nullptr ? setenv("ISOBAR_FAULT", fault, 1) : unsetenv("ISOBAR_FAULT");
}

}  // namespace

TEST_CASE("ranks: a run of several ranks is the run of one, and leaves one run's files") {
  const RanksRun runs;
  REQUIRE(runs.train("serial", "").status == 0);
  const std::vector<json> serial = testing::metrics_of(runs.path("serial"));
  for (const int ranks : {2, 3, 6}) {
    INFO(ranks << " ranks");
    const std::string name = "ranks" + std::to_string(ranks);
    const Outcome run = runs.train(name, "--ranks " + std::to_string(ranks));
    INFO(run.err);
    REQUIRE(run.status == 0);
    CHECK(run.err == "");
    CHECK(difference(serial, testing::metrics_of(runs.path(name))) < 1e-10);
    CHECK_THAT(run.out, ContainsSubstring("Setting DP = " + std::to_string(ranks) + ", TP = 1, CP = 1, PP = 1"));
    CHECK_THAT(run.out, ContainsSubstring(": device cpu, precision fp64, " + std::to_string(ranks) + " ranks with "));
    const json summary = json::parse(read_file(runs.path(name) / "summary.json"));
    CHECK(summary["layout"] == json{{"dp", ranks}, {"tp", 1}, {"cp", 1}, {"pp", 1}});
    const std::string log = read_file(runs.path(name) / "out.log");
    CHECK(log.find("DONE ---- rank 0") == log.rfind("DONE ---- rank 0"));
    CHECK_THAT(log, ContainsSubstring("Ranks:\n") && !ContainsSubstring("\n\n"));
    std::vector<std::string> files[2];
    for (const int i : {0, 1})
      for (const auto& entry : fs::recursive_directory_iterator(runs.path(i == 0 ? "serial" : name)))
        if (entry.path().parent_path().filename() != "logs")
          files[i].push_back(entry.path().lexically_relative(runs.path(i == 0 ? "serial" : name)).string());
    for (std::vector<std::string>& list : files) std::sort(list.begin(), list.end());
    CHECK(files[0] == files[1]);
  }
}

TEST_CASE("ranks: a run on bands of rows is the run on whole pictures: losses, scores and the pictures drawn") {
  const RanksRun runs;
  REQUIRE(runs.train("serial", "").status == 0);
  const std::vector<json> serial = testing::metrics_of(runs.path("serial"));
  // Eight rows of patches, and two heads: over three ranks 3, 3 and 2 rows, and not a head for each.
  for (const auto& [cp, arguments] :
       {std::pair(2, "--ranks 4 --context-parallel 2"), std::pair(3, "--ranks 6 --context-parallel 3"),
        std::pair(3, "--ranks 3 --context-parallel 3 --context-form ring")}) {
    INFO(arguments);
    const Outcome run = runs.train("bands", std::string("--overwrite --comm-timeout 60 ") + arguments);
    INFO(run.err);
    REQUIRE(run.status == 0);
    CHECK(run.err == "");
    CHECK(difference(serial, testing::metrics_of(runs.path("bands"))) < 1e-10);
    CHECK_THAT(run.out, ContainsSubstring(", TP = 1, CP = " + std::to_string(cp) + ", PP = 1"));
    int pictures = 0;
    for (const auto& entry : fs::directory_iterator(runs.path("serial") / "images")) {
      ++pictures;
      CHECK((read_file(entry.path()) ==
             read_file(runs.path("bands") / "images" / entry.path().filename())));  // not shown
    }
    CHECK(pictures == 3);
  }
  const Outcome refused = runs.train("refused", "--ranks 9 --context-parallel 9");
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, ContainsSubstring("16 rows in patches of 2 are 8 rows of patches, and each of 9 ranks needs "
                                            "one"));
  CHECK(!fs::exists(runs.path("refused")));
}

TEST_CASE("ranks: a run of ranks that share the model is the run of one") {
  const RanksRun runs;
  REQUIRE(runs.train("serial", "").status == 0);
  const std::vector<json> serial = testing::metrics_of(runs.path("serial"));
  const auto parameters = [&](const char* run) {
    return json::parse(read_file(runs.path(run) / "summary.json"))["parameters"];
  };
  for (const std::string layout :
       {"--ranks 2 --tensor-parallel 2", "--ranks 4 --tensor-parallel 2 --sequence-parallel",
        "--ranks 8 --tensor-parallel 2 --context-parallel 2 --sequence-parallel --shard-optimizer"}) {
    INFO(layout);
    const Outcome run = runs.train("shared", "--overwrite " + layout);
    INFO(run.err);
    REQUIRE(run.status == 0);
    CHECK(run.err == "");
    CHECK(difference(serial, testing::metrics_of(runs.path("shared"))) < 1e-10);
    CHECK_THAT(run.out, ContainsSubstring(", TP = 2, CP = "));
    CHECK(parameters("shared") == parameters("serial"));
    CHECK(runs.weights("shared").size() == runs.weights("serial").size());
  }
  CHECK_THAT(runs.train("refused", "--ranks 3 --tensor-parallel 3").err,
             ContainsSubstring("attention: 3 tensor-parallel ranks share 2 heads, and each needs one"));
  CHECK(!fs::exists(runs.path("refused")));
}

TEST_CASE("ranks: the same layout makes the same bits, whatever the buckets and whoever is late") {
  const RanksRun runs;
  REQUIRE(runs.train("one", "--ranks 3").status == 0);
  REQUIRE(runs.train("other", "--ranks 3 --bucket-cap-mb 0.001").status == 0);
  set_fault("rank=1 call=9 do=slow:0.3");
  const int late = runs.train("late", "--ranks 3").status;
  set_fault(nullptr);
  REQUIRE(late == 0);
  for (const char* run : {"other", "late"}) {
    CHECK(runs.weights(run) == runs.weights("one"));
    CHECK(testing::metrics_of(runs.path(run)) == testing::metrics_of(runs.path("one")));
  }
}

TEST_CASE("ranks: a stop signal stops all of them, and another layout goes on") {
  const RanksRun runs;
  REQUIRE(runs.train("whole", "").status == 0);
  set_fault("rank=1 call=16 do=slow:1.5");  // so that there is time for a signal
  const Outcome stopped = runs.train("run", "--ranks 2", [&](pid_t child) {
    while (!fs::exists(runs.path("run") / "metrics.jsonl") && kill(child, 0) == 0) usleep(1000);
    kill(child, SIGUSR1);
  });
  set_fault(nullptr);
  INFO(stopped.err);
  REQUIRE(stopped.status == 75);
  CHECK_THAT(stopped.out, ContainsSubstring("stopped by SIGUSR1"));
  const Outcome resumed =
      isobar_command(runs.path(""), "train --resume --ranks 3 --run-dir " + runs.path("run").string());
  INFO(resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK(difference(testing::metrics_of(runs.path("whole")), testing::metrics_of(runs.path("run"))) < 1e-10);
}

TEST_CASE("ranks: an agreement that comes an iteration late changes no number, and stops all") {
  const RanksRun runs;
  // Iterations 4 and 8 are logged, 5 and 8 end epochs or are saved; the others agree late.
  const std::string rhythm = " --set log_every=4 --set checkpoint_every=5 --set validate_every=8 ";
  for (const std::string& layout :
       {std::string("--ranks 2 --device emulator --set dtype=fp32 --set depth=1 --set limit_nsamples_val=2"),
        std::string("--ranks 3")}) {
    INFO(layout);
    const Outcome at_once = runs.train("at_once", layout + " --overwrite --comm-report" + rhythm);
    const Outcome late = runs.train("late", layout + " --overwrite --comm-report --late-agreement" + rhythm);
    INFO(at_once.err << late.err);
    REQUIRE(at_once.status == 0);
    REQUIRE(late.status == 0);
    CHECK(runs.weights("late") == runs.weights("at_once"));
    CHECK(difference(testing::metrics_of(runs.path("at_once")), testing::metrics_of(runs.path("late"))) == 0);
    CHECK_THAT(late.out, ContainsSubstring("the prediction is what was counted"));
    for (const char* step : {"step_00000005", "step_00000008"}) {
      INFO(step);
      const auto losses_of = [&](const char* run) {
        return json::parse(read_file(runs.path(run) / "checkpoints" / step / "state.json")).at("epoch").at("loss");
      };
      CHECK(losses_of("late") == losses_of("at_once"));
    }
  }
  // A signal in an iteration that agrees late: the next one is the last.
  set_fault("rank=1 call=28 do=slow:1.5");
  const Outcome stopped = runs.train("run", "--ranks 3 --late-agreement" + rhythm, [&](pid_t child) {
    while (!fs::exists(runs.path("run") / "metrics.jsonl") && kill(child, 0) == 0) usleep(1000);
    kill(child, SIGUSR1);
  });
  set_fault(nullptr);
  INFO(stopped.err);
  REQUIRE(stopped.status == 75);
  const Outcome resumed =
      isobar_command(runs.path(""), "train --resume --ranks 3 --run-dir " + runs.path("run").string());
  REQUIRE(resumed.status == 0);
  CHECK(difference(testing::metrics_of(runs.path("late")), testing::metrics_of(runs.path("run"))) < 1e-10);
}

TEST_CASE("ranks: --comm-report tells what was exchanged, as it was predicted") {
  const RanksRun runs;
  const auto report = [&](const std::string& arguments) {
    const Outcome run = runs.train("reported", "--overwrite --comm-report --set num_iters=3 " + arguments);
    INFO(run.err);
    REQUIRE(run.status == 0);
    CHECK_THAT(run.out, ContainsSubstring("Communication of rank 0 in 3 steps, bytes of payload:"));
    CHECK_THAT(run.out, ContainsSubstring("on every rank the prediction is what was counted"));
    CHECK(run.out.find("differs") == std::string::npos);
    return run.out;
  };
  const std::string tensor = report("--ranks 4 --tensor-parallel 2");
  // Per step two parts, two blocks, and of each the two branches: forward, again in the backward pass, and backward.
  CHECK_THAT(tensor, ContainsSubstring("tp        all_reduce              72"));
  CHECK_THAT(tensor, ContainsSubstring("ranks 0, 1, 2, 3: weights ") || ContainsSubstring("ranks 0-3: weights "));
  const std::string all = report(
      "--ranks 8 --tensor-parallel 2 --context-parallel 2 --sequence-parallel"
      " --context-form ring --shard-optimizer --set dtype=fp32 --amp-mode bf16");
  CHECK_THAT(all, ContainsSubstring("cp        send_receive"));
  CHECK_THAT(all, ContainsSubstring("world     reduce_scatter"));
  CHECK_THAT(all, ContainsSubstring("ranks 0-7: weights "));
  CHECK_THAT(report(""), !ContainsSubstring("all_reduce"));
}

TEST_CASE("ranks: whatever one of them does wrong ends all, with one sentence that names it") {
  const RanksRun runs;
  const auto ended_by = [&](const char* fault, const std::string& arguments = "") {
    set_fault(fault);
    const Outcome run = runs.train("faulty", "--ranks 3 --overwrite " + arguments);
    set_fault(nullptr);
    CHECK(run.status == 1);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    return run.err;
  };
  CHECK_THAT(ended_by("rank=2 call=30 do=throw"),
             ContainsSubstring("isobar: rank 2: ISOBAR_FAULT: an error was asked for at all_reduce"));
  CHECK_THAT(ended_by("rank=1 call=33 do=garble"), ContainsSubstring(": rank 0 comes to all_reduce of "));
  CHECK_THAT(ended_by("rank=1 call=30 do=hang", "--comm-timeout 3"), ContainsSubstring(": rank 1 has not come to "));
  CHECK_THAT(ended_by("rank=1 call=3 do=sleep"), ContainsSubstring("'sleep' is not one of die, throw, hang, "));
  CHECK_THAT(ended_by("rank=1 do=hang"), ContainsSubstring("ISOBAR_FAULT=\"rank=1 do=hang\": rank=R, call=N"));
  set_fault("rank=1 call=30 do=die");
  CHECK(runs.train("killed", "--ranks 3").status == -SIGKILL);
  set_fault(nullptr);
}

TEST_CASE("ranks: they share the threads of the process, or have those that are asked for") {
  const RanksRun runs;
  const testing::EnvironmentVariable threads("OMP_NUM_THREADS", "5");
  const auto told = [&](const std::string& flags) {
    const Outcome run = runs.train("run", "--overwrite --set num_iters=1 --set limit_nsamples_val=1 " + flags);
    INFO(run.err);
    REQUIRE(run.status == 0);
    const std::size_t begin = run.out.find("precision fp64, "), end = run.out.find('\n', begin);
    return run.out.substr(begin, end - begin);
  };
  CHECK(told("") == "precision fp64, 1 rank with 5 threads");
  CHECK(told("--ranks 2") == "precision fp64, 2 ranks with 2 threads each");
  CHECK(told("--ranks 6") == "precision fp64, 6 ranks with 1 thread each");
  CHECK(told("--ranks 2 --threads 3") == "precision fp64, 2 ranks with 3 threads each");
}

TEST_CASE("ranks: layouts that do not fit are refused before anything is written") {
  const RanksRun runs;
  const auto refused = [&](const std::string& arguments) {
    const Outcome run = runs.train("refused", arguments);
    CHECK(run.status == 1);
    CHECK(!fs::exists(runs.path("refused")));
    return run.err;
  };
  CHECK_THAT(refused("--ranks 7"), ContainsSubstring("global_batch_size (12) must be at least the 7 data-parallel "
                                                     "ranks times grad_accumulation (2)"));
  // Neither here: what a rank itself refuses begins with its number.
  CHECK_THAT(refused("--ranks 20 --set global_batch_size=40"),
             ContainsSubstring("isobar: global_batch_size is 40, but the training set, "));
  for (const char* flag : {"--comm-timeout", "--bucket-cap-mb"})
    for (const char* number : {"nan", "-nan", "inf"})
      CHECK_THAT(refused(std::string("--ranks 2 ") + flag + "=" + number), ContainsSubstring(flag));
  CHECK_THAT(refused("--ranks 0"), ContainsSubstring("--ranks 0: at least one rank is needed"));
  CHECK_THAT(refused("--ranks 100000"), ContainsSubstring("the 100000 data-parallel ranks"));  // none of them is made
  CHECK_THAT(refused("--ranks 4 --local-batch-size 9000000000000000000"),
             ContainsSubstring("--local-batch-size has an impossible size"));
  CHECK_THAT(refused("--ranks 2 --comm-timeout 1e300"), ContainsSubstring("--comm-timeout"));
  CHECK_THAT(refused("--ranks 2 --tensor-parallel 3"),
             ContainsSubstring("--ranks 2 is no multiple of --tensor-parallel 3"));
  CHECK_THAT(refused("--ranks 2 --parallel-order tp-cp"), ContainsSubstring("order tp-cp leaves out dp"));
}

TEST_CASE("ranks: --local-batch-size is that of a data-parallel rank, not of all that share a model or samples") {
  const RanksRun runs;
  const auto batch_of = [&](const std::string& layout) {
    const Outcome run = isobar_command(
        runs.path(""), "train --config tiny --data " + runs.path("data").string() + " --run-dir " +
                           runs.path("run").string() +
                           " --overwrite --set num_iters=1 --set limit_nsamples_val=2 --set embed_dim=16 --set depth=1"
                           " --set num_heads=2 --local-batch-size 4 " +
                           layout);
    INFO(run.err);
    REQUIRE(run.status == 0);
    return json::parse(read_file(runs.path("run") / "config.json")).at("global_batch_size").get<int>();
  };
  CHECK(batch_of("--ranks 4 --tensor-parallel 2") == 8);
  CHECK(batch_of("--ranks 2 --context-parallel 2") == 4);
  CHECK(batch_of("--ranks 2") == 8);
}

TEST_CASE("ranks: the learning rate is scaled by the whole batch, however it is split") {
  const RanksRun runs;
  const auto rate_of = [&](const std::string& split) {
    const Outcome run = runs.train("run",
                                   "--set batch_lr_scaling=linear --set reference_batch_size=3 --set lr=1e-3"
                                   " --set lr_schedule=constant --set warmup=0 --set num_iters=1 --overwrite " +
                                       split);
    INFO(run.err);
    REQUIRE(run.status == 0);
    for (const json& line : testing::metrics_of(runs.path("run")))
      if (line.at("event") == "train") return line.at("lr").get<double>();
    return 0.0;
  };
  for (const char* split : {"--set grad_accumulation=1", "--set grad_accumulation=2", "--ranks 3"})
    CHECK(rate_of(split) == Approx(4e-3).epsilon(1e-12));  // of batches of 12
}

TEST_CASE("ranks: a sharded optimizer makes the same run, and any layout goes on from its checkpoints") {
  const RanksRun runs;
  const std::string batch = " --set global_batch_size=16 ", sharded = " --shard-optimizer --bucket-cap-mb 0.001 ";
  for (const std::string& precision : {std::string(), std::string("--set dtype=fp32 --amp-mode bf16 ")}) {
    INFO(precision);
    const std::string unclipped = batch + precision + "--set grad_clip=0 --overwrite --ranks 4";
    REQUIRE(runs.train("plain", unclipped).status == 0);
    const Outcome run = runs.train("sharded", unclipped + sharded);
    INFO(run.err);
    REQUIRE(run.status == 0);
    for (const char* file : {"checkpoints/step_00000008/model.safetensors",
                             "checkpoints/step_00000008/optimizer.safetensors", "best/model.safetensors"})
      CHECK((read_file(runs.path("sharded") / file) == read_file(runs.path("plain") / file)));
  }
  const auto in_two_parts = [&](const std::string& run, const std::string& first, const std::string& second) {
    REQUIRE(runs.train(run, batch + "--set num_iters=4" + first).status == 0);
    const std::string resume = "train --resume --set num_iters=8 --run-dir " + runs.path(run).string();
    const Outcome resumed = isobar_command(runs.path(""), resume + second);
    INFO(resumed.err);
    REQUIRE(resumed.status == 0);
  };
  in_two_parts("whole", "", "");
  in_two_parts("run", " --ranks 4" + sharded, " --ranks 2 --shard-optimizer");
  const std::vector<json> whole = testing::metrics_of(runs.path("whole")),
                          parts = testing::metrics_of(runs.path("run"));
  REQUIRE(parts.back()["iteration"] == 8);
  CHECK(std::abs(parts.back()["loss"].get<double>() / whole.back()["loss"].get<double>() - 1) < 1e-10);

  const Outcome alone = runs.train("alone", "--shard-optimizer --set num_iters=1");
  CHECK(alone.status == 0);
  CHECK_THAT(alone.out, ContainsSubstring("--shard-optimizer: one data-parallel rank holds all moments"));
  const auto refused = [&](const std::string& arguments) {
    const Outcome outcome = runs.train("refused", arguments);
    CHECK(outcome.status == 1);
    return outcome.err;
  };
  CHECK_THAT(refused("--ranks 2 --shard-optimizer --noddp"), ContainsSubstring("with --noddp they exchange nothing"));
  CHECK_THAT(refused("--ranks 6 --shard-optimizer 4"),
             ContainsSubstring("--shard-optimizer 4: the 6 ranks that share the optimizer, --ranks over "
                               "--tensor-parallel, are no groups of 4"));
  CHECK_THAT(refused("--ranks 2 --shard-optimizer none"),
             ContainsSubstring("--shard-optimizer none: a number of ranks from 1 on is needed, or none"));
}

TEST_CASE("ranks: an optimizer that groups of ranks deal out, and what each rank holds of it") {
  const RanksRun runs;
  // Large enough for shares that differ in the MiB with one digit that are shown.
  const std::string batch = "--set embed_dim=64 --set global_batch_size=16 --set num_iters=2 --overwrite ";
  const auto moments = [&](const std::string& arguments) {
    const Outcome run = runs.train("run", batch + arguments);
    INFO(run.err);
    REQUIRE(run.status == 0);
    const std::string log = read_file(runs.path("run") / "out.log");
    const std::size_t end = log.find(" MiB of moments");
    REQUIRE(end != std::string::npos);
    return std::stod(log.substr(log.rfind(' ', end - 1), end));
  };
  const double whole = moments("--ranks 4 --context-parallel 2");
  CHECK(std::abs(moments("--ranks 4 --context-parallel 2 --shard-optimizer") - whole / 4) <= 0.1);
  CHECK(std::abs(moments("--ranks 4 --context-parallel 2 --shard-optimizer 2 --comm-report") - whole / 2) <= 0.1);
  const std::string log = read_file(runs.path("run") / "out.log");
  CHECK_THAT(log, ContainsSubstring("on every rank the prediction is what was counted") &&
                      ContainsSubstring("shards    reduce_scatter") && ContainsSubstring("replicas  all_reduce"));
}

TEST_CASE("ranks: without the exchange each rank trains for itself, and the first one's weights are kept") {
  const RanksRun runs;
  const Outcome run = runs.train("apart", "--ranks 2 --noddp");
  INFO(run.err);
  REQUIRE(run.status == 0);
  CHECK_THAT(run.out, ContainsSubstring("--noddp: gradients are not exchanged; the first rank's weights are kept\n"));
  CHECK(fs::exists(runs.path("apart") / "checkpoints/step_00000008/model.safetensors"));
}

}  // namespace isobar
