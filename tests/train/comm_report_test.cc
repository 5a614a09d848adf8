// --comm-report says no where what was counted is not what was predicted.
#include "apps/train/comm_report.h"

#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// What the first of three ranks is told of three steps, in which the second one made `more` calls beyond the
// prediction. That one holds other weights, too.
std::string report_of(std::int64_t more) {
  std::vector<std::string> told(3);
  run_ranks({.ranks = 3}, [&](const Communicator& world) {
    CommLedger predicted, counted;
    predicted.add("world", Verb::all_reduce, 3, 24);
    const std::int64_t calls = 3 + (world.rank() == 1 ? more : 0);
    counted.add("world", Verb::all_reduce, calls, 8 * calls);
    const RankHolds holds{
        .weights = {.predicted = 100, .counted = 128 + world.rank() % 2}, .gradients = {}, .moments = {}};
    told[static_cast<std::size_t>(world.rank())] = report_traffic(predicted, counted, 3, holds, world);
  });
  CHECK((told[0] != told[1]) == (more != 0));  // the second one's own table differs
  return told[0];
}

}  // namespace

TEST_CASE("comm report: a rank that told others more than was predicted is named") {
  CHECK_THAT(report_of(0), testing::ContainsSubstring("on every rank the prediction is what was counted\n"));
  CHECK(report_of(0).starts_with("Communication of rank 0 in 3 steps, bytes of payload:\n"));
  for (const std::int64_t more : {1, -1}) {
    const std::string text = report_of(more);
    CHECK_THAT(text, testing::ContainsSubstring("the prediction is not what was counted on rank 1\n"));
    CHECK(text.find("on every rank") == std::string::npos);
    const std::string others = "gradients 0 (0 predicted, 0 of padding), moments 0 (0 predicted, 0 of padding)";
    CHECK(text.substr(text.find("Bytes held:\n")) ==
          "Bytes held:\nranks 0, 2: weights 128 (100 predicted, 28 of padding), " + others +
              "\nrank 1: weights 129 (100 predicted, 29 of padding), " + others);
  }
}

// Two pipelines of two places: ranks 0 and 1 are the first places, 2 and 3 the second ones.
TEST_CASE("comm report: how long each place of a pipeline is idle by its work, and waited in the mean of its ranks") {
  const auto told = [](const PipelineCut& cut, std::int64_t parts) {
    std::vector<std::string> texts(4);
    run_ranks({.ranks = 4}, [&](const Communicator& world) {
      const Parallel parallel = Parallel::start(world, {.dp = 2, .pp = 2}, "tp-cp-dp");
      const auto rank = static_cast<std::size_t>(world.rank());
      texts[rank] = report_pipeline(cut, parts, parallel, std::vector{0.1, 0.2, 0.5, 0.75}[rank]);
    });
    for (const std::string& text : texts) CHECK(text == texts[0]);
    return texts[0];
  };
  const PipelineCut even{.pieces = {{0, 2}, {2, 4}}, .work = {1, 1}};
  CHECK(told(even, 3) ==
        "Pipeline, 1 chunk, split balanced, 3 parts a step:\n"
        "place 0: idle for 25.0 % of a step by its work, waited for 15.0 % of the time in exchanges\n"
        "place 1: idle for 25.0 % of a step by its work, waited for 62.5 % of the time in exchanges");
  CHECK_THAT(told(even, 1), testing::ContainsSubstring(", 1 part a step:\nplace 0: idle for 50.0 % "));
  // The second place has three times the work: of one part it computes 9 of 12 units of time, and the first place 3.
  const PipelineTimeline uneven = predicted_timeline({.pieces = {{0, 1}, {1, 4}}, .work = {1, 3}}, 2, 1);
  CHECK(uneven.idle(0) == testing::Approx(0.75));
  CHECK(uneven.idle(1) == testing::Approx(0.25));
  CHECK(predicted_timeline({.pieces = {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, .work = {1, 1, 1, 1}}, 2, 2).ranks[0].size() ==
        8);  // two chunks of a rank, forward and backward of two parts
}

}  // namespace isobar
