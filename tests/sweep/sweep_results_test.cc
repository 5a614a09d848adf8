// What is said of a sweep's runs: their figures, and the table as text, CSV and JSON.
#include "apps/sweep/sweep_results.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

std::vector<RunResult> two_results() {
  RunResult one{.name = "0001_lr=0.1", .values = {{"lr", 0.1}, {"data", "a,\"b\""}}, .state = RunState::finished};
  one.iterations = 20;
  one.val_loss = 0.123456789;
  one.best_val_loss = 0.1;
  one.seconds = 12.25;
  RunResult two{.name = "0002_lr=0.02", .values = {{"lr", 0.02}, {"data", nullptr}}, .state = RunState::failed};
  two.error = "the loss of iteration 3 is NaN";
  return {one, two};
}

}  // namespace

TEST_CASE("sweep results: figures of a run come from its folder") {
  const testing::TemporaryFolder folder;
  RunResult result;
  read_figures(folder / "none", result);
  CHECK_FALSE(result.iterations);
  CHECK_FALSE(result.val_loss);
  write(folder / "metrics.jsonl", R"({"event": "valid", "iteration": 0, "loss": 3.5}
{"event": "train", "iteration": 4, "loss": 0.125}
{"event": "valid", "iteration": 4, "loss": 0.25}
{"event": "valid", "iteration": 8, "loss": 0.5}
{"event": "valid", "iterat)");
  read_figures(folder.path(), result);
  CHECK(result.iterations == 8);
  CHECK(result.val_loss == 0.5);
  CHECK(result.best_val_loss == 0.25);
  CHECK_FALSE(result.seconds);
  std::ofstream(folder / "metrics.jsonl", std::ios::app)
      << "ion\": 9}\n{\"event\": \"valid\", \"iteration\": 12, \"loss\": null}\n";
  read_figures(folder.path(), result);
  CHECK(result.iterations == 12);
  CHECK_FALSE(result.val_loss);
  CHECK(result.best_val_loss == 0.25);
  read_figures(folder / "none", result);
  CHECK_FALSE(result.iterations);
  CHECK_FALSE(result.best_val_loss);
}

TEST_CASE("sweep results: a run is finished when its summary is of all its iterations") {
  const testing::TemporaryFolder folder;
  CHECK_FALSE(is_finished(folder.path()));
  write(folder / "config.json", R"({"num_iters": 8})");
  CHECK_FALSE(is_finished(folder.path()));
  write(folder / "summary.json", R"({"iterations": 4, "wall_seconds": 1.5})");
  CHECK_FALSE(is_finished(folder.path()));
  write(folder / "summary.json", R"({"iterations": 8, "wall_sec)");
  CHECK_FALSE(is_finished(folder.path()));
  write(folder / "summary.json", R"({"iterations": 8, "wall_seconds": 1.5})");
  CHECK(is_finished(folder.path()));
  RunResult result;
  result.seconds = 7;
  read_figures(folder.path(), result);
  CHECK(result.seconds == 1.5);
  fs::remove(folder / "config.json");
  CHECK_FALSE(is_finished(folder.path()));
}

TEST_CASE("sweep results: the table for people") {
  CHECK(to_table(two_results()) ==
        "run   lr    data   state     iterations  val_loss  best_val_loss  seconds  error\n"
        "0001  0.1   a,\"b\"  finished  20          0.123457  0.1            12.2\n"
        "0002  0.02  null   failed    -           -         -              -        the loss of iteration 3 is NaN\n"
        "smallest validation loss: 0.1, of 0001_lr=0.1\n");
}

TEST_CASE("sweep results: the best run is the first of those with the smallest loss, whatever its last loss is") {
  std::vector<RunResult> results = two_results();
  results.push_back(results[0]);
  results[2].name = "0003_lr=0.3";
  results[2].val_loss = 9;
  CHECK_THAT(to_table(results), testing::ContainsSubstring("smallest validation loss: 0.1, of 0001_lr=0.1\n"));
  results[2].best_val_loss = 0.05;
  CHECK_THAT(to_table(results), testing::ContainsSubstring("smallest validation loss: 0.05, of 0003_lr=0.3\n"));
  results = {results[1]};
  CHECK(to_table(results).find("smallest") == std::string::npos);
  results[0].error = "a \x1b[31mred\nword";
  CHECK_THAT(to_table(results), testing::ContainsSubstring("a \\x1b[31mred"));
  CHECK(std::ranges::count(to_table(results), '\n') == 2);
}

TEST_CASE("sweep results: the table for programs, with all digits") {
  const testing::TemporaryFolder folder;
  write_results(folder.path(), two_results());
  CHECK(read_file(folder / "results.csv") ==
        "run,lr,data,state,iterations,val_loss,best_val_loss,seconds,error\r\n"
        "0001_lr=0.1,0.1,\"a,\"\"b\"\"\",finished,20,0.123456789,0.1,12.25,\r\n"
        "0002_lr=0.02,0.02,,failed,,,,,the loss of iteration 3 is NaN\r\n");
  for (const auto& [error, cell] : {std::pair("no key \"x\"", "\"no key \"\"x\"\"\""),
                                    {"a, b", "\"a, b\""},
                                    {"a\nb", "\"a\nb\""},
                                    {"a b; c", "a b; c"}}) {
    std::vector<RunResult> failed = two_results();
    failed[1].error = error;
    fs::create_directories(folder / "failed");
    write_results(folder / "failed", failed);
    CHECK(read_file(folder / "failed/results.csv").ends_with(",failed,,,,," + std::string(cell) + "\r\n"));
  }
  const ordered_json runs = ordered_json::parse(read_file(folder / "results.json")).at("runs");
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].at("values") == ordered_json{{"lr", 0.1}, {"data", "a,\"b\""}});
  CHECK(runs[0].at("val_loss") == 0.123456789);
  CHECK(runs[0].at("error").is_null());
  CHECK(runs[1].at("state") == "failed");
  CHECK(runs[1].at("seconds").is_null());
  CHECK(runs[1].at("error") == "the loss of iteration 3 is NaN");
}
