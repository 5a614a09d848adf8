// A sweep's folder: whose it is, what makes another sweep of it, and one sweep at a time.
#include "apps/sweep/sweep_folder.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/files/reader.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using isobar::testing::error_of;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

struct Here {
  testing::TemporaryFolder folder;
  fs::path sweep = folder / "sweep";

  SweepPlan plan(const std::string& text, const std::string& base = R"({"extends": "tiny"})") const {
    std::ofstream(folder / "base.json") << base;
    std::ofstream(folder / "lr.json") << text;
    return plan_sweep(read_sweep_file(folder / "lr.json"), "");
  }
  // What a sweep of this plan in the folder of an earlier one is told.
  std::string error(const SweepPlan& other) const {
    return error_of([&] { SweepFolder(sweep).check_same(other); }, "no error");
  }
};

constexpr const char* kSweep = R"({"config": "base.json", "set": {"depth": 2},
                                   "parameters": {"lr": {"values": [1, 2]}, "warmup": {"values": [3]}}})";

}  // namespace

TEST_CASE("sweep folder: it is made, found again, and knows its sweep") {
  const Here here;
  const SweepPlan plan = here.plan(kSweep);
  {
    SweepFolder folder(here.sweep);
    CHECK_FALSE(folder.holds_sweep());
    CHECK_FALSE(fs::exists(here.sweep));
    folder.prepare(plan, "/some/data", 3);
  }
  for (const char* name :
       {"sweep.json", "runs", "logs", "configs/0001_lr=1_warmup=3.json", "configs/0002_lr=2_warmup=3.json"})
    CHECK(fs::exists(here.sweep / name));
  CHECK(ordered_json::parse(read_file(here.sweep / "configs/0002_lr=2_warmup=3.json")).at("lr") == 2);
  SweepFolder folder(here.sweep);
  CHECK(folder.holds_sweep());
  CHECK(folder.kept_data() == "/some/data");
  CHECK(folder.kept_threads() == 3);
  CHECK(error_of([&] { folder.check_same(plan); }) == "");
}

TEST_CASE("sweep folder: another sweep is refused with what differs") {
  const Here here;
  SweepFolder(here.sweep).prepare(here.plan(kSweep), "", 1);
  CHECK(here.error(here.plan(kSweep)) == "no error");
  const auto [text, words] = GENERATE(table<std::string, std::string>({
      {R"({"config": "base.json", "set": {"depth": 2},
           "parameters": {"lr": {"values": [1, 4]}, "warmup": {"values": [3]}}})",
       "parameters.lr.values is [1,2] there, and [1,4] in "},
      {R"({"config": "base.json", "set": {"depth": 2}, "parameters": {"lr": {"values": [1, 2]}}})",
       R"(parameters.warmup is {"values":[3]} there, and missing in )"},
      {R"({"config": "base.json", "set": {"depth": 2, "ema": 0.5},
           "parameters": {"lr": {"values": [1, 2]}, "warmup": {"values": [3]}}})",
       "set.ema is missing there, and 0.5 in "},
      {R"({"config": "base.json", "set": {"depth": 2},
           "parameters": {"warmup": {"values": [3]}, "lr": {"values": [1, 2]}}})",
       "parameters: the order of keys is "},
      {R"({"config": "tiny", "set": {"depth": 2},
           "parameters": {"lr": {"values": [1, 2]}, "warmup": {"values": [3]}}})",
       R"(config is "base.json" there, and "tiny" in )"},
  }));
  const std::string error = here.error(here.plan(text));
  CHECK_THAT(error, ContainsSubstring(words) && ContainsSubstring(here.sweep.string() + " holds another sweep: ") &&
                        ContainsSubstring("choose another --run-dir"));
  // The order at the top says nothing
  CHECK(here.error(here.plan(R"({"parameters": {"lr": {"values": [1, 2]}, "warmup": {"values": [3]}},
                                 "set": {"depth": 2}, "config": "base.json"})")) == "no error");
}

TEST_CASE("sweep folder: another base config is refused, but for the paths of data") {
  const Here here;
  SweepFolder(here.sweep).prepare(here.plan(kSweep), "", 1);
  CHECK_THAT(
      here.error(here.plan(kSweep, R"({"extends": "tiny", "dropout": 0.25})")),
      ContainsSubstring("config key dropout of its run 0001_lr=1_warmup=3 is 0.0, and now 0.25 in the config ") &&
          ContainsSubstring("base.json"));
  CHECK_THAT(here.error(here.plan(kSweep, R"({"extends": "tiny", "num_iters": 4})")), ContainsSubstring("num_iters"));
  CHECK(here.error(here.plan(kSweep, R"({"extends": "tiny", "train_data_path": "/moved"})")) == "no error");
}

TEST_CASE("sweep folder: one sweep at a time") {
  const Here here;
  SweepFolder first(here.sweep);
  first.prepare(here.plan(kSweep), "", 1);
  CHECK_THAT(error_of([&] { SweepFolder second(here.sweep); }),
             ContainsSubstring("sweep folder " + here.sweep.string() + " is in use: another sweep works in it"));
}

TEST_CASE("sweep folder: files of others are not touched") {
  const Here here;
  std::ofstream(here.folder / "file") << "text";
  CHECK_THAT(error_of([&] { SweepFolder(here.folder / "file"); }), ContainsSubstring("is not a folder"));
  CHECK_THAT(error_of([&] { SweepFolder(here.folder.path()); }), ContainsSubstring("holds file, but no sweep"));
  // What a start leaves that is killed before sweep.json is there
  fs::create_directories(here.sweep / "configs");
  CHECK_FALSE(SweepFolder(here.sweep).holds_sweep());
  std::ofstream(here.sweep / ".sweep.json.new") << "{";
  CHECK_FALSE(SweepFolder(here.sweep).holds_sweep());
  for (const char* damaged :
       {"[]", R"({"file": {}, "data": ""})", R"({"file": {}, "threads": 1})", R"({"data": "", "threads": 1})",
        R"({"file": {}, "data": 3, "threads": 1})", R"({"file": {}, "data": "", "threads": "1"})"}) {
    INFO(damaged);
    std::ofstream(here.sweep / "sweep.json") << damaged;
    CHECK_THAT(error_of([&] { SweepFolder(here.sweep); }), ContainsSubstring("sweep.json is not a sweep's"));
  }
  std::ofstream(here.sweep / "sweep.json") << "{}";
  CHECK_THAT(error_of([&] { SweepFolder(here.sweep); }), ContainsSubstring("sweep.json is not a sweep's"));
  std::ofstream(here.sweep / "sweep.json") << "{";
  CHECK_THAT(error_of([&] { SweepFolder(here.sweep); }), ContainsSubstring("sweep.json: is not valid JSON"));
}
