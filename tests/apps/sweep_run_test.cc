// Whole sweeps of the command: two jobs, runs that fail, a kill, a stop, and what is refused.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/data/files/idx_files.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/small_runs.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;
using testing::ContainsSubstring;
using testing::Outcome;
namespace fs = std::filesystem;

// Random images, 2 updates an epoch, a checkpoint after each; 2 runs.
constexpr const char* kSmallSweep =
    R"("config": "cnn", "set": {"width": 6, "depth": 3, "img_size": [8, 9], "nsamples": 24,
    "nsamples_val": 13, "global_batch_size": 12, "log_every": 1, "num_data_workers": 0, "num_epochs": EPOCHS})";

class Sweeps : public testing::SmallRuns {
 public:
  Sweeps() : SmallRuns("") {}

  std::string file(const std::string& parameters, const std::string& epochs = "2", const std::string& more = "") const {
    std::string head = kSmallSweep;
    head.replace(head.find("EPOCHS"), 6, epochs);
    std::ofstream(path("rates.json")) << "{" << head << R"(, "parameters": {)" << parameters << "}" << more << "}";
    return path("rates.json").string();
  }
  std::string flags(const std::string& folder, const std::string& more = "") const {
    return " --run-dir " + path(folder).string() + " --device cpu " + more;
  }
  Outcome sweep(const std::string& parameters, const std::string& folder, const std::string& more = "",
                const std::string& epochs = "2") const {
    return command("sweep " + file(parameters, epochs) + flags(folder, more));
  }
  json results(const std::string& folder) const {
    return json::parse(SmallRuns::file(folder + "/results.json")).at("runs");
  }
  std::string contents(const std::string& name) const { return SmallRuns::file(name); }
};

constexpr const char* kTwoRates = R"("lr": {"values": [0.001, 0.002]})";
const std::vector<std::string> kTwoRuns{"0001_lr=0.001", "0002_lr=0.002"};

// Beside what it took: weights, optimizer and figures of a run in two sweeps.
void check_same_run(const Sweeps& here, const std::string& one, const std::string& other, const std::string& last) {
  for (const std::string& folder : {"/checkpoints/" + last + "/", std::string("/best/")})
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK((here.contents(one + folder + file) == here.contents(other + folder + file)));
  CHECK(testing::metrics_of(here.path(one)) == testing::metrics_of(here.path(other)));
}

std::size_t checkpoints_in(const fs::path& run) {
  std::error_code none_yet;
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", none_yet))
    count += entry.path().filename().string().starts_with("step_") ? 1 : 0;
  return count;
}

// Waits until `is_so`, a minute at most.
template <class F>
void wait_until(const F& is_so) {
  for (int i = 0; i < 6000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(is_so());
}

}  // namespace

TEST_CASE("sweep command: two jobs make the runs of isobar train, a table, and nothing a second time") {
  const Sweeps here;
  const Outcome outcome = here.sweep(kTwoRates, "sweep", "--jobs 2 --threads 1");
  here.done(outcome);
  CHECK_THAT(outcome.out,
             ContainsSubstring(": 2 runs, 2 at once, with 1 thread each\n") &&
                 ContainsSubstring("0002_lr=0.002: running\n") && ContainsSubstring("0002_lr=0.002: finished after ") &&
                 ContainsSubstring("\n0002  0.002  finished  4 ") && ContainsSubstring("smallest validation loss: "));
  const json results = here.results("sweep");
  REQUIRE(results.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string run = "sweep/runs/" + kTwoRuns[i];
    const json summary = json::parse(here.contents(run + "/summary.json"));
    CHECK(results[i].at("state") == "finished");
    CHECK(results[i].at("val_loss") == summary.at("val_loss"));
    CHECK(results[i].at("seconds") == summary.at("wall_seconds"));
    CHECK(results[i].at("best_val_loss") <= results[i].at("val_loss"));
    CHECK_THAT(here.contents("sweep/logs/" + kTwoRuns[i] + ".log"), ContainsSubstring("Training complete"));
  }
  CHECK(results[0].at("val_loss") != results[1].at("val_loss"));

  here.done(
      here.command("train --config cnn --set width=6 --set depth=3 --set img_size=[8,9] --set nsamples=24"
                   " --set nsamples_val=13 --set global_batch_size=12 --set log_every=1 --set num_data_workers=0"
                   " --set num_epochs=2 --set lr=0.002 --threads 1 --device cpu --run-dir " +
                   here.path("alone").string()));
  check_same_run(here, "alone", "sweep/runs/0002_lr=0.002", "step_00000004");

  const Outcome again = here.sweep(kTwoRates, "sweep", "--jobs 9");
  here.done(again);
  CHECK_THAT(again.out, ContainsSubstring(": 2 runs, 2 at once, with 1 thread each\n"));  // no more than there are
  CHECK_THAT(again.out, !ContainsSubstring("running") && ContainsSubstring("\n0001  0.001  finished  4 "));
  const Outcome other = here.sweep(R"("lr": {"values": [0.001, 0.003]})", "sweep");
  CHECK(other.status == 1);
  CHECK_THAT(other.err, ContainsSubstring("parameters.lr.values is [0.001,0.002] there, and [0.001,0.003] in "));
}

TEST_CASE("sweep command: a run that fails is a line of the table, and the status is 1") {
  const Sweeps here;
  // That there are no pairs is seen when the data are opened
  const Outcome outcome = here.sweep(R"("images": {"values": ["pairs", "random"]})", "sweep");
  CHECK(outcome.status == 1);
  CHECK(std::ranges::count(outcome.err, '\n') == 1);
  CHECK_THAT(outcome.err, ContainsSubstring("isobar: 1 of 2 runs failed: see ") && ContainsSubstring("/results.csv"));
  const json results = here.results("sweep");
  CHECK(results[0].at("state") == "failed");
  CHECK_THAT(results[0].at("error").get<std::string>(), ContainsSubstring("config key train_path in "));
  CHECK(results[0].at("val_loss").is_null());
  CHECK(results[1].at("state") == "finished");
  CHECK_THAT(outcome.out, ContainsSubstring(results[0].at("error").get<std::string>() + "\n"));
}

TEST_CASE("sweep command: killed with all its runs and started again, it makes the same bits") {
  const Sweeps here;
  here.done(here.sweep(kTwoRates, "whole", "--jobs 2 --threads 1", "12"));
  const std::string first = "broken/runs/" + kTwoRuns[0];
  const Outcome killed = testing::isobar_command(
      here.path(), "sweep " + here.file(kTwoRates, "12") + here.flags("broken", "--threads 1"), [&](pid_t sweep) {
        wait_until([&] { return checkpoints_in(here.path(first)) > 0; });
        ::kill(sweep, SIGKILL);
      });
  CHECK(killed.status == -SIGKILL);
  // Its run, which the system has told, writes a checkpoint before it ends
  Outcome again;
  wait_until([&] {
    again = here.sweep(kTwoRates, "broken", "", "12");
    return again.err.find("is in use") == std::string::npos;
  });
  here.done(again);
  CHECK_THAT(here.contents("broken/logs/" + kTwoRuns[0] + ".log"), ContainsSubstring("Loading checkpoint "));
  CHECK_THAT(again.out, ContainsSubstring("with 1 thread each"));
  for (const std::string& run : kTwoRuns)
    check_same_run(here, "whole/runs/" + run, "broken/runs/" + run, "step_00000024");
}

TEST_CASE("sweep command: SIGTERM and Ctrl-C stop all runs, and each writes its checkpoint") {
  const Sweeps here;
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string folder = signal == SIGTERM ? "terminated" : "interrupted";
    const Outcome stopped = testing::isobar_command(
        here.path(), "sweep " + here.file(kTwoRates, "100000") + here.flags(folder, "--jobs 2 --threads 1"),
        [&](pid_t sweep) {
          wait_until([&] {
            return std::ranges::all_of(kTwoRuns, [&](const std::string& run) {
              return checkpoints_in(here.path(folder + "/runs/" + run)) > 0;
            });
          });
          ::kill(sweep, signal);
        });
    CHECK(stopped.status == 75);
    CHECK(stopped.err == "");
    for (const json& result : here.results(folder)) CHECK(result.at("state") == "stopped");
    for (const std::string& run : kTwoRuns) CHECK(fs::exists(here.path(folder + "/runs/" + run + "/stopped")));
  }
}

TEST_CASE("sweep command: a signal is told by the status, also where a run has failed") {
  const Sweeps here;
  const std::string images = R"("images": {"values": ["pairs", "random"]})";
  const Outcome stopped = testing::isobar_command(
      here.path(), "sweep " + here.file(images, "100000") + here.flags("sweep", "--jobs 2 --threads 1"),
      [&](pid_t sweep) {
        wait_until([&] { return checkpoints_in(here.path("sweep/runs/0002_images=random")) > 0; });
        ::kill(sweep, SIGTERM);
      });
  CHECK(stopped.status == 75);
  CHECK(stopped.err == "");
  CHECK(here.results("sweep")[0].at("state") == "failed");
  CHECK(here.results("sweep")[1].at("state") == "stopped");
}

TEST_CASE("sweep command: without --run-dir it goes where its runs' config says, under the name of its file") {
  const Sweeps here;
  const std::string expdir = R"("expdir": {"values": [")" + here.path("exps").string() + R"("]})";
  here.done(here.command("sweep " + here.file(expdir, "1") + " --device cpu --threads 1"));
  CHECK(json::parse(here.contents("exps/rates/results.json")).at("runs").size() == 1);
  const testing::EnvironmentVariable ranks("WORLD_SIZE", "2"), rank("RANK", "0");
  CHECK_THAT(here.command("sweep " + here.file(expdir, "1")).err,
             ContainsSubstring("isobar sweep is one process, which starts others: start it without "));
}

TEST_CASE("sweep command: data and threads need to be given once, and data may move") {
  const Sweeps here;
  fs::create_directories(here.path("data"));
  for (const auto& [prefix, count] : {std::pair("train", 24), std::pair("t10k", 4)})
    testing::write_images(here.path("data"), prefix,
                          {8, 8, std::string(static_cast<std::size_t>(64 * count), 'x'),
                           std::string(static_cast<std::size_t>(count), '\0')});
  std::ofstream(here.path("noisy.json")) << R"({"config": "cnn", "set": {"images": "noisy", "width": 4, "depth": 2,
      "num_epochs": 1, "global_batch_size": 12}, "parameters": {"lr": {"values": [0.001]}}})";
  const std::string sweep = "sweep " + here.path("noisy.json").string() + here.flags("sweep");
  const auto train_path = [&] {
    return json::parse(here.contents("sweep/configs/0001_lr=0.001.json")).at("train_path").get<std::string>();
  };
  const std::string as_it_is_from_here = fs::relative(here.path("data")).string();
  here.done(here.command(sweep + " --threads 3 --data " + as_it_is_from_here));
  const std::string before = train_path();
  CHECK_THAT(before, ContainsSubstring(here.path("data").string()));
  CHECK_THAT(before, !ContainsSubstring(as_it_is_from_here));
  const Outcome again = here.command(sweep);
  here.done(again);
  CHECK(train_path() == before);
  CHECK_THAT(again.out, ContainsSubstring("with 3 threads each"));  // they decide the bits of runs that go on

  fs::rename(here.path("data"), here.path("moved"));
  fs::remove_all(here.path("sweep/runs/0001_lr=0.001"));
  CHECK(here.command(sweep).status == 1);
  here.done(here.command(sweep + " --data " + here.path("moved").string()));
  CHECK_THAT(train_path(), ContainsSubstring(here.path("moved").string()));
  here.done(here.command(sweep));
  CHECK_THAT(train_path(), ContainsSubstring(here.path("moved").string()));
}

TEST_CASE("sweep command: what is refused, before anything is made") {
  const Sweeps here;
  const auto refused = [&](const std::string& parameters, const std::string& more, const std::string& words) {
    INFO(parameters << " " << more);
    const Outcome outcome = here.sweep(parameters, "refused", more);
    CHECK(outcome.status == 1);
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(words));
    CHECK_FALSE(fs::exists(here.path("refused")));
  };
  refused(R"("num_heads": {"values": [1, 2]})", "", "unknown config key num_heads in ");
  refused(R"("lr": {"values": [1, -2]})", "", "must be at least 0, not -2 (run 0002_lr=-2)");
  refused(R"("lr": {"values": [1, 1]})", "", "are the same");
  refused(kTwoRates, "--jobs 0", "--jobs");
  refused(kTwoRates, "--data /nowhere", "/nowhere");
  refused(kTwoRates, "--jbos 2", "no flag --jbos; did you mean --jobs?");
  CHECK_THAT(here.command("sweep").err, ContainsSubstring("FILE"));
  CHECK_THAT(here.command("sweep /none.json").err, ContainsSubstring("/none.json"));
}

}  // namespace isobar
