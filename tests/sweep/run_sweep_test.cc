// The processes of a sweep, played by scripts: how many run at once, what each is given, how they end and are stopped.
#include "apps/sweep/run_sweep.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/sweep/child_process.h"
#include "engine/files/reader.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// A sweep over `seed` whose program is a shell script. In it $run is the folder of the run, and $here that of the test.
class Scripted {
 public:
  Scripted(int runs, const std::string& script) {
    std::string list = "0";
    for (int seed = 1; seed < runs; ++seed) list += "," + std::to_string(seed);
    std::ofstream(path("seeds.json")) << R"({"config": "tiny", "parameters": {"seed": {"values": [)" + list + "]}}}";
    plan_ = plan_sweep(read_sweep_file(path("seeds.json")), "");
    std::ofstream(path("program")) << "#!/bin/sh\nhere=" << folder_.path().string() << "\nrun=$5\n" << script << "\n";
    fs::permissions(path("program"), fs::perms::owner_all);
    jobs.program = path("program").string();
  }

  std::vector<RunResult> run(
      const std::function<bool()>& stopping = [] { return false; },
      const std::function<void(const std::string&)>& say = [](const std::string&) {}) {
    SweepFolder folder(path("sweep"));
    folder.prepare(plan_, "", 1);
    return run_sweep(plan_, folder, jobs, stopping, say);
  }
  fs::path path(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> lines(const std::string& name) const {
    std::vector<std::string> all;
    std::istringstream text(fs::exists(path(name)) ? read_file(path(name)) : "");
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
  SweepJobs jobs;

 private:
  testing::TemporaryFolder folder_;
  SweepPlan plan_;
};

std::vector<std::string> states_of(const std::vector<RunResult>& results) {
  std::vector<std::string> states;
  for (const RunResult& result : results) states.emplace_back(name_of(result.state));
  return states;
}

bool is_alive(const std::string& process) {
  return ::kill(std::stoi(process), 0) == 0;
}

void wait_for(const fs::path& file) {
  for (int i = 0; i < 3000 && !fs::exists(file); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(fs::exists(file));
}

constexpr const char* kFinish =
    "mkdir -p $run; echo '{\"num_iters\": 4}' > $run/config.json;"
    "echo '{\"iterations\": 4, \"wall_seconds\": 2.5}' > $run/summary.json;"
    "echo '{\"event\": \"valid\", \"iteration\": 4, \"loss\": 0.5}' > $run/metrics.jsonl";

}  // namespace

TEST_CASE("run sweep: each run is a process of isobar train, with its config, folder, log, threads and GPU") {
  Scripted sweep(3, std::string("echo \"$@\"; echo gpu $CUDA_VISIBLE_DEVICES; echo $MARK >&2;") + kFinish);
  sweep.jobs.threads = 3;
  sweep.jobs.device = "cuda";
  sweep.jobs.gpus = {"GPU-a"};
  const testing::EnvironmentVariable mark("MARK", "inherited"), gpus("CUDA_VISIBLE_DEVICES", "GPU-a,7");
  const std::vector<RunResult> results = sweep.run();
  CHECK(states_of(results) == std::vector<std::string>(3, "finished"));
  const std::string folder = sweep.path("sweep").string(), name = "0002_seed=1";
  CHECK(results[1].name == name);
  CHECK(results[1].seconds == 2.5);
  CHECK(results[1].val_loss == 0.5);
  CHECK(sweep.lines("sweep/logs/" + name + ".log") ==
        std::vector<std::string>{"train --config " + folder + "/configs/" + name + ".json --run-dir " + folder +
                                     "/runs/" + name + " --resume --device cuda --threads 3",
                                 "gpu GPU-a", "inherited"});
}

TEST_CASE("run sweep: finished runs are not started again, and a run whose folder is gone is") {
  Scripted sweep(3, std::string("echo $run >> $here/started;") + kFinish);
  sweep.run();
  CHECK(sweep.lines("started").size() == 3);
  CHECK(states_of(sweep.run()) == std::vector<std::string>(3, "finished"));
  CHECK(sweep.lines("started").size() == 3);
  fs::remove_all(sweep.path("sweep/runs/0002_seed=1"));
  CHECK(states_of(sweep.run()) == std::vector<std::string>(3, "finished"));
  REQUIRE(sweep.lines("started").size() == 4);
  CHECK(sweep.lines("started")[3] == sweep.path("sweep/runs/0002_seed=1").string());
}

TEST_CASE("run sweep: as many at once as there are jobs, each with the GPU of its job") {
  // Every process waits for the other one of its pair, and says who else runs
  Scripted sweep(4,
                 "touch $here/on_$$; echo $CUDA_VISIBLE_DEVICES >> $here/gpus; n=0;"
                 "while [ $(ls $here | grep -c '^on_') -lt 2 ] && [ $n -lt 500 ]; do sleep 0.01; n=$((n+1)); done;"
                 "ls $here | grep -c '^on_' >> $here/counts; sleep 0.1; rm $here/on_$$");
  sweep.jobs.at_once = 2;
  sweep.jobs.gpus = {"0", "1"};
  sweep.run();
  const std::vector<std::string> counts = sweep.lines("counts"), gpus = sweep.lines("gpus");
  REQUIRE(counts.size() == 4);
  CHECK(std::ranges::find(counts, "2") != counts.end());
  for (const std::string& count : counts) CHECK(std::stoi(count) <= 2);
  CHECK(std::ranges::count(gpus, "0") == 2);
  CHECK(std::ranges::count(gpus, "1") == 2);
}

TEST_CASE("run sweep: a run that fails is a line with its sentence, and the others go on") {
  Scripted sweep(6, std::string("case $run in") +
                        " *seed=0) echo 'isobar: warning: w' >&2; echo 'isobar: the disk is full' >&2;"
                        "          echo 'isobar: warning: x' >&2; exit 1;;"
                        " *seed=1) kill -9 $$;;"
                        " *seed=2) exit 5;;"
                        " *seed=3) exit 75;;"
                        " *) " +
                        kFinish + ";; esac");
  std::vector<std::string> said;
  const std::vector<RunResult> results =
      sweep.run([] { return false; }, [&](const std::string& line) { said.push_back(line); });
  CHECK(states_of(results) ==
        std::vector<std::string>{"failed", "failed", "failed", "stopped", "finished", "finished"});
  CHECK(results[0].error == "the disk is full");
  CHECK(results[1].error == "ended by the signal Killed");
  CHECK(results[2].error == "ended with status 5, and its log has no error");
  CHECK(std::ranges::find(said, "0001_seed=0: failed: the disk is full") != said.end());
  CHECK(std::ranges::find(said, "0005_seed=4: running") != said.end());
  CHECK(std::ranges::count_if(said, [](const std::string& line) {
          return line.starts_with("0004_seed=3: stopped after ") && line.ends_with(" s, no validation loss");
        }) == 1);
  CHECK(std::ranges::find(said, "0005_seed=4: finished after 2.5 s, validation loss 0.5, best 0.5") != said.end());
  CHECK_THAT(read_file(sweep.path("sweep/results.csv")),
             ContainsSubstring("0001_seed=0,0,failed,") && ContainsSubstring(",the disk is full\r\n"));
}

TEST_CASE("run sweep: what a run said before is kept when it is started again") {
  Scripted sweep(1, "echo said >> $here/times; echo time $(wc -l < $here/times); exit 1");
  sweep.run();
  sweep.run();
  CHECK(sweep.lines("sweep/logs/0001_seed=0.log") == std::vector<std::string>{"time 1", "time 2"});
}

TEST_CASE("run sweep: a run that is started again and killed is not told with the error of before") {
  Scripted sweep(1, "if mkdir $here/before 2>/dev/null; then echo 'isobar: before' >&2; exit 1; fi; kill -9 $$");
  CHECK(sweep.run()[0].error == "before");
  CHECK(sweep.run()[0].error == "ended by the signal Killed");
}

TEST_CASE("run sweep: a program that cannot be started fails every run by name") {
  Scripted sweep(2, "");
  sweep.jobs.program = sweep.path("none").string();
  const std::vector<RunResult> results = sweep.run();
  CHECK(states_of(results) == std::vector<std::string>(2, "failed"));
  CHECK_THAT(results[1].error, ContainsSubstring("none: cannot be run: No such file"));
}

TEST_CASE("run sweep: when it is to stop, all processes get SIGTERM, none is started, and none is left") {
  Scripted sweep(3,
                 "trap 'echo told >> $here/told; exit 75' TERM; echo $$ >> $here/ids; touch $run.on;"
                 "while :; do sleep 0.01; done");
  sweep.jobs.at_once = 2;
  const auto both_run = [&] { return sweep.lines("ids").size() == 2; };
  const std::vector<RunResult> results = sweep.run(both_run);
  CHECK(states_of(results) == std::vector<std::string>{"stopped", "stopped", "pending"});
  CHECK(sweep.lines("told").size() == 2);
  for (const std::string& id : sweep.lines("ids")) CHECK_FALSE(is_alive(id));
  CHECK_THAT(read_file(sweep.path("sweep/results.csv")), ContainsSubstring("0003_seed=2,2,pending,"));
}

TEST_CASE("run sweep: one that ends by the signal itself, before it could note it, is stopped") {
  Scripted sweep(1, "echo $$ > $here/ids; exec sleep 100");
  const std::vector<RunResult> results = sweep.run([&] { return fs::exists(sweep.path("ids")); });
  CHECK(states_of(results) == std::vector<std::string>{"stopped"});
}

TEST_CASE("run sweep: a signal that the sweep did not send is an error, and of its own only those to stop are none") {
  Scripted sweep(2, "case $run in *seed=0) kill -TERM $$;; *) kill -INT $$;; esac");
  const std::vector<RunResult> results = sweep.run();
  CHECK(states_of(results) == std::vector<std::string>(2, "failed"));
  CHECK(results[0].error == "ended by the signal Terminated");
  Scripted killed(1, "trap 'kill -9 $$' TERM; touch $here/on; while :; do sleep 0.01; done");
  const std::vector<RunResult> result = killed.run([&] { return fs::exists(killed.path("on")); });
  CHECK(states_of(result) == std::vector<std::string>{"failed"});
  CHECK(result[0].error == "ended by the signal Killed");
}

TEST_CASE("run sweep: more jobs than GPUs share them in turn, and the table tells who runs") {
  Scripted sweep(4,
                 "echo $CUDA_VISIBLE_DEVICES; touch $here/on_$(basename $run);"
                 "while [ ! -e $here/go ]; do sleep 0.01; done");
  sweep.jobs.at_once = 3;
  sweep.jobs.gpus = {"4", "7"};
  std::string table;
  sweep.run([&] {
    const auto runs = [&](const char* name) { return fs::exists(sweep.path(std::string("on_") + name)); };
    if (table.empty() && runs("0001_seed=0") && runs("0002_seed=1") && runs("0003_seed=2")) {
      table = read_file(sweep.path("sweep/results.csv"));
      std::ofstream(sweep.path("go")) << "";
    }
    return false;
  });
  CHECK_THAT(table, ContainsSubstring("0003_seed=2,2,running,") && ContainsSubstring("0004_seed=3,3,pending,"));
  const auto gpu_of = [&](const std::string& run) { return sweep.lines("sweep/logs/" + run + ".log"); };
  CHECK(gpu_of("0001_seed=0") == std::vector<std::string>{"4"});
  CHECK(gpu_of("0002_seed=1") == std::vector<std::string>{"7"});
  CHECK(gpu_of("0003_seed=2") == std::vector<std::string>{"4"});
}

TEST_CASE("run sweep: a child has this process's variables but for its own, and nothing to read") {
  const testing::TemporaryFolder folder;
  const testing::EnvironmentVariable longer("ISOBAR_TEST_OWN_TOO", "kept"), own("ISOBAR_TEST_OWN", "before"),
      shorter("ISOBAR_TEST_OW", "and"), letter("Q", "this");
  const auto status_of = [&](const std::string& script) {
    ChildProcess child(
        {.command = {"/bin/sh", "-c", script}, .log = folder / "log", .environment = {"ISOBAR_TEST_OWN=after"}});
    std::optional<int> status;
    for (int i = 0; i < 3000 && !(status = child.ended()); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(child.ended() == status);  // asked again
    child.stop();                    // it has ended: nothing is told
    return status.value_or(-1);
  };
  CHECK(status_of("env | grep -c ISOBAR_TEST_OWN=; echo $ISOBAR_TEST_OWN $ISOBAR_TEST_OWN_TOO $ISOBAR_TEST_OW $Q; cat; "
                  "echo end >&2") == 0);
  CHECK(WEXITSTATUS(status_of("exit 3")) == 3);
  CHECK(read_file(folder / "log") == "1\nafter kept and this\nend\n");
}

TEST_CASE("run sweep: an error in the sweep itself leaves no process") {
  Scripted sweep(2, "echo $$ >> $here/ids; exec sleep 100");
  sweep.jobs.at_once = 2;
  const auto fail = [&]() -> bool {
    if (sweep.lines("ids").size() == 2) throw_error("the table cannot be written");
    return false;
  };
  CHECK(testing::error_of([&] { sweep.run(fail); }) == "the table cannot be written");
  for (const std::string& id : sweep.lines("ids")) CHECK_FALSE(is_alive(id));
}

TEST_CASE("run sweep: when the sweep is killed, its processes are told, and keep the next one out until they end") {
  Scripted sweep(
      1,
      "trap 'touch $here/told; while [ ! -e $here/go ]; do sleep 0.01; done; touch $here/gone; exit 75' TERM;"
      "touch $here/on; while :; do sleep 0.01; done");
  const pid_t killed = ::fork();
  if (killed == 0) {
    sweep.run();
    ::_exit(0);
  }
  wait_for(sweep.path("on"));
  ::kill(killed, SIGKILL);
  ::waitpid(killed, nullptr, 0);
  wait_for(sweep.path("told"));
  CHECK_THAT(testing::error_of([&] { SweepFolder(sweep.path("sweep")); }), ContainsSubstring("is in use"));
  std::ofstream(sweep.path("go")) << "";
  wait_for(sweep.path("gone"));
  std::string error = "not tried";
  for (int i = 0; i < 500 && !error.empty(); ++i) {
    error = testing::error_of([&] { SweepFolder(sweep.path("sweep")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(error == "");
}

TEST_CASE("run sweep: the error in a log is the last one of this process") {
  const testing::TemporaryFolder folder;
  const std::string earlier = "isobar: of an earlier process\n";
  std::ofstream(folder / "log") << earlier << "a line\n";
  CHECK(error_in_log(folder / "log", 0) == "of an earlier process");
  CHECK(error_in_log(folder / "log", earlier.size()) == "");
  CHECK(error_in_log(folder / "log", 1000) == "");
  std::ofstream(folder / "log", std::ios::app)
      << std::string(100000, 'x') << "\nisobar: the last\nisobar: warning: w\n";
  CHECK(error_in_log(folder / "log", earlier.size()) == "the last");
}

TEST_CASE("run sweep: GPUs have the names by which this process sees them") {
  CHECK(gpu_names(3, nullptr) == std::vector<std::string>{"0", "1", "2"});
  CHECK(gpu_names(2, "5,GPU-b") == std::vector<std::string>{"5", "GPU-b"});
  CHECK(gpu_names(2, "5,2,-1,3") == std::vector<std::string>{"5", "2"});
  CHECK(gpu_names(0, "").empty());
}
