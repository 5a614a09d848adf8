#include "data/random_order.h"

#include <numeric>
#include <random>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

std::vector<std::int64_t> identity(std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed) {
  ISOBAR_CHECK(n >= 0 && n < (std::int64_t{1} << 32) / 20, "a random order of ", n, " samples is out of reach");
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> order = identity(n);
  for (std::int64_t i = 0; i + 1 < n; ++i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i + engine() % (n - i))]);
  return order;
}

}  // namespace isobar
