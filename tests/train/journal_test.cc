// What a run tells about itself, number by number: metrics.jsonl, out.log and TensorBoard say the same.
#include "apps/train/journal.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/train/config.h"
#include "engine/files/reader.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensorboard_events.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// A run's folder and what is in it.
class Told {
 public:
  Told() : run_(path_ / "run", ExistingRun::refuse) {
    run_.console = [](std::string_view) {};
    RunConfig defaults;
    run_.prepare(to_json(defaults));
  }
  const RunFolder& run() const { return run_; }
  std::vector<ordered_json> lines() const {
    std::ifstream file(path_ / "run/metrics.jsonl");
    std::vector<ordered_json> result;
    for (std::string line; std::getline(file, line);) result.push_back(ordered_json::parse(line));
    return result;
  }
  std::string log() const { return read_file(path_ / "run/out.log"); }
  fs::path board() const { return *fs::directory_iterator(run_.logs()); }
  testing::TensorBoardEvents events() const { return testing::TensorBoardEvents(board()); }

 private:
  testing::TemporaryFolder path_;
  RunFolder run_;
};

struct GivenMetrics : Metrics {
  explicit GivenMetrics(Report given) : given_(std::move(given)) {}
  void begin() override {}
  std::vector<std::span<double>> sums() override { return {}; }
  double loss() const override { return 0.125; }
  Report report(DataSplit) const override { return given_; }

 private:
  Report given_;
};

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("journal: a line of training has the step's numbers, and no norm of a step that was left out") {
  const Told told;
  Journal journal(told.run(), {4, false, "fp32"}, std::nullopt);
  Tally since;
  const StepResult step{.loss = 0.5, .lr = 0.25, .grad_norm = 3, .loss_scale = 64, .data_seconds = 0.125};
  since.add(step, 0.5);
  since.add({.loss = 1.5}, 1.5);
  CHECK(since.mean_loss() == 1);
  journal.train(7, 2, step, since);
  StepResult left_out = step;
  left_out.applied = false;
  journal.train(8, 2, left_out, since);
  const ordered_json expected{{"event", "train"},      {"iteration", 7},  {"epoch", 2},
                              {"loss", 0.5},           {"lr", 0.25},      {"samples_per_second", 4.0},
                              {"data_seconds", 0.125}, {"grad_norm", 3.0}};
  REQUIRE(told.lines().size() == 2);
  CHECK(told.lines()[0] == expected);
  CHECK(!told.lines()[1].contains("grad_norm"));
  const auto scalars = told.events().scalars;
  CHECK(scalars == decltype(scalars){{{"Iteration/loss", 7}, 0.5f},
                                     {{"Iteration/learning rate", 7}, 0.25f},
                                     {{"Iteration/gradient norm", 7}, 3.f},
                                     {{"Iteration/loss", 8}, 0.5f},
                                     {{"Iteration/learning rate", 8}, 0.25f}});
}

TEST_CASE("journal: samples a second are those that were there") {
  Tally tally;
  CHECK(tally.samples_per_second(8) == 0);
  tally.add({.loss = 1, .missing = 0}, 0.5);
  CHECK(tally.samples_per_second(8) == 16);
  tally.add({.loss = 1, .missing = 6}, 0.5);  // an epoch's last batch has 2 of 8
  CHECK(tally.samples_per_second(8) == 10);
}

TEST_CASE("journal: the loss scale is told where there is one") {
  const Told told;
  Journal journal(told.run(), {1, true, "fp16"}, std::nullopt);
  journal.train(1, 1, {.loss_scale = 64}, {});
  CHECK(told.lines().at(0).at("loss_scale") == 64);
  CHECK(told.lines().at(0).at("samples_per_second") == 0);  // no time has passed
  CHECK(told.events().scalars.at({"Iteration/loss scale", 1}) == 64);
}

TEST_CASE("journal: the end of an epoch is told in words and under the tutorial's tags") {
  const Told told;
  Journal journal(told.run(), {4, false, "fp32"}, std::nullopt);
  journal.initial_loss(2);
  journal.epoch_end(10, 3, {.iterations = 5, .seconds = 2, .data_seconds = 0.5, .loss = 10}, 0.125);
  CHECK_THAT(told.log(), ContainsSubstring("Time taken for epoch 3 is 2.000000 sec, avg 10.000000 samples/sec\n"));
  CHECK_THAT(told.log(), ContainsSubstring("  Avg train loss=2.000000\n"));
  CHECK_THAT(told.log(), ContainsSubstring("  Waited for data: 0.5 sec\n"));
  const auto scalars = told.events().scalars;
  CHECK(scalars == decltype(scalars){{{"Loss/train", 0}, 2.f},
                                     {{"Loss/train", 10}, 2.f},
                                     {{"Learning Rate", 10}, 0.125f},
                                     {{"Avg iters per sec", 10}, 2.5f},
                                     {{"Avg samples per sec", 10}, 10.f},
                                     {{"Seconds waited for data", 10}, 0.5f}});
}

TEST_CASE("journal: a validation's figures are in all places, its charts once") {
  const Told told;
  Journal journal(told.run(), {}, std::nullopt);
  Report report{.line = {{"rmse", "t2m", 0.5}, {"rmse", "u10", 0.25}, {"acc", "", 0.75}},
                .summary = {},
                .scalars = {{"RMSE/t2m", 0.5}},
                .charts = {{"group", "title", {"RMSE/t2m"}}},
                .sentence = "half of it",
                .table = ""};
  const GivenMetrics metrics(report);
  for (const std::int64_t iteration : {4, 8, 12}) journal.valid(iteration, 2, {.valid = &metrics}, 1.5);
  REQUIRE(told.lines().size() == 3);
  CHECK(told.lines()[1] == ordered_json{{"event", "valid"},
                                        {"iteration", 8},
                                        {"epoch", 2},
                                        {"loss", 0.125},
                                        {"rmse", {{"t2m", 0.5}, {"u10", 0.25}}},
                                        {"acc", 0.75}});
  for (const char* line : {"  Avg val loss=0.125\n", "  half of it\n", "  Total validation time: 1.5 sec\n"})
    CHECK(count(told.log(), line) == 3);
  CHECK(told.events().scalars.at({"Loss/valid", 8}) == 0.125f);
  CHECK(told.events().scalars.at({"RMSE/t2m", 12}) == 0.5f);
  CHECK(count(read_file(told.board()), "custom_scalars__config__") == 1);
}

TEST_CASE("journal: a picture is a file and an image, and one that cannot be written ends no run") {
  const Told told;
  Journal journal(told.run(), {}, std::nullopt);
  const Image small(2, 3);
  journal.pictures(12, {{"maps/t2m", small, "t2m", small}});
  CHECK(fs::exists(told.run().images() / "t2m_00000012.png"));
  CHECK(told.events().images.contains({"maps/t2m", 12}));
  fs::remove_all(told.run().images());
  std::ofstream(told.run().images());
  journal.pictures(13, {{"maps/t2m", small, "t2m", small}});
  CHECK(told.events().images.contains({"maps/t2m", 13}));
}

TEST_CASE("journal: the config is a table for readers of TensorBoard") {
  const Told told;
  Journal journal(told.run(), {}, std::nullopt);
  journal.config({{"depth", 12}, {"task", "forecast"}}, 5);
  CHECK_THAT(read_file(told.board()), ContainsSubstring("| key | value |\n|---|---|\n| depth | `12` |\n"
                                                        "| task | `\"forecast\"` |\n"));
}

namespace {

// A report under these names: "NAME_line" in metrics.jsonl, "NAME_summary" in the summary, and so on.
GivenMetrics judged_as(const std::string& name) {
  return GivenMetrics({.line = {{name + "_line", "a", 1}, {name + "_line", "b", 2}},
                       .summary = {{name + "_summary", "", 3}},
                       .scalars = {{name + "/scalar", 4}},
                       .charts = {{name, "title", {name + "/scalar"}}},
                       .sentence = name + " in words",
                       .table = "table of " + name});
}

}  // namespace

TEST_CASE("journal: what a validation judges besides stands behind its own figures, in all places") {
  const Told told;
  Journal journal(told.run(), {}, std::nullopt);
  const GivenMetrics valid = judged_as("valid"), also = judged_as("leads");
  journal.valid(4, 2, {.valid = &valid, .also = &also}, 1.5);
  CHECK(told.lines().at(0) == ordered_json{{"event", "valid"},
                                           {"iteration", 4},
                                           {"epoch", 2},
                                           {"loss", 0.125},
                                           {"valid_line", {{"a", 1.0}, {"b", 2.0}}},
                                           {"leads_line", {{"a", 1.0}, {"b", 2.0}}}});
  CHECK_THAT(told.log(), ContainsSubstring("  valid in words; leads in words\n"));
  CHECK(told.events().scalars.at({"valid/scalar", 4}) == 4);
  CHECK(told.events().scalars.at({"leads/scalar", 4}) == 4);
  CHECK_THAT(read_file(told.board()), ContainsSubstring("^valid/scalar$") && ContainsSubstring("^leads/scalar$"));
  CHECK(ValidationMetrics{.valid = &valid, .also = &also}.report().table == "table of valid\ntable of leads");
  CHECK(ValidationMetrics{.valid = &valid, .also = &also}.report().summary.size() == 2);
  CHECK(ValidationMetrics{.valid = nullptr, .also = &also}.report().summary.empty());
}

TEST_CASE("journal: the summary has every result under its key, and the log the tables") {
  const Told told;
  const testing::TinyClassifier classifier(std::string({0, 1, 2, 0, 1, 2, 0}));
  testing::TinyRank rank(classifier);
  Journal journal(told.run(), {.precision = "bf16"}, std::nullopt);
  const GivenMetrics valid = judged_as("valid"), test = judged_as("test");
  Journal::Result result{.iterations = 14,
                         .train_loss = 0.25,
                         .samples_per_second = 30,
                         .data_seconds = 0.5,
                         .wall_seconds = 9,
                         .largest_rank_bytes = 4096,
                         .layout = {{"dp", 2}, {"tp", 3}},
                         .test = &test,
                         .test_iteration = 12,
                         .test_is_of_best = false};
  const auto summary = [&](const ValidationMetrics& metrics) {
    journal.summary(result, metrics, rank.task());
    return told.run().read_summary();
  };
  CHECK(summary({.valid = &valid}).dump() == ordered_json{{"device", "cpu"},
                                                          {"precision", "bf16"},
                                                          {"parameters", rank.task().parameters().count()},
                                                          {"iterations", 14},
                                                          {"train_loss", 0.25},
                                                          {"val_loss", 0.125},
                                                          {"valid_summary", 3.0},
                                                          {"samples_per_second", 30.0},
                                                          {"data_seconds", 0.5},
                                                          {"peak_memory_bytes", 4096},
                                                          {"wall_seconds", 9.0},
                                                          {"layout", {{"dp", 2}, {"tp", 3}}},
                                                          {"test_loss", 0.125},
                                                          {"test_summary", 3.0},
                                                          {"test_iteration", 12}}
                                                 .dump());
  const std::string log = told.log();
  const std::string of_test = "test loss 0.125, with the last weights, of iteration 12\n";
  CHECK_THAT(log, ContainsSubstring("- INFO - table of valid\n") && ContainsSubstring("- INFO - " + of_test) &&
                      ContainsSubstring("- INFO - table of test\n"));
  CHECK(log.find("table of valid") < log.find(of_test));
  CHECK(log.find(of_test) < log.find("table of test"));

  // Of a run without validation, whose test is of the best weights of an iteration that is not known.
  result.test_is_of_best = true;
  result.test_iteration = -1;
  result.largest_rank_bytes = std::nullopt;
  const auto resident = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return 1024 * static_cast<std::int64_t>(usage.ru_maxrss);
  };
  const std::int64_t before = resident();
  const ordered_json other = summary({});
  CHECK(other.at("val_loss").is_null());
  CHECK_FALSE(other.contains("valid_summary"));
  CHECK_FALSE(other.contains("test_iteration"));
  CHECK(other.at("peak_memory_bytes").get<std::int64_t>() >= before);
  CHECK(other.at("peak_memory_bytes").get<std::int64_t>() <= resident());
  CHECK_THAT(told.log(), ContainsSubstring("test loss 0.125, with the best weights\n"));
  CHECK(count(told.log(), "table of valid") == 1);
  result.test = nullptr;
  const ordered_json untested = summary({});
  for (const auto& [key, value] : untested.items()) CHECK_FALSE(key.starts_with("test"));
}

TEST_CASE("journal: seconds and losses of iterations add up, and what they lacked") {
  Tally tally;
  CHECK(tally.mean_loss() == 0);
  CHECK(tally.iterations_per_second() == 0);
  tally.add({.loss = 1, .data_seconds = 0.25, .missing = 2, .uncounted = 3}, 0.5);
  tally.add({.loss = 2, .data_seconds = 0.5, .missing = 1, .uncounted = 4}, 1.5);
  CHECK(tally.iterations == 2);
  CHECK(tally.seconds == 2);
  CHECK(tally.data_seconds == 0.75);
  CHECK(tally.missing == 3);
  CHECK(tally.uncounted == 7);
  CHECK(tally.mean_loss() == 1.5);
  CHECK(tally.iterations_per_second() == 1);
}
