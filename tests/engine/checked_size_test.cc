// Sizes that cannot be are refused by one sentence, before any memory is asked for.
#include "kernels/common/checked_size.h"

#include <vector>

#include "engine/parameters.h"
#include "engine/tensor.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

constexpr std::int64_t kHuge = std::int64_t{1} << 32;

TEST_CASE("products of sizes are refused where they overflow, in any order") {
  using Extents = std::vector<std::int64_t>;
  CHECK(product_of(Extents{}) == 1);
  CHECK(product_of(Extents{3, 0, 5}) == 0);
  CHECK(product_of(Extents{kHuge, kHuge >> 2, 1}) == std::int64_t{1} << 62);
  CHECK(product_of(Extents{INT64_MAX, 1}) == INT64_MAX);
  for (const Extents& impossible : {Extents{kHuge, kHuge >> 1},
                                    {kHuge, kHuge},
                                    {1, 3, 1LL << 48, 1LL << 16},
                                    {-1},
                                    {0, -1},
                                    {0, kHuge, kHuge},
                                    {kHuge, kHuge, 0}})
    CHECK_FALSE(product_of(impossible));
  CHECK(checked_product({2, 3}, "x") == 6);
  CHECK_THROWS_WITH(checked_product({kHuge, kHuge}, "file.h5: dataset fields"),
                    "file.h5: dataset fields has an impossible size: 4294967296 x 4294967296");
}

TEST_CASE("a tensor of an impossible size is refused") {
  CHECK_THROWS_WITH(numel_of({kHuge, kHuge}), ContainsSubstring("[4294967296, 4294967296]"));
  CHECK_THROWS_WITH(numel_of({2, -1}), ContainsSubstring("[2, -1]"));
  CHECK_THROWS_WITH(Tensor::empty({kHuge, kHuge >> 2}, DType::fp64, Device{}), ContainsSubstring("impossible size"));
  const Tensor x = Tensor::zeros({4}, DType::fp32, Device{});
  CHECK_THROWS_WITH(x.view({kHuge, kHuge, -1}), ContainsSubstring("impossible size"));
  CHECK(x.view({2, -1}).shape() == Shape{2, 2});
}

TEST_CASE("a slice beyond the end of a tensor is refused") {
  const Tensor x = Tensor::zeros({2, 3}, DType::fp32, Device{});
  CHECK(x.slice(4, {2}).numel() == 2);
  CHECK_THROWS_WITH(x.slice(5, {2}), ContainsSubstring("[2, 3]"));
  CHECK_THROWS_WITH(x.slice(0, {7}), ContainsSubstring("[2, 3]"));
  CHECK_THROWS_WITH(x.slice(-1, {1}), ContainsSubstring("[2, 3]"));
  CHECK_THROWS_WITH(x.slice(INT64_MAX, {1}), ContainsSubstring("[2, 3]"));
}

TEST_CASE("a model that no machine holds is refused before it is made") {
  const auto allocate = [](Shape shape, int count) {
    Parameters parameters;
    for (int i = 0; i < count; ++i) parameters.add({.names = {"w" + std::to_string(i)}, .shape = shape, .init = {}});
    parameters.allocate(DType::fp32, Device{}, 0);
  };
  CHECK_THROWS_WITH(allocate({std::int64_t{1} << 61, std::int64_t{1} << 61}, 1), ContainsSubstring("impossible size"));
  CHECK_THROWS_WITH(allocate({std::int64_t{1} << 58}, 3), ContainsSubstring("w2") && ContainsSubstring("too large"));
  const auto most = static_cast<std::int64_t>(machine_memory_bytes() / 20);  // 20 bytes each while they are filled
  CHECK_THROWS_WITH(allocate({most + 64}, 1), ContainsSubstring("the model is too large"));
  const auto half = static_cast<std::int64_t>(machine_memory_bytes() / 28);  // the second one needs 8 bytes each
  CHECK_THROWS_WITH(allocate({half + 64}, 2), ContainsSubstring("the model is too large"));
}

}  // namespace
}  // namespace isobar
