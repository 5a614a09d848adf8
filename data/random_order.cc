#include "data/random_order.h"

#include <array>
#include <bit>
#include <numeric>
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

// Draws j from 0 to i by cutting 32 bits to those that i has, and drawing again while j > i.
template <class T>
void NumpyRandomState::shuffle_any(std::span<T> values) {
  ISOBAR_CHECK(values.size() < std::uint64_t{1} << 32, "a random order of ", values.size(), " values is out of reach");
  for (std::size_t i = values.size(); i-- > 1;) {
    const std::uint32_t mask = ~std::uint32_t{0} >> std::countl_zero(static_cast<std::uint32_t>(i));
    std::uint32_t j = 0;
    do {
      j = static_cast<std::uint32_t>(engine_()) & mask;
    } while (j > i);
    std::swap(values[i], values[j]);
  }
}

void NumpyRandomState::shuffle(std::span<std::int32_t> values) {
  shuffle_any(values);
}

void NumpyRandomState::shuffle(std::span<std::uint32_t> values) {
  shuffle_any(values);
}

namespace {

// NumPy's SeedSequence of one 32-bit number: a pool of four words, each stirred with each, and eight words out of it.
class SeedWords {
 public:
  explicit SeedWords(std::uint32_t seed) {
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hashed(i == 0 ? seed : 0);
    for (std::size_t from = 0; from < pool_.size(); ++from)
      for (std::size_t to = 0; to < pool_.size(); ++to)
        if (from != to) pool_[to] = mixed(pool_[to], hashed(pool_[from]));
  }

  std::array<std::uint64_t, 4> words() const {
    std::array<std::uint64_t, 4> words{};
    std::uint32_t constant = 0x8b51f9dd;
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint32_t word = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      word *= constant;
      word ^= word >> 16;
      words[i / 2] |= std::uint64_t{word} << (32 * (i % 2));
    }
    return words;
  }

 private:
  std::uint32_t hashed(std::uint32_t word) {
    word ^= constant_;
    constant_ *= 0x931e8875;
    word *= constant_;
    return word ^ word >> 16;
  }
  static std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t word = 0xca01f9dd * a - 0x4973f715 * b;
    return word ^ word >> 16;
  }

  std::uint32_t constant_ = 0x43b0d7e5;
  std::array<std::uint32_t, 4> pool_{};
};

}  // namespace

NumpyGenerator::NumpyGenerator(std::uint32_t seed) {
  const std::array<std::uint64_t, 4> words = SeedWords(seed).words();
  increment_ = wide(words[2], words[3]) << 1 | 1;
  state_ = (increment_ + wide(words[0], words[1])) * kMultiplier + increment_;
}

std::uint64_t NumpyGenerator::next64() {
  state_ = state_ * kMultiplier + increment_;
  const auto upper = static_cast<std::uint64_t>(state_ >> 64), lower = static_cast<std::uint64_t>(state_);
  return std::rotr(upper ^ lower, static_cast<int>(upper >> 58));
}

std::uint32_t NumpyGenerator::next32() {
  if (std::exchange(has_upper_half_, false)) return upper_half_;
  const std::uint64_t both = next64();
  upper_half_ = static_cast<std::uint32_t>(both >> 32);
  has_upper_half_ = true;
  return static_cast<std::uint32_t>(both);
}

// Lemire 2019, "Fast random integer generation in an interval".
std::int32_t NumpyGenerator::integer(std::int32_t first, std::int32_t end) {
  ISOBAR_CHECK(first < end, "there is no number from ", first, " to below ", end);
  const auto count = static_cast<std::uint32_t>(std::int64_t{end} - first);
  const std::uint32_t rejected = (0 - count) % count;
  std::uint64_t product = 0;
  do {
    product = std::uint64_t{next32()} * count;
  } while (static_cast<std::uint32_t>(product) < rejected);
  return static_cast<std::int32_t>(first + static_cast<std::int64_t>(product >> 32));
}

}  // namespace isobar
