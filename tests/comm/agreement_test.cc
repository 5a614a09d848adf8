// Ranks that have found different things, with ranks as threads.
#include "comm/agreement.h"

#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

TEST_CASE("agreement: the first rank that has found something else is named, and what") {
  const auto run = [](int rank, std::size_t changed) {
    run_ranks({.ranks = 3}, [&](const Communicator& world) {
      std::vector<Finding> findings{{"samples", "39"}, {"statistics", "0.5, 1.5"}, {"names of channels", "t2m"}};
      if (world.rank() >= rank) findings[changed].value += "x";
      check_agreement(world, findings);
    });
  };
  run(3, 0);
  CHECK_THROWS_WITH(
      run(1, 0),
      ContainsSubstring(": rank 1 has samples other than rank 0's: the same path may lead elsewhere on its host"));
  CHECK_THROWS_WITH(run(1, 1), ContainsSubstring("rank 1 has statistics other than rank 0's"));
  CHECK_THROWS_WITH(run(2, 2), ContainsSubstring("rank 2 has names of channels other than rank 0's"));
  check_agreement(Communicator(), std::vector<Finding>{{"samples", "1"}});
}
