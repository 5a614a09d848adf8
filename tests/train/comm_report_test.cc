// --comm-report says no where what was counted is not what was predicted.
#include "apps/train/comm_report.h"

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

}  // namespace isobar
