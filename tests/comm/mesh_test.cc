// The mesh of ranks.
#include "comm/mesh.h"

#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

using Groups = std::vector<std::vector<std::int64_t>>;

TEST_CASE("the mesh follows the order string") {
  const Mesh mesh({.dp = 8, .tp = 2, .cp = 2}, "tp-cp-dp");
  CHECK(mesh.world_size() == 32);
  CHECK(mesh.groups(mesh.axes()[0].name).front() == std::vector<std::int64_t>{0, 1});
  CHECK(mesh.groups(mesh.axes()[1].name).front() == std::vector<std::int64_t>{0, 2});
  CHECK(mesh.groups(mesh.axes()[2].name).front() == std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 28});
  const Mesh other({.dp = 3, .tp = 2}, "dp-tp");
  CHECK(other.groups(other.axes()[0].name) == Groups{{0, 1, 2}, {3, 4, 5}});
  CHECK(other.groups(other.axes()[1].name) == Groups{{0, 3}, {1, 4}, {2, 5}});
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
    CHECK(mesh.groups(axis.name) == std::vector<std::vector<std::int64_t>>{{0}});
  }
  CHECK(names == std::vector<std::string>{"tp", "cp", "dp"});
}

TEST_CASE("mesh: groups over several axes, and what each rank holds") {
  const Mesh mesh({.dp = 2, .tp = 2, .cp = 3}, "tp-cp-dp");
  CHECK(mesh.group_of(4, "dp-cp") == std::vector<std::int64_t>{0, 2, 4, 6, 8, 10});
  CHECK(mesh.group_of(4, "tp-cp") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(mesh.groups("cp-dp") == Groups{{0, 2, 4, 6, 8, 10}, {1, 3, 5, 7, 9, 11}});
  CHECK(mesh.group_of(7, "pp") == std::vector<std::int64_t>{7});
  CHECK(mesh.coordinate("cp", 9) == 1);
  CHECK(mesh.coordinate("pp", 9) == 0);

  CHECK(part_of(45, 0, 4) == Part{0, 12});
  CHECK(part_of(45, 1, 4) == Part{12, 23});
  CHECK(part_of(45, 3, 4) == Part{34, 45});
  CHECK(part_of(2, 2, 3) == Part{2, 2});
}
