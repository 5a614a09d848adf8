// A run folder: what may be overwritten and resumed, and that metrics.jsonl holds no line twice.
#include "apps/train/run_folder.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <regex>

#include "apps/train/config.h"
#include "engine/files/atomic_file.h"
#include "engine/files/checkpoint.h"
#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

const ordered_json kConfig = [] {
  RunConfig defaults;
  return to_json(defaults);
}();

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = fs::temp_directory_path() /
            ("isobar_run_folder_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void put(const std::string& name, const std::string& content = "x") const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << content;
  }
  bool has(const std::string& name) const { return fs::exists(path_ / name); }
  std::string read(const std::string& name) const { return read_file(path_ / name); }
  RunFolder open(ExistingRun existing) const {
    RunFolder run(path_, existing);
    run.console = [](std::string_view) {};
    return run;
  }
  RunFolder prepared(ExistingRun existing = ExistingRun::refuse) const {
    RunFolder run = open(existing);
    run.prepare(kConfig);
    return run;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("an existing run is refused unless resumed or overwritten") {
  const Folder folder;
  CHECK_FALSE(folder.open(ExistingRun::resume).is_resumed());
  CHECK_FALSE(folder.has(""));  // looking makes nothing
  folder.put("notes.txt");      // nor does a stranger's file stand in the way
  CHECK_FALSE(folder.prepared().is_resumed());
  CHECK(ordered_json::parse(folder.read("config.json")) == kConfig);
  CHECK_THROWS_WITH(folder.open(ExistingRun::refuse),
                    ContainsSubstring(folder.path().string()) && ContainsSubstring("--resume"));
  folder.put("metrics.jsonl", "{}");
  CHECK(folder.prepared(ExistingRun::resume).is_resumed());
  CHECK(folder.has("metrics.jsonl"));
  CHECK_FALSE(folder.open(ExistingRun::overwrite).is_resumed());
  CHECK(folder.has("metrics.jsonl"));
  folder.prepared(ExistingRun::overwrite);
  CHECK_FALSE(folder.has("metrics.jsonl"));
}

TEST_CASE("a run folder is known by the keys of every run, whatever the model") {
  const Folder folder;
  folder.put("config.json", R"({"num_iters": 10, "global_batch_size": 4})");
  CHECK_THROWS_WITH(folder.open(ExistingRun::refuse), ContainsSubstring("holds a run already"));
}

TEST_CASE("a run folder is one process's at a time") {
  const Folder folder;
  {
    const RunFolder first = folder.prepared();
    for (const auto existing : {ExistingRun::resume, ExistingRun::overwrite})
      CHECK_THROWS_WITH(folder.open(existing).prepare(kConfig), ContainsSubstring("in use"));
  }
  fs::remove_all(folder.path());
  RunFolder late = folder.open(ExistingRun::refuse);  // nothing is there yet that could be locked
  folder.prepared();
  CHECK_THROWS_WITH(late.prepare(kConfig), ContainsSubstring("just now"));
}

TEST_CASE("what is found in a run folder stays true: it is locked before it is looked at") {
  const Folder folder;
  folder.prepared();
  const RunFolder resumed = folder.open(ExistingRun::resume);  // chooses its checkpoint now
  for (const auto existing : {ExistingRun::resume, ExistingRun::overwrite, ExistingRun::refuse})
    CHECK_THROWS_WITH(folder.open(existing), ContainsSubstring("in use"));
}

TEST_CASE("a run says that it was stopped until it goes on") {
  const Folder folder;
  {
    const RunFolder run = folder.prepared();
    CHECK_FALSE(folder.has("stopped"));
    run.mark_stopped("stopped by SIGUSR1 after iteration 3 of 12");
  }
  CHECK(folder.read("stopped") == "stopped by SIGUSR1 after iteration 3 of 12\n");
  {
    const RunFolder refused = folder.open(ExistingRun::resume);  // and does not come as far as prepare()
  }
  CHECK(folder.has("stopped"));
  folder.prepared(ExistingRun::resume);
  CHECK_FALSE(folder.has("stopped"));
}

TEST_CASE("overwriting removes what a run made and nothing else") {
  const Folder folder;
  const std::vector<std::string> run{"config.json",
                                     "run_id",
                                     "out.log",
                                     "metrics.jsonl",
                                     "summary.json",
                                     "stopped",
                                     "layout.json",
                                     "latest_checkpointed_iteration.txt",
                                     "checkpoints/step_00000010/model.safetensors",
                                     "checkpoints/.writing_step_00000020/model.safetensors",
                                     "checkpoints/.aside_step_00000010/state.json",
                                     "checkpoints/.deleting_step_00000010/state.json",
                                     "iter_0000100/model.safetensors",
                                     ".writing_iter_0000200/model.safetensors",
                                     "best/model.safetensors",
                                     "best/optimizer.safetensors",
                                     "best/state.json",
                                     "best/checksums.xxh64",
                                     "best/.state.json.new",
                                     "logs/events.out.tfevents.1.host.2.0",
                                     "images/map_t2m_00000010.png",
                                     "images/map_t2m_100000010.png",
                                     "stats/global_means.npy",
                                     "stats/global_stds.npy",
                                     "stats/time_means.npy",
                                     "stats/stats.json"};
  const std::vector<std::string> foreign{"notes.txt",
                                         "images/holiday.png",
                                         "images/map_of_my_journey.txt",
                                         "images/map_t2m_0000010.png",
                                         "iter_of_mine/notes.txt",
                                         "stats/means_of_mine.npy",
                                         "checkpoints/mine/model.safetensors",
                                         "checkpoints/step_by_step.txt",
                                         "checkpoints/.git/config",
                                         ".writing_novel/chapter1",
                                         "best/model.safetensors_notes",
                                         "logs/slurm.out"};
  for (const std::string& file : run) folder.put(file, file == "config.json" ? kConfig.dump() : "x");
  for (const std::string& file : foreign) folder.put(file);
  folder.prepared(ExistingRun::overwrite);
  CHECK(folder.read("config.json") != kConfig.dump());  // written anew
  CHECK(folder.read("run_id") != "x");
  for (const char* anew : {"config.json", "run_id"}) fs::remove(folder.path() / anew);
  for (const std::string& file : run) CHECK_FALSE(folder.has(file));
  for (const std::string& file : foreign) CHECK(folder.has(file));
  CHECK_FALSE(folder.has("best/state.json"));
}

TEST_CASE("what is told before a run has its folder is shown at once, and logged when it has") {
  const Folder folder;
  RunFolder run = folder.open(ExistingRun::refuse);
  std::string shown;
  run.console = [&](std::string_view line) { shown += line; };
  run.announce("early");
  CHECK_THAT(shown, ContainsSubstring("early"));
  CHECK_FALSE(folder.has("out.log"));
  run.prepare(kConfig);
  CHECK_THAT(folder.read("out.log"), ContainsSubstring("early"));
}

TEST_CASE("overwriting empties a folder of a run that is a link, and keeps the link") {
  const Folder folder, scratch;
  folder.prepared();
  scratch.put("checkpoints/step_00000012/model.safetensors");
  scratch.put("logs/events.out.tfevents.1");
  for (const std::string name : {"checkpoints", "logs"}) {
    scratch.put(name + "/mine.txt");
    fs::create_directory_symlink(scratch.path() / name, folder.path() / name);
  }
  folder.prepared(ExistingRun::overwrite);
  for (const std::string name : {"checkpoints", "logs"}) {
    CHECK(fs::is_symlink(folder.path() / name));
    CHECK(scratch.has(name + "/mine.txt"));
  }
  CHECK_FALSE(scratch.has("checkpoints/step_00000012"));
  CHECK_FALSE(scratch.has("logs/events.out.tfevents.1"));
}

TEST_CASE("overwriting empties a folder of a run that is a mount point, and keeps it") {
  const Folder folder, scratch;
  folder.prepared();
  folder.put("checkpoints/there");
  fs::remove(folder.path() / "checkpoints/there");
  scratch.put("step_00000012/model.safetensors");
  const pid_t child = fork();  // with mounts of its own
  if (child == 0) {
    const bool can =
        unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount(scratch.path().c_str(), (folder.path() / "checkpoints").c_str(), nullptr, MS_BIND, nullptr) == 0;
    if (!can) _exit(2);
    try {
      folder.prepared(ExistingRun::overwrite);
      _exit(scratch.has("step_00000012") ? 3 : 0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WEXITSTATUS(status) == 2) ISOBAR_SKIP("this process may not mount");
  CHECK(status == 0);
}

TEST_CASE("a run has a number of its own, which resuming keeps and overwriting draws anew") {
  const Folder folder;
  const std::string first = folder.prepared().run_id();
  CHECK(std::regex_match(first, std::regex("[0-9a-f]{32}")));
  CHECK(folder.read("run_id") == first + "\n");
  CHECK(folder.prepared(ExistingRun::resume).run_id() == first);
  CHECK(folder.prepared(ExistingRun::overwrite).run_id() != first);
  fs::remove(folder.path() / "run_id");  // a run of an older isobar
  CHECK(folder.prepared(ExistingRun::resume).run_id().size() == 32);
  fs::remove(folder.path() / "config.json");  // killed before it was written
  CHECK(folder.prepared().run_id().size() == 32);
  folder.put("run_id", "none of these");
  CHECK_THROWS_WITH(folder.prepared(ExistingRun::resume), (folder.path() / "run_id").string() +
                                                              " is damaged: it does not hold 32 hexadecimal digits; "
                                                              "without it, the config tells runs apart");
  folder.put("run_id", std::string(31, 'a') + "g\n");
  CHECK_THROWS_WITH(folder.prepared(ExistingRun::resume), ContainsSubstring("run_id is damaged"));
}

TEST_CASE("a run folder that cannot be made is told, with the flag that names another") {
  const Folder folder;
  folder.put("file");
  const fs::path place = folder.path() / "file/run";
  const auto refusal = [&](const RunFolderFlags& flags) {
    RunFolder run(place, ExistingRun::refuse, flags);
    run.prepare(kConfig);
  };
  CHECK_THROWS_WITH(refusal({}), "cannot make run folder " + place.string() +
                                     ": Not a directory; say where it goes with --run-dir DIR or --set expdir=DIR");
  CHECK_THROWS_WITH(refusal({.go_on = "--load", .folder = "--save", .choices = "--save", .place = "--save DIR"}),
                    ContainsSubstring("; say where it goes with --save DIR"));
  CHECK(folder.read("file") == "x");
}

TEST_CASE("checkpoints of another run are told by their number, or by their config where one has none") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  const std::vector<std::string> free = RunConfig().keys_free_on_resume();
  const fs::path checkpoint = folder.path() / "checkpoints/step_00000012";
  const auto make = [&](const std::string& run_id, const char* key, const ordered_json& value) {
    ordered_json config = kConfig;
    config[key] = value;
    folder.put("checkpoints/step_00000012/state.json",
               (run_id.empty() ? ordered_json::object() : ordered_json{{"run_id", run_id}}).dump());
    write_safetensors(checkpoint / "model.safetensors", {}, {{"isobar.config", config.dump()}});
  };
  make(run.run_id(), "lr", 7);
  CHECK_NOTHROW(run.check_own(checkpoint, free));
  const std::string other(32, 'a');
  make(other, "num_iters", 10);
  CHECK_THROWS_WITH(run.check_own(checkpoint, free), ContainsSubstring(checkpoint.string() + " is of another run") &&
                                                         ContainsSubstring(other) && ContainsSubstring(run.run_id()));
  make("", "num_iters", 10);
  CHECK_NOTHROW(run.check_own(checkpoint, free));
  make("", "seed", 3);
  CHECK_THROWS_WITH(run.check_own(checkpoint, free),
                    ContainsSubstring("its config key seed is 3, and this run's is 0"));
  make(other, "seed", 3);
  fs::remove(folder.path() / "run_id");
  CHECK_THROWS_WITH(run.check_own(checkpoint, free), ContainsSubstring("its config key seed is 3"));

  make("", "seed", 3);
  fs::rename(checkpoint, folder.path() / "best");
  CHECK_THROWS_WITH(run.check_best(free), ContainsSubstring("best is of another run"));
  folder.put("best/model.safetensors", "damaged");
  CHECK_NOTHROW(run.check_best(free));
}

TEST_CASE("best weights that say they are another run's are not taken for this run's") {
  const Folder folder;
  const std::string ours(32, 'b'), theirs(32, 'a');
  const fs::path file = folder.path() / "best/model.safetensors";
  const auto save_best = [&](const std::string& state) {
    CheckpointStore(folder.path(), 1).save_best([&](const fs::path& best) {
      write_file_atomically(best / "model.safetensors", "weights");
      write_file_atomically(best / "state.json", state);
    });
  };
  save_best("{}");
  folder.put("run_id", ours + "\n");
  CHECK(weights_at(folder.path()) == file);  // they do not say whose they are
  save_best(R"({"run_id": ")" + ours + R"("})");
  CHECK(weights_at(folder.path()) == file);
  save_best(R"({"run_id": ")" + theirs + R"("})");
  CHECK_THROWS_WITH(weights_at(folder.path()),
                    ContainsSubstring("best is of another run") && ContainsSubstring(theirs));
  CHECK(weights_at(file) == file);
}

TEST_CASE("weights that a run left in a folder without config.json are refused, whatever is to be done") {
  const auto existing = GENERATE(ExistingRun::refuse, ExistingRun::resume, ExistingRun::overwrite);
  for (const std::string left : {"checkpoints/step_00000012/state.json", "best/model.safetensors"}) {
    const Folder folder;
    folder.put(left);
    CHECK_THROWS_WITH(folder.open(existing),
                      ContainsSubstring(folder.path().string()) && ContainsSubstring("config.json is missing"));
    CHECK(folder.has(left));
  }
}

TEST_CASE("a run that fails at its start leaves what it found behind a link") {
  const Folder folder, scratch;
  scratch.put("events.out.tfevents.1.host.2.0");
  fs::create_directories(folder.path());
  fs::create_directory_symlink(scratch.path(), folder.path() / "logs");
  folder.prepared().discard();
  CHECK(scratch.has("events.out.tfevents.1.host.2.0"));
  CHECK_FALSE(folder.has("config.json"));
  CHECK_FALSE(folder.has("run_id"));
}

TEST_CASE("a file that is not a run's is never overwritten") {
  const auto existing = GENERATE(ExistingRun::refuse, ExistingRun::resume, ExistingRun::overwrite);
  for (const std::string file : {"config.json", "run_id", "out.log", "metrics.jsonl", "summary.json"}) {
    const Folder folder;
    folder.put(file, R"({"name": "something else"})");
    CHECK_THROWS_WITH(folder.open(existing), ContainsSubstring(file) && ContainsSubstring("no run"));
    CHECK(folder.read(file) == R"({"name": "something else"})");
  }
  const Folder folder;
  fs::create_directories(folder.path().parent_path());
  std::ofstream(folder.path()) << "a file";
  CHECK_THROWS_WITH(folder.open(existing), ContainsSubstring("is not a folder"));
}

TEST_CASE("resuming cuts metrics beyond the checkpoint and a half-written line") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  std::string kept;
  for (const std::int64_t iteration : {0, 10, 20, 20, 30}) {
    const ordered_json line{{"event", "train"}, {"iteration", iteration}, {"loss", 0.1}};
    run.append_metrics(line);
    if (iteration <= 20) kept += line.dump() + "\n";
  }
  std::ofstream(folder.path() / "metrics.jsonl", std::ios::app) << R"({"event": "train", "iteration": 15, "lo)";
  run.cut_metrics(20);
  CHECK(folder.read("metrics.jsonl") == kept);
  run.append_metrics({{"iteration", 21}});
  CHECK(folder.read("metrics.jsonl") == kept + "{\"iteration\":21}\n");
  run.cut_metrics(-1);
  CHECK(folder.read("metrics.jsonl").empty());
}

TEST_CASE("a validation that is to be made again leaves no line of the first") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  const ordered_json train{{"event", "train"}, {"iteration", 20}}, valid{{"event", "valid"}, {"iteration", 20}},
      earlier{{"event", "valid"}, {"iteration", 10}};
  for (const ordered_json& line : {earlier, train, valid}) run.append_metrics(line);
  run.cut_metrics(20);
  CHECK(folder.read("metrics.jsonl") == earlier.dump() + "\n" + train.dump() + "\n" + valid.dump() + "\n");
  run.cut_metrics(20, /*is_validated=*/false);
  CHECK(folder.read("metrics.jsonl") == earlier.dump() + "\n" + train.dump() + "\n");
}

TEST_CASE("lines of metrics whose iteration is no whole number are cut as damaged ones") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  run.append_metrics({{"iteration", 1}});
  folder.put("metrics.jsonl", folder.read("metrics.jsonl") + R"({"iteration": "x"}
{"iteration": 1e300}
{"iteration": 2.5}
[1]
)");
  run.cut_metrics(20);
  CHECK(folder.read("metrics.jsonl") == "{\"iteration\":1}\n");
}

TEST_CASE("lines of metrics that are nested too deep or have a key twice are cut as damaged ones") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  run.append_metrics({{"iteration", 1}});
  folder.put("metrics.jsonl", R"({"iteration": 1, "loss": 1, "loss": 2})"
                              "\n" +
                                  folder.read("metrics.jsonl") + std::string(60000, '[') + std::string(60000, ']') +
                                  "\n");
  run.cut_metrics(20);
  CHECK(folder.read("metrics.jsonl") == "{\"iteration\":1}\n");
}

TEST_CASE("a pipe in the place of a run's file is an error, not a wait") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  for (const char* name : {"out.log", "metrics.jsonl"}) {
    REQUIRE(mkfifo((folder.path() / name).c_str(), 0600) == 0);
    CHECK_THROWS_WITH(name[0] == 'o' ? run.log("x") : run.append_metrics({{"iteration", 1}}),
                      ContainsSubstring(name) && ContainsSubstring("not a regular file"));
  }
}

TEST_CASE("numbers in metrics keep all their digits") {
  const Folder folder;
  const double value = 0.1234567890123456789;
  folder.prepared().append_metrics({{"loss", value}});
  CHECK(ordered_json::parse(folder.read("metrics.jsonl"))["loss"].get<double>() == value);
}

TEST_CASE("a run resumes with its own config only") {
  const Folder folder;
  folder.prepared();
  ordered_json config = kConfig;
  config["num_iters"] = 60000;
  config["train_data_path"] = "/elsewhere";
  const std::vector<std::string> free = RunConfig().keys_free_on_resume();
  folder.open(ExistingRun::resume).prepare(config, free);
  CHECK(ordered_json::parse(folder.read("config.json")) == config);
  ordered_json other = config;
  other["seed"] = 1;
  CHECK_THROWS_WITH(folder.open(ExistingRun::resume).prepare(other, free),
                    ContainsSubstring("config key seed is 1, but 0 in the run to resume"));
  CHECK(ordered_json::parse(folder.read("config.json")) == config);
}

TEST_CASE("lines of a run's files leave none of them open, written or refused") {
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const Folder folder;
  RunFolder run = folder.prepared();
  const auto write_all = [&] {
    run.log("a line");
    run.append_metrics({{"iteration", 1}});
    run.write_summary({{"iterations", 1}});
    run.keep_layout({});
    run.cut_metrics(1);
  };
  write_all();
  const auto before = open_files();
  for (int i = 0; i < 10; ++i) write_all();
  CHECK(open_files() == before);
  {
    const testing::FileSizeLimit full(0);
    CHECK_THROWS_WITH(run.log("a line"), ContainsSubstring("cannot write to "));
    CHECK_THROWS_WITH(run.append_metrics({{"iteration", 1}}), ContainsSubstring("cannot write to "));
  }
  CHECK(open_files() == before);
}

TEST_CASE("log lines are the tutorial's") {
  const Folder folder;
  RunFolder run = folder.prepared();
  std::string shown;
  run.console = [&](std::string_view line) { shown += line; };
  run.log("Starting Training Loop...");
  run.log("quiet", /*show=*/false);
  const std::string line = folder.read("out.log");
  CHECK(shown.size() == std::string("2023-11-01 10:15:30,123 - root - INFO - Starting Training Loop...").size());
  CHECK_THAT(shown, ContainsSubstring(" - root - INFO - Starting Training Loop..."));
  CHECK(line.starts_with(shown + "\n"));
  CHECK_THAT(line, ContainsSubstring(" - root - INFO - quiet\n"));
}

TEST_CASE("what is announced before there is a folder stands first in its log") {
  const Folder folder;
  RunFolder run = folder.open(ExistingRun::refuse);
  run.announce("first");
  CHECK_FALSE(fs::exists(folder.path() / "out.log"));
  run.prepare(kConfig);
  run.log("second");
  const std::string log = folder.read("out.log");
  CHECK_THAT(log, ContainsSubstring(" - root - INFO - first\n"));
  CHECK(log.find("first") < log.find("second"));
  CHECK(std::count(log.begin(), log.end(), '\n') == 2);
}

TEST_CASE("the stamp of a log line is the local time to the millisecond") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  const auto now = [] {
    const std::time_t seconds = std::time(nullptr);
    std::tm local = {};
    localtime_r(&seconds, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    return std::string(text);
  };
  const std::string before = now();
  run.log("x", /*show=*/false);
  const std::string line = folder.read("out.log"), after = now();
  CHECK(std::regex_match(line, std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - root - INFO - x\n)")));
  CHECK(line.substr(0, 19) >= before);
  CHECK(line.substr(0, 19) <= after);
}

TEST_CASE("keys of where, how long and how a run is computed may change when it goes on, others may not") {
  for (const std::string& key : RunConfig().keys_free_on_resume()) {  // tests/train/config_test.cc has the list
    const Folder folder;
    ordered_json config = kConfig;
    config[key] = "before";
    folder.put("config.json", config.dump());
    config[key] = "after";
    INFO(key);
    CHECK_NOTHROW(folder.open(ExistingRun::resume).prepare(config, RunConfig().keys_free_on_resume()));
  }
  for (const char* key : {"lr", "global_batch_size", "seed", "train_range", "dropout"}) {
    const Folder folder;
    ordered_json config = kConfig;
    config[key] = "before";
    folder.put("config.json", config.dump());
    config[key] = "after";
    CHECK_THROWS_WITH(folder.open(ExistingRun::resume).prepare(config, RunConfig().keys_free_on_resume()),
                      ContainsSubstring("config key " + std::string(key) + " is \"after\", but \"before\" in the run"));
    config["new"] = 1;  // a key that there was not before is no contradiction
    config[key] = "before";
    CHECK_NOTHROW(folder.open(ExistingRun::resume).prepare(config, RunConfig().keys_free_on_resume()));
  }
}

TEST_CASE("a run folder says over how many ranks its run is split") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  const auto layout = [&] {
    const RankLayout said = layout_of_run(folder.path());
    return std::vector<std::int64_t>{said.dp, said.tp, said.cp, said.pp};
  };
  using Sizes = std::vector<std::int64_t>;
  CHECK(layout() == Sizes{1, 1, 1, 1});
  run.keep_layout({.dp = 4, .tp = 2, .cp = 3, .pp = 5});
  CHECK(layout() == Sizes{4, 2, 3, 5});
  run.write_summary({{"layout", {{"dp", 9}}}});
  CHECK(layout() == Sizes{4, 2, 3, 5});
  run.keep_layout({});  // one rank goes on
  CHECK(layout() == Sizes{1, 1, 1, 1});
  fs::remove(folder.path() / "layout.json");
  CHECK(layout() == Sizes{9, 1, 1, 1});  // as runs of before say it
  for (const char* damaged : {"[]", "{\"dp\": \"many\"}", "{\"dp\": -3}", "{"}) {
    folder.put("layout.json", damaged);
    folder.put("summary.json", damaged);
    INFO(damaged);
    CHECK(layout() == Sizes{1, 1, 1, 1});
  }
  run.discard();
  CHECK_FALSE(folder.has("layout.json"));
}

TEST_CASE("the run that weights are of is known by the places where a run keeps weights") {
  const Folder folder;
  folder.put("config.json", "{}");
  const fs::path run = folder.path();
  for (const char* kept : {"best/model.safetensors", "checkpoints/step_00000010/model.safetensors",
                           "iter_0000100/model.safetensors", "checkpoints/../best/model.safetensors"})
    CHECK(run_of(run / kept) == run);
  for (const char* other : {"model.safetensors", "stats/model.safetensors", "weights/best/model.safetensors",
                            "old/checkpoints/step_00000010/model.safetensors"})
    CHECK(run_of(run / other).empty());
  CHECK(is_file_of_run(run / "out.log", run));
  CHECK(is_file_of_run(run / "images/../layout.json", run));
  CHECK(is_file_of_run(run / "latest_checkpointed_iteration.txt", run));
  CHECK_FALSE(is_file_of_run(run / "notes.txt", run));
  CHECK_FALSE(is_file_of_run(run / "best/config.json", run));
  CHECK_FALSE(is_file_of_run("config.json", {}));
  fs::remove(run / "config.json");  // no run
  CHECK(run_of(run / "best/model.safetensors").empty());
}

TEST_CASE("lines for programs are as they are, in the order in which they were said, before a folder and after") {
  const Folder folder;
  RunFolder run = folder.open(ExistingRun::refuse);
  std::vector<std::string> shown;
  run.console = [&](std::string_view line) { shown.emplace_back(line); };
  run.say(" iteration 1 |");
  run.announce("a line of isobar's");
  run.say("> second");
  CHECK_FALSE(folder.has(""));
  run.prepare(kConfig);
  run.say(" iteration 2 |");
  REQUIRE(shown.size() == 4);
  CHECK(shown[0] == " iteration 1 |");
  CHECK_THAT(shown[1], ContainsSubstring(" - root - INFO - a line of isobar's"));
  CHECK(shown[3] == " iteration 2 |");
  CHECK(folder.read("out.log") == shown[0] + "\n" + shown[1] + "\n" + shown[2] + "\n" + shown[3] + "\n");
}

TEST_CASE("the first key of two configs that differs is told, whichever else does") {
  const ordered_json one{{"a", 1}, {"b", 2}, {"c", 3}, {"new", 4}}, other{{"c", 4}, {"b", 3}, {"a", 1}, {"old", 5}};
  const auto found = first_difference(one, other, {});
  REQUIRE(found);
  CHECK(found->key == "b");
  CHECK(found->one == "2");
  CHECK(found->other == "3");
  CHECK(first_difference(one, other, {"b"})->key == "c");
  CHECK_FALSE(first_difference(one, other, {"b", "c"}));
}

TEST_CASE("weights of a folder: of a run without a validation set its newest whole checkpoint, else its best ones") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  CheckpointStore store(folder.path(), 0);
  const auto save = [&](std::int64_t step, bool is_unvalidated) {
    store.save(step, [&](const fs::path& files) {
      write_file_atomically(files / "model.safetensors", "weights");
      ordered_json state{{"run_id", run.run_id()}};
      if (is_unvalidated) state["is_unvalidated"] = true;
      write_file_atomically(files / "state.json", state.dump());
    });
    return checkpoint_folder(folder.path(), step) / "model.safetensors";
  };
  const fs::path first = save(3, true), second = save(7, true);
  CHECK(weights_at(folder.path()) == second);
  folder.put("checkpoints/step_00000007/state.json", "damaged");
  CHECK(weights_at(folder.path()) == first);
  store.save_best([&](const fs::path& files) {
    write_file_atomically(files / "model.safetensors", "weights");
    write_file_atomically(files / "state.json", "{}");
  });
  CHECK(weights_at(folder.path()) == folder.path() / "best/model.safetensors");
}

TEST_CASE("a summary is read back, a broken one is none") {
  const Folder folder;
  const RunFolder run = folder.prepared();
  CHECK(run.read_summary().is_null());
  run.write_summary({{"iterations", 5}});
  CHECK(run.read_summary()["iterations"] == 5);
  folder.put("summary.json", "{");
  CHECK(run.read_summary().is_null());
}
