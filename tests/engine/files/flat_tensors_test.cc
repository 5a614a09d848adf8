// Where a tensor lies in a buffer that holds ranges of the parameters' layout.
#include "engine/files/flat_tensors.h"

#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("flat tensors: what a buffer holds of a tensor is one range, or an error") {
  const NamedParameter w{
      .name = "w", .shape = {2, 5}, .offset = 20, .full_shape = {2, 5}, .shard = {.begin = 0, .end = 2}};
  const auto part = [&](std::vector<FlatRange> held) { return held_part({"m.", Tensor(), std::move(held)}, w); };
  const HeldPart all = part({});
  CHECK((all.first == 0 && all.end == 10 && all.at == 20));
  const HeldPart middle = part({{3, 10}, {22, 25}, {30, 40}});
  CHECK((middle.first == 2 && middle.end == 5 && middle.at == 7));
  CHECK(part({{0, 20}, {30, 40}}).size() == 0);
  CHECK_THROWS_WITH(part({{3, 10}, {18, 22}, {25, 40}}), "tensor m.w is held in more than one range");
}
