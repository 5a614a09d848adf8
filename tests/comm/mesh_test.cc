// The mesh of ranks.
#include "comm/mesh.h"

#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

TEST_CASE("the mesh follows the order string") {
  const Mesh mesh({.dp = 8, .tp = 2, .cp = 2}, "tp-cp-dp");
  using Groups = std::vector<std::vector<std::int64_t>>;
  CHECK(mesh.world_size() == 32);
  CHECK(mesh.groups(mesh.axes()[0]).front() == std::vector<std::int64_t>{0, 1});
  CHECK(mesh.groups(mesh.axes()[1]).front() == std::vector<std::int64_t>{0, 2});
  CHECK(mesh.groups(mesh.axes()[2]).front() == std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 28});
  const Mesh other({.dp = 3, .tp = 2}, "dp-tp");
  CHECK(other.groups(other.axes()[0]) == Groups{{0, 1, 2}, {3, 4, 5}});
  CHECK(other.groups(other.axes()[1]) == Groups{{0, 3}, {1, 4}, {2, 5}});
  CHECK(Mesh::coordinate(other.axes()[1], 4) == 1);
  CHECK(Mesh({}, "tp-cp-pp-dp").world_size() == 1);
  CHECK_THROWS_WITH(Mesh({.dp = 2}, "tp-cp"), ContainsSubstring("leaves out dp"));
  CHECK_THROWS_WITH(Mesh({}, "tp-tp"), ContainsSubstring("'tp'"));
  CHECK_THROWS_WITH(Mesh({}, "tp-ep"), ContainsSubstring("'ep'"));
  CHECK_THROWS_WITH(Mesh({.dp = 0}, "dp"), ContainsSubstring("dp"));
}

TEST_CASE("a mesh of one rank has every axis, of size 1") {
  const Mesh mesh = Mesh::single();
  CHECK(mesh.world_size() == 1);
  std::vector<std::string> names;
  for (const Mesh::Axis& axis : mesh.axes()) {
    names.push_back(axis.name);
    CHECK(axis.size == 1);
    CHECK(Mesh::coordinate(axis, 0) == 0);
    CHECK(mesh.groups(axis) == std::vector<std::vector<std::int64_t>>{{0}});
  }
  CHECK(names == std::vector<std::string>{"tp", "cp", "dp"});
}
