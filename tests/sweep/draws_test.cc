// The numbers that a sweep draws: the same on every machine, within their bounds, and each parameter's own.
#include "apps/sweep/draws.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("sweep draws: bits of a seed, a name and a draw are those of another program") {
  // XXH64 and Philox 4x32-10 written anew in Python
  const std::vector<std::uint32_t> lr{0x72e4e054, 0xcc5eb308, 0xcde0eb46, 0x385cfcd7, 0x2bd1874, 0x7d9a8f10};
  const std::vector<std::uint32_t> decay{0x1410386f, 0xc669e16a, 0xe44b2555, 0xc8030838, 0x304663a3, 0x559fcc3e};
  for (std::uint64_t draw = 0; draw < lr.size(); ++draw) {
    CHECK(drawn_bits(7, "lr", draw) == lr[draw]);
    CHECK(drawn_bits(7, "weight_decay", draw) == decay[draw]);
  }
  CHECK(drawn_bits(8, "lr", 0) != lr[0]);
}

TEST_CASE("sweep draws: values are these, to the last bit") {
  constexpr std::uint32_t kBits = 0x72e4e054;
  CHECK(uniform_of(kBits, -1, 3) == 0x1.972702ap-1);
  CHECK(log_uniform_of(kBits, 1e-4, 1e-2) == 0x1.9e2bc575528c7p-11);
  CHECK(log_uniform_of(kBits, 1e-4, 1e-2) == testing::Approx(1e-4 * std::pow(100, kBits * 0x1p-32)).epsilon(1e-14));
  CHECK(index_of(kBits, 7) == 3);
}

TEST_CASE("sweep draws: bounds hold, also of the largest numbers") {
  for (const std::uint32_t bits : {0u, 1u, 0x80000000u, 0xffffffffu}) {
    for (const auto& [low, high] : {std::pair(-1e308, 1.7e308), std::pair(0.1, 0.1 + 1e-16), std::pair(0., 5e-324)}) {
      CHECK(uniform_of(bits, low, high) >= low);
      CHECK(uniform_of(bits, low, high) <= high);
    }
    for (const auto& [low, high] : {std::pair(5e-324, 1.7e308), std::pair(1., 1. + 1e-15)}) {
      CHECK(log_uniform_of(bits, low, high) >= low);
      CHECK(log_uniform_of(bits, low, high) <= high);
    }
    CHECK(index_of(bits, 3) < 3);
    CHECK(index_of(bits, std::uint64_t{1} << 32) == bits);
  }
  CHECK(uniform_of(0, -2, 5) == -2);
  CHECK(log_uniform_of(0, 3, 5) == 3);
  CHECK(log_uniform_of(0x80000000u, 2, 32) == 8);
}

TEST_CASE("sweep draws: every number of a list comes, and no part of an interval is left out") {
  std::vector<int> counts(5), tenths(10);
  for (std::uint64_t draw = 0; draw < 2000; ++draw) {
    const std::uint32_t bits = drawn_bits(3, "depth", draw);
    ++counts[index_of(bits, counts.size())];
    ++tenths[static_cast<std::size_t>(uniform_of(bits, 0, 10))];
  }
  for (const int count : counts) CHECK(std::abs(count - 400) < 90);  // 5 standard deviations
  for (const int count : tenths) CHECK(std::abs(count - 200) < 67);
}
