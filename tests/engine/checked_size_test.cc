// Sizes that cannot be are refused by one sentence, before any memory is asked for.
#include "kernels/common/checked_size.h"

#include <vector>

#include "engine/parameters.h"
#include "engine/storage.h"
#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "tests/harness/error_of.h"
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

TEST_CASE("a model that is too large is told with all the memory that it would need") {
  static constexpr std::int64_t kMany = std::int64_t{1} << 50;
  const auto refusal = [](int tensors, DType activation, bool is_frozen = false) {
    Parameters parameters;
    for (int i = 0; i < tensors; ++i)
      parameters.add({.names = {"w" + std::to_string(i)}, .shape = {kMany / tensors}, .init = {}});
    if (is_frozen) parameters.freeze_all();
    return testing::error_of([&] { parameters.allocate(activation, Device{}, 0); });
  };
  // `bytes` of each parameter, of 2^20 GiB.
  const auto sentence = [](std::int64_t bytes) {
    return concat("the model is too large: its ", kMany, " parameters need ", bytes << 20,
                  ".0 GiB of memory, and this machine has ", text_of_bytes(machine_memory_bytes()));
  };
  // Weights, their gradients, and while they are filled the values of the largest tensor in fp64 and in their dtype.
  CHECK(refusal(1, DType::fp32) == sentence(4 + 4 + 8 + 4));
  CHECK(refusal(2, DType::fp32) == sentence(4 + 4 + (8 + 4) / 2));
  CHECK(refusal(1, DType::fp64) == sentence(8 + 8 + 8 + 8));
  CHECK(refusal(1, DType::bf16) == sentence(4 + 2 + 4 + 8 + 4));  // and copies in 16 bits
  CHECK(refusal(1, DType::fp32, true) == sentence(4 + 8 + 4));
}

}  // namespace
}  // namespace isobar
