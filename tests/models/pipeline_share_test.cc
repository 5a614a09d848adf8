// The pieces of a network that the ranks of a pipeline have: as people read them, and what cannot be one.
#include "models/pipeline_share.h"

#include <string>

#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// Ten stages in four pieces; the last piece has no block.
PipelineCut four_pieces() {
  return {.pieces = {{0, 3}, {3, 4}, {4, 9}, {9, 10}},
          .work = {2.5e9, 1.2344e9, 1.2656e9, 5e9},
          .blocks = {{0, 2}, {2, 3}, {3, 7}, {7, 7}}};
}

}  // namespace

TEST_CASE("pipeline share: each piece is told with its place, its stages, its blocks and its part of the work") {
  CHECK(to_text(four_pieces(), 4) ==
        "  place 0: stages 0-2, 2 blocks, 2.500 Gflop a sample, 25.0 % of the network\n"
        "  place 1: stages 3-3, 1 block, 1.234 Gflop a sample, 12.3 % of the network\n"
        "  place 2: stages 4-8, 4 blocks, 1.266 Gflop a sample, 12.7 % of the network\n"
        "  place 3: stages 9-9, 0 blocks, 5.000 Gflop a sample, 50.0 % of the network\n");
  // The shares are of the work alone, however little it is.
  CHECK(to_text({.pieces = {{0, 1}, {1, 2}}, .work = {1, 3}, .blocks = {{0, 1}, {1, 2}}}, 2) ==
        "  place 0: stages 0-0, 1 block, 0.000 Gflop a sample, 25.0 % of the network\n"
        "  place 1: stages 1-1, 1 block, 0.000 Gflop a sample, 75.0 % of the network\n");
}

TEST_CASE("pipeline share: of several chunks a rank each is told with its number, one after the other") {
  const auto begins = [](std::int64_t ranks) {
    std::string places;
    const std::string text = to_text(four_pieces(), ranks);
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      places += text.substr(at, text.find(": stages", at) - at) + ";";
    return places;
  };
  CHECK(begins(4) == "  place 0;  place 1;  place 2;  place 3;");
  CHECK(begins(2) == "  place 0, chunk 0;  place 1, chunk 0;  place 0, chunk 1;  place 1, chunk 1;");
  CHECK(begins(1) == "  place 0, chunk 0;  place 0, chunk 1;  place 0, chunk 2;  place 0, chunk 3;");
}

TEST_CASE("pipeline share: what goes over is one tensor, the sum of the stream and its branch") {
  Tensor x = Tensor::empty({2, 2}, DType::fp64, Device{}), branch = Tensor::empty({2, 2}, DType::fp64, Device{});
  x.set_values({1, 2, 3, 4});
  branch.set_values({10, 20, 30, 40});
  CHECK(joined_stream({x}).data() == x.data());
  CHECK(joined_stream({x, Tensor()}).data() == x.data());
  CHECK(joined_stream({x, branch}).to_vector() == std::vector<double>{11, 22, 33, 44});
  CHECK(split_stream(x).size() == 2);
  CHECK(split_stream(x)[0].data() == x.data());
  CHECK_FALSE(split_stream(x)[1].defined());
  CHECK(testing::error_of([&] {
          joined_stream({x, x, branch});
        }) == "a pipeline passes on one tensor, and a stage gives 3");
  CHECK(testing::error_of([] { joined_stream({}); }) == "a pipeline passes on one tensor, and a stage gives 0");
}

}  // namespace isobar
