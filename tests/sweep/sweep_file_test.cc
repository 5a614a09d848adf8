// A sweep's file: the runs that it describes, and what it refuses.
#include "apps/sweep/sweep_file.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/sweep/sweep_plan.h"
#include "tests/harness/error_of.h"
#include "tests/harness/places.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using nlohmann::ordered_json;

namespace {

class File {
 public:
  explicit File(const std::string& text) { std::ofstream(path()) << text; }
  std::string path() const { return (folder_ / "lr.json").string(); }
  SweepFile read() const { return read_sweep_file(path()); }
  SweepPlan plan() const { return plan_sweep(read(), ""); }

 private:
  testing::TemporaryFolder folder_;
};

std::vector<std::string> values_of(const std::vector<Combination>& all) {
  std::vector<std::string> texts;
  for (const Combination& one : all) texts.push_back(one.values.dump());
  return texts;
}

std::string error_of_file(const std::string& text) {
  const File file(text);
  std::string error = testing::error_of([&] { file.plan(); }, "no error");
  const std::string folder = file.path().substr(0, file.path().rfind('/') + 1);
  for (std::size_t at = 0; (at = error.find(folder)) != std::string::npos;) error.erase(at, folder.size());
  return error;
}

}  // namespace

TEST_CASE("sweep file: a grid is every value with every value, the last parameter fastest") {
  const File file(R"({"config": "tiny", "set": {"num_iters": 5},  // a comment
                      "parameters": {"lr": {"values": [0.001, 1e-05]}, "optimizer": {"values": ["adam", "adamw"]}}})");
  const std::vector<Combination> all = combinations_of(file.read());
  CHECK(values_of(all) ==
        std::vector<std::string>{R"({"lr":0.001,"optimizer":"adam"})", R"({"lr":0.001,"optimizer":"adamw"})",
                                 R"({"lr":1e-05,"optimizer":"adam"})", R"({"lr":1e-05,"optimizer":"adamw"})"});
  CHECK(all[0].name == "0001_lr=0.001_optimizer=adam");
  CHECK(all[3].name == "0004_lr=1e-05_optimizer=adamw");
}

TEST_CASE("sweep file: draw i has the same numbers at every point of the grid, in a smaller count and beside others") {
  const std::string lr = R"("lr": {"log_uniform": [1e-4, 1e-2]})", depth = R"("depth": {"ints": [2, 4]})";
  const auto values = [](const std::string& parameters, const std::string& draws) {
    return values_of(
        combinations_of(File(R"({"config": "tiny", "parameters": {)" + parameters + "}" + draws + "}").read()));
  };
  CHECK(values(lr + "," + depth, R"(, "count": 3)") ==
        std::vector<std::string>{R"({"lr":0.002388374391293253,"depth":3})",
                                 R"({"lr":0.0004261622967484519,"depth":3})",
                                 R"({"lr":0.0006762430777005301,"depth":2})"});
  CHECK(values(R"("seed": {"values": [1, 2]}, )" + lr, R"(, "count": 2, "seed": 0)") ==
        std::vector<std::string>{R"({"seed":1,"lr":0.002388374391293253})", R"({"seed":1,"lr":0.0004261622967484519})",
                                 R"({"seed":2,"lr":0.002388374391293253})",
                                 R"({"seed":2,"lr":0.0004261622967484519})"});
  CHECK(values(lr, R"(, "count": 1, "seed": 1)") != values(lr, R"(, "count": 1, "seed": 2)"));
  CHECK(values(R"("dropout": {"uniform": [0, 0.3]})", R"(, "count": 1)") ==
        std::vector<std::string>{R"({"dropout":0.15977071565575898})"});
  const std::string optimizer = values(R"("optimizer": {"choice": ["adam", "adamw"]})", R"(, "count": 1)")[0];
  CHECK((optimizer == R"({"optimizer":"adam"})" || optimizer == R"({"optimizer":"adamw"})"));
}

TEST_CASE("sweep file: a run's name is a folder's name, whatever the values") {
  const File file(R"({"config": "tiny", "parameters": {"train_data_path": {"values": ["/a b/../ü/)" +
                  std::string(300, 'x') +
                  R"("]}, "img_size": {"values": [[8, 16]]}, "lr": {"values": [0.123456789]}}})");
  CHECK(combinations_of(file.read())[0].name ==
        "0001_train_data_path=-a-b-..----" + std::string(13, 'x') + "_img_size=-8-16-_lr=0.123457");
}

TEST_CASE("sweep file: a run's name ends where a file system's names might, and its number tells it from others") {
  std::string parameters, value(24, 'y');
  for (const char* key : {"expdir", "train_data_path", "valid_data_path", "test_data_path", "inf_data_path"})
    parameters += concat(parameters.empty() ? "\"" : ", \"", key, R"(": {"values": [")", value, R"("]})");
  const File file(R"({"config": "tiny", "parameters": {)" + parameters + "}}");
  const std::string name = combinations_of(file.read())[0].name;
  CHECK(name.size() == 150);
  CHECK(name.starts_with("0001_expdir=" + value + "_train_data_path=" + value + "_valid_data_path="));
}

TEST_CASE("sweep file: integers are drawn from both ends on, as many as 32 bits tell apart") {
  const auto drawn = [](const std::string& ints, int count) {
    std::set<std::int64_t> values;
    const File file(R"({"config": "tiny", "parameters": {"seed": {"ints": )" + ints + R"(}}, "count": )" +
                    std::to_string(count) + "}");
    for (const Combination& one : combinations_of(file.read()))
      values.insert(one.values.at("seed").get<std::int64_t>());
    return values;
  };
  CHECK(drawn("[-1, 2]", 60) == std::set<std::int64_t>{-1, 0, 1, 2});
  CHECK(drawn("[0, 1]", 20) == std::set<std::int64_t>{0, 1});
  CHECK(drawn("[0, 4294967295]", 50).size() == 50);
}

TEST_CASE("sweep file: what it refuses, in one sentence that names the place") {
  const auto [text, words] = GENERATE(table<std::string, std::string>({
      {R"([1])", "lr.json: a sweep must be a JSON object, not [1]"},
      {R"({"config": "tiny", )", "lr.json: is not valid JSON: it ends too early"},
      {R"({"config": "tiny"})", "lr.json: the key parameters is missing"},
      {R"({"parameters": {"lr": {"values": [1]}}})", "lr.json: the key config is missing"},
      {R"({"config": 3, "parameters": {}})", "config must be a config's name, or FILE.json, not 3"},
      {R"({"config": "tiny", "parameter": {}})", "unknown key parameter; did you mean parameters?"},
      {R"({"config": "tiny", "parameters": []})", "parameters must be an object of config keys, not []"},
      {R"({"config": "tiny", "parameters": {}})", "parameters must not be empty"},
      {R"({"config": "tiny", "set": 1, "parameters": {}})", "set must be an object of config keys, not 1"},
      {R"({"config": "tiny", "parameters": {"lr": [1, 2]}})", "parameter lr must be an object of one of values, "},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1], "ints": [1, 2]}}})", "must be an object of one of"},
      {R"({"config": "tiny", "parameters": {"lr": {"valeus": [1]}}})",
       "parameter lr: there is no valeus; did you mean"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": []}}})", "parameter lr: its values must not be empty"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": 1}}})", "parameter lr: its values must be a list, not 1"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [1]}}, "count": 1})", "its uniform must be two numbers"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [1, "2"]}}, "count": 1})", "must be two numbers"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [2, 1]}}, "count": 1})", "its uniform must rise"},
      {R"({"config": "tiny", "parameters": {"lr": {"log_uniform": [0, 1]}}, "count": 1})", "must be above 0"},
      {R"({"config": "tiny", "parameters": {"depth": {"ints": [1, 2.5]}}, "count": 1})", "must be two integers"},
      {R"({"config": "tiny", "parameters": {"depth": {"ints": [3, 3]}}, "count": 1})", "its ints must rise"},
      {R"({"config": "tiny", "parameters": {"depth": {"ints": [0, 4294967296]}}, "count": 1})", "more than 2^32"},
      {R"({"config": "tiny", "parameters": {"depth": {"ints": [0, 18446744073709551615]}}, "count": 1})", "of fp64"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [0, 1]}}})", "count, the number of draws, is missing"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [0, 1]}}, "count": 0})",
       "count must be an integer from 1"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [0, 1]}}, "count": 1.5})", "count must be an integer"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [0, 1]}}, "count": 10000})", "from 1 to 9999, not 10000"},
      {R"({"config": "tiny", "parameters": {"lr": {"uniform": [0, 1]}}, "count": 1, "seed": -1})", "seed must be an"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1]}}, "count": 2})",
       "count is of parameters that are drawn"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1]}}, "seed": 2})",
       "seed is of parameters that are drawn"},
      {R"({"config": "tiny", "set": {"lr": 1}, "parameters": {"lr": {"values": [1]}}})",
       "lr is in set and in parameters"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1]}, "lr": {"values": [2]}}})", "is there twice"},
      // Config keys, as `isobar train` checks them
      {R"({"config": "tyny", "parameters": {"lr": {"values": [1]}}})", "did you mean tiny?"},
      {R"({"config": "none.json", "parameters": {"lr": {"values": [1]}}})", "none.json"},
      {R"({"config": "tiny", "parameters": {"lrate": {"values": [1]}}})", "unknown config key lrate in lr.json"},
      {R"({"config": "tiny", "set": {"epocs": 1}, "parameters": {"lr": {"values": [1]}}})",
       "unknown config key epocs in"},
      {R"({"config": "tiny", "parameters": {"sigma": {"values": [1]}}})", "unknown config key sigma in lr.json"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1, "two"]}}})",
       R"(config key lr in lr.json must be a number, not "two" (run 0002_lr=two))"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1, -1]}}})",
       "config key lr in lr.json must be at least 0, not -1 (run 0002_lr=-1)"},
      {R"({"config": "tiny", "parameters": {"grad_accumulation": {"values": [1, 17]}}})",
       "must be at least grad_accumulation (17), not 16 (run 0002_grad_accumulation=17)"},
      {R"({"config": "tiny", "parameters": {"lr": {"values": [1, 1.0]}}})",
       "lr.json: the runs 0001_lr=1 and 0002_lr=1 are the same"},
      {R"({"config": "tiny", "parameters": {"depth": {"ints": [1, 2]}}, "count": 3})", "are the same"},
      {R"({"config": "tiny", "parameters": {"num_epochs": {"values": [1, 2]}, "num_iters": {"values": [5]}}})",
       "are the same"},
  }));
  CAPTURE(text);
  CHECK_THAT(error_of_file(text), ContainsSubstring(words));
}

TEST_CASE("sweep file: there are at most 9999 runs") {
  std::string list = "0";
  for (int i = 1; i < 101; ++i) list += "," + std::to_string(i);
  const auto runs = [&](const std::string& second, const std::string& draws) {
    const std::string first = R"({"config": "tiny", "parameters": {"seed": {"values": [)" + list + "]}, ";
    return combinations_of(File(first + second + "}" + draws + "}").read()).size();
  };
  CHECK(runs(R"("lr": {"uniform": [0, 1]})", R"(, "count": 99)") == 9999);
  CHECK_THAT(testing::error_of([&] { runs(R"("lr": {"uniform": [0, 1]})", R"(, "count": 100)"); }),
             ContainsSubstring("there are more than 9999 runs"));
  CHECK_THAT(testing::error_of([&] { runs(R"("depth": {"values": [)" + list + "]}", ""); }),
             ContainsSubstring("there are more than 9999 runs"));
}

TEST_CASE("sweep file: a file that cannot be read is named") {
  CHECK_THAT(testing::error_of([] { read_sweep_file("/nowhere/lr.json"); }), ContainsSubstring("/nowhere/lr.json"));
  CHECK_THAT(testing::error_of([] { read_sweep_file("/"); }), ContainsSubstring("/"));
}

TEST_CASE("sweep plan: a run's config is whole, and that of the config, set and the values") {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "mine.json") << R"({"extends": "tiny", "warmup": 7, "num_epochs": 3})";
  std::ofstream(folder / "sweep.json")
      << R"({"config": "mine.json", "set": {"depth": 2, "num_iters": 9, "valid_data_path": "d"},
                                             "parameters": {"lr": {"values": [0.25, 0.5]}}})";
  const SweepPlan plan = plan_sweep(read_sweep_file(folder / "sweep.json"), "");
  REQUIRE(plan.runs.size() == 2);
  const ordered_json& config = plan.runs[1].config;
  CHECK(config.at("lr") == 0.5);
  CHECK(config.at("depth") == 2);
  CHECK(config.at("warmup") == 7);
  CHECK(config.at("num_iters") == 9);
  CHECK(config.at("num_epochs").is_null());
  CHECK(config.at("embed_dim") == 96);  // of tiny
  CHECK(config.at("img_size").is_null());
  CHECK(config.at("train_data_path") == "/data/train");
  CHECK(config.at("valid_data_path") == (std::filesystem::current_path() / "d").string());
  CHECK(plan.expdir == "runs");
  CHECK(plan.notes.empty());
}

TEST_CASE("sweep plan: networks and tasks may be parameters, and what is left out is said once") {
  const File file(
      R"({"config": "tiny", "parameters": {"model": {"values": ["cnn", "vit"]}, "lr": {"values": [1, 2]}}})");
  const SweepPlan plan = file.plan();
  REQUIRE(plan.runs.size() == 4);
  CHECK(plan.runs[0].config.at("model") == "cnn");
  CHECK_FALSE(plan.runs[0].config.contains("embed_dim"));
  CHECK(plan.runs[3].config.contains("embed_dim"));
  REQUIRE(plan.notes.size() == 1);
  CHECK_THAT(*plan.notes.begin(), ContainsSubstring("left out, since cnn for forecast has no such keys: ") &&
                                      ContainsSubstring(" embed_dim"));
  CHECK_THAT(error_of_file(R"({"config": "tiny", "parameters": {"model": {"values": ["vit", "cnn"]},
                               "num_heads": {"values": [2]}}})"),
             ContainsSubstring("unknown config key num_heads in lr.json") && ContainsSubstring("(run 0002_model=cnn"));
}

TEST_CASE("sweep plan: the example of the docs is a sweep") {
  const SweepPlan plan = plan_sweep(read_sweep_file(testing::source_path("docs/sweep.json")), "");
  CHECK(plan.runs.size() == 4);
}
