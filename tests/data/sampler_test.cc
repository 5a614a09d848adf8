// Orders equal PyTorch's; ranks share them without overlap.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "data/random_order.h"
#include "data/sampler.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using Order = std::vector<std::int64_t>;

namespace {

Order head(const Order& order, std::size_t n) {
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n)};
}

Order sorted(Order order) {
  std::ranges::sort(order);
  return order;
}

Order iota(std::int64_t n) {
  Order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

TEST_CASE("random order: torch.randperm, number by number") {
  CHECK(torch_randperm(10, 0) == Order{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
  CHECK(head(torch_randperm(10, 1), 8) == Order{5, 6, 1, 2, 0, 8, 9, 3});
  CHECK(head(torch_randperm(512, 0), 8) == Order{172, 137, 235, 159, 195, 269, 373, 115});
  CHECK(head(torch_randperm(37960, 0), 8) == Order{9844, 34438, 1743, 23596, 22031, 25164, 11793, 22823});
  CHECK(head(torch_randperm(37960, 1), 4) == Order{29165, 129, 3336, 4817});
  CHECK(sorted(torch_randperm(1000, 7)) == iota(1000));
  CHECK(torch_randperm(1, 3) == Order{0});
  CHECK(torch_randperm(0, 3).empty());
}

TEST_CASE("random order: what is too long is refused before memory is taken") {
  for (const std::int64_t n : {std::int64_t{-1}, std::int64_t{214748364}, std::int64_t{1} << 32})
    CHECK_THROWS_WITH(torch_randperm(n, 0), "a random order of " + std::to_string(n) + " samples is out of reach");
}

TEST_CASE("sampler: the order is a function of seed and epoch") {
  const Sampler alone(11, true, 5);
  const Order expected = torch_randperm(11, 5 + 3);
  CHECK(alone.order(3) == expected);
  CHECK(alone.order(3) != alone.order(4));
  CHECK(Sampler(11, false).order(7) == iota(11));
  CHECK(Sampler(0, true).order(0).empty());
}

TEST_CASE("sampler: an impossible count is refused") {
  CHECK_THROWS_WITH(Sampler(-1, true), "a sampler of -1 samples is impossible");
  CHECK(Sampler(0, true).order(0).empty());
  CHECK(Sampler(3, false, 5).order(7) == std::vector<std::int64_t>{0, 1, 2});
}
