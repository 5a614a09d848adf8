#include "data/random_order.h"

#include <algorithm>
#include <array>
#include <bit>
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

// NumPy's SeedSequence: spreads a seed over a pool of four words and draws words from the pool.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed) {
    const std::array<std::uint32_t, 2> entropy = {static_cast<std::uint32_t>(seed),
                                                  static_cast<std::uint32_t>(seed >> 32)};
    std::uint32_t factor = 0x43b0d7e5;
    const auto hash = [&factor](std::uint32_t value) { return hashed(value, factor, 0x931e8875); };
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < entropy.size() ? entropy[i] : 0);
    for (std::size_t from = 0; from < pool_.size(); ++from)
      for (std::size_t to = 0; to < pool_.size(); ++to)
        if (from != to) pool_[to] = mixed(pool_[to], hash(pool_[from]));
  }

  std::array<std::uint64_t, 4> four_words() const {
    std::array<std::uint64_t, 4> words{};
    std::uint32_t factor = 0x8b51f9dd;
    for (std::size_t i = 0; i < 8; ++i)
      words[i / 2] |= std::uint64_t{hashed(pool_[i % pool_.size()], factor, 0x58f38ded)} << (32 * (i % 2));
    return words;
  }

 private:
  static std::uint32_t hashed(std::uint32_t value, std::uint32_t& factor, std::uint32_t multiplier) {
    value ^= factor;
    factor *= multiplier;
    value *= factor;
    return value ^ (value >> 16);
  }
  static std::uint32_t mixed(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t value = 0xca01f9ddu * x - 0x4973f715u * y;
    return value ^ (value >> 16);
  }

  std::array<std::uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR 128/64), seeded as numpy.random.default_rng seeds it.
class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    const auto q = SeedSequence(seed).four_words();
    increment_ = (join(q[2], q[3]) << 1) | 1;
    step();
    state_ += join(q[0], q[1]);
    step();
  }

  // The low half of a 64-bit draw first, then the high half.
  std::uint32_t next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    step();
    const auto high = static_cast<std::uint64_t>(state_ >> 64), low = static_cast<std::uint64_t>(state_);
    const std::uint64_t draw = std::rotr(high ^ low, static_cast<int>(high >> 58));
    half_ = static_cast<std::uint32_t>(draw >> 32);
    has_half_ = true;
    return static_cast<std::uint32_t>(draw);
  }

  // Uniform in [0, most]: draws under a mask of ones until one fits.
  std::uint32_t up_to(std::uint32_t most) {
    const std::uint32_t mask = most == 0 ? 0 : ~0u >> std::countl_zero(most);
    for (;;) {
      const std::uint32_t draw = next32() & mask;
      if (draw <= most) return draw;
    }
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static Wide join(std::uint64_t high, std::uint64_t low) { return Wide{high} << 64 | low; }
  void step() { state_ = state_ * join(2549297995355413924u, 4865540595714422341u) + increment_; }

  Wide state_ = 0, increment_ = 0;
  std::uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace

std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed) {
  ISOBAR_CHECK(n >= 0 && n < (std::int64_t{1} << 32) / 20, "a random order of ", n, " samples is out of reach");
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> order = identity(n);
  for (std::int64_t i = 0; i + 1 < n; ++i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i + engine() % (n - i))]);
  return order;
}

std::vector<std::int64_t> numpy_permutation(std::int64_t n, std::uint64_t seed, std::int64_t draw) {
  ISOBAR_CHECK(n >= 0 && n < (std::int64_t{1} << 32), "a random order of ", n, " samples is out of reach");
  Pcg64 generator(seed);
  std::vector<std::int64_t> order;
  for (std::int64_t call = 0; call <= draw; ++call) {
    order = identity(n);
    for (std::int64_t i = n - 1; i > 0; --i)
      std::swap(order[static_cast<std::size_t>(i)], order[generator.up_to(static_cast<std::uint32_t>(i))]);
  }
  return order;
}

}  // namespace isobar
