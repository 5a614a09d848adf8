// Bands of rows over context-parallel ranks: what a rank holds of a pass, and what cannot be dealt. That a training is
// the one of one rank: parallel_test.cc.
#include <algorithm>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "engine/storage.h"
#include "models/classification/classifier.h"
#include "models/vit/recipe.h"
#include "tests/harness/findings.h"
#include "tests/harness/layouts.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::Layout;
using testing::TrainingSetup;

}  // namespace

TEST_CASE("context parallel: a rank with half of a picture holds at most six tenths of the activations") {
  const auto peak_on = [](const Layout& layout, const Communicator& world) {
    const OwnMemoryLedger memory;
    const TrainingSetup setup{.updates = 1};
    testing::RankTraining(setup, layout, setup.samples, world).train();
    const std::vector<MemoryUse> uses = memory_use();
    const auto activations = std::ranges::find(uses, "activations", &MemoryUse::tag);
    return static_cast<double>(activations->peak_bytes);
  };
  const double serial = peak_on({}, {});
  for (const Layout& layout : testing::forms_of(1, 1, 2)) {
    testing::Findings findings;
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      const double part = static_cast<double>(part_of(9, world.rank(), 2).size()) / 9;  // 5 or 4 rows of 9
      const double held = peak_on(layout, world) / serial;
      findings.expect(held <= 1.2 * part, concat("a rank with ", part, " of the rows holds ", held));
    });
    INFO(to_text(layout));
    CHECK(findings.wrong() == "");
  }
}

TEST_CASE("context parallel: what cannot be dealt is refused") {
  const auto make = [](const TrainingSetup& setup, const Layout& layout) {
    run_ranks({.ranks = layout.ranks()},
              [&](const Communicator& world) { testing::RankTraining(setup, layout, setup.samples, world); });
  };
  CHECK_THROWS_WITH(make({}, {.cp = 10, .form = ContextForm::gather}),
                    ContainsSubstring("context parallel: 18 rows in patches of 2 are 9 rows of patches, and each of 10 "
                                      "ranks needs one"));
  CHECK_THROWS_WITH(make({.heads = 2}, {.cp = 3, .form = ContextForm::all_to_all}),
                    ContainsSubstring("deals 2 heads over 3 ranks, of which each needs one"));
  CHECK_THROWS_WITH(run_ranks({.ranks = 2},
                              [](const Communicator& world) {
                                const Parallel parallel = Parallel::start(world, {.cp = 2}, "cp-dp");
                                const VitOptions vit{.embed_dim = 16, .depth = 1, .num_heads = 2, .patch_size = 2};
                                const Classifier classifier(std::make_shared<VitRecipe>(vit), {},
                                                            {.height = 4, .width = 4, .classes = 2}, Device{},
                                                            parallel);
                              }),
                    ContainsSubstring("context parallel: a classifier's head reads every token of an image, and cannot "
                                      "be dealt over 2 ranks"));
}

}  // namespace isobar
