#include "data/dataset.h"

#include "kernels/common/check.h"
#include "kernels/common/rng.h"

namespace isobar {
namespace {

constexpr std::uint64_t kNumbersOfAKey = std::uint64_t{1} << 32;
// Disjoint from the streams of dropout masks, which are numbered by iteration (apps/train/passes.h).
constexpr std::uint64_t kStreamsOfSamples = std::uint64_t{1} << 63;

}  // namespace

SampleKey SampleKey::of(DataSplit split) const {
  constexpr int kBitsOfSamples = 30;
  ISOBAR_CHECK(sample < std::int64_t{1} << kBitsOfSamples, "a set of random samples has at most 2^30 of them");
  SampleKey key = *this;
  key.sample += static_cast<std::int64_t>(split) << kBitsOfSamples;
  return key;
}

// Each epoch is a stream of random numbers, and each sample has its own range of the stream.
std::uint32_t SampleKey::random_bits(std::uint64_t index) const {
  ISOBAR_CHECK(index < kNumbersOfAKey, "a sample has 2^32 random numbers; number ", index, " is asked for");
  return isobar::random_bits(seed, kStreamsOfSamples + static_cast<std::uint64_t>(epoch),
                             static_cast<std::uint64_t>(sample) * kNumbersOfAKey + index);
}

std::int64_t SampleKey::random_below(std::int64_t count, std::uint64_t index) const {
  ISOBAR_CHECK(count >= 1 && count <= std::int64_t{1} << 32, "no random number below ", count);
  return static_cast<std::int64_t>((random_bits(index) * static_cast<std::uint64_t>(count)) >> 32);
}

float SampleKey::random_uniform(std::uint64_t index) const {
  return to_uniform(random_bits(index));
}

double SampleKey::random_normal(std::uint64_t index) const {
  return to_normal(random_bits(2 * index), random_bits(2 * index + 1));
}

std::unique_ptr<Dataset> Dataset::band(RowBand rows) const {
  throw_error(name(), ": samples are read whole, and not rows [", rows.first, ", ", rows.first + rows.count,
              ") of them");
}

}  // namespace isobar
