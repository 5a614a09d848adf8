// The mesh of ranks.
#include "comm/mesh.h"

#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

TEST_CASE("the rank map follows the order string") {
  const RankMap map({.dp = 8, .tp = 2, .cp = 2}, "tp-cp-dp");
  using Groups = std::vector<std::vector<std::int64_t>>;
  CHECK(map.world_size() == 32);
  CHECK(map.groups(map.axes()[0]).front() == std::vector<std::int64_t>{0, 1});
  CHECK(map.groups(map.axes()[1]).front() == std::vector<std::int64_t>{0, 2});
  CHECK(map.groups(map.axes()[2]).front() == std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 28});
  const RankMap other({.dp = 3, .tp = 2}, "dp-tp");
  CHECK(other.groups(other.axes()[0]) == Groups{{0, 1, 2}, {3, 4, 5}});
  CHECK(other.groups(other.axes()[1]) == Groups{{0, 3}, {1, 4}, {2, 5}});
  CHECK(RankMap::coordinate(other.axes()[1], 4) == 1);
  CHECK(RankMap({}, "tp-cp-pp-dp").world_size() == 1);
  CHECK_THROWS_WITH(RankMap({.dp = 2}, "tp-cp"), ContainsSubstring("leaves out dp"));
  CHECK_THROWS_WITH(RankMap({}, "tp-tp"), ContainsSubstring("'tp'"));
  CHECK_THROWS_WITH(RankMap({}, "tp-ep"), ContainsSubstring("'ep'"));
  CHECK_THROWS_WITH(RankMap({.dp = 0}, "dp"), ContainsSubstring("dp"));
}
