#include "data/sampler.h"

#include <utility>

#include "data/random_order.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

std::vector<std::int64_t> every_pair(const Era5Dataset& dataset) {
  std::vector<std::int64_t> samples;
  for (const Segment& segment : dataset.segments())
    for (std::int64_t i = 0; i + dataset.dt() < segment.count; ++i) samples.push_back(segment.first + i);
  return samples;
}

std::vector<std::int64_t> by_the_tutorials_rule(const Era5Dataset& dataset) {
  const std::int64_t dt = dataset.dt();
  std::vector<std::int64_t> samples;
  for (const Segment& segment : dataset.segments()) {
    ISOBAR_CHECK(segment.count >= 3 * dt, "sampler tutorial: ", dataset.file_name(dataset.file_of(segment.first)),
                 " has ", segment.count, " steps in range, fewer than the 3 dt = ", 3 * dt, " that its rule needs");
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const std::int64_t local = i % (segment.count - dt);
      samples.push_back(segment.first + (local < dt ? local + dt : local));
    }
  }
  return samples;
}

}  // namespace

SamplerKind parse_sampler(const std::string& name) {
  ISOBAR_CHECK(name == "all_pairs" || name == "tutorial", "sampler \"", name, "\" is not all_pairs or tutorial");
  return name == "tutorial" ? SamplerKind::tutorial : SamplerKind::all_pairs;
}

std::vector<std::int64_t> list_samples(const Era5Dataset& dataset, SamplerKind kind, std::int64_t limit) {
  auto samples = kind == SamplerKind::tutorial ? by_the_tutorials_rule(dataset) : every_pair(dataset);
  ISOBAR_CHECK(!samples.empty(), dataset.file_name(0), ": no two steps dt = ", dataset.dt(),
               " apart lie in one file and in the range asked for");
  if (limit > 0 && limit < static_cast<std::int64_t>(samples.size())) samples.resize(static_cast<std::size_t>(limit));
  return samples;
}

Sampler::Sampler(std::vector<std::int64_t> samples, bool shuffle, std::uint64_t seed, std::int64_t rank,
                 std::int64_t world)
    : samples_(std::move(samples)), shuffle_(shuffle), seed_(seed), rank_(rank), world_(world) {
  ISOBAR_CHECK(world >= 1 && rank >= 0 && rank < world, "rank ", rank, " is not one of ", world);
}

std::vector<std::int64_t> Sampler::order(std::int64_t epoch) const {
  std::vector<std::int64_t> permutation;
  if (shuffle_) permutation = torch_randperm(total(), seed_ + static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> mine;
  for (std::int64_t i = rank_; i < total(); i += world_) {
    const auto at = static_cast<std::size_t>(i);
    mine.push_back(samples_[shuffle_ ? static_cast<std::size_t>(permutation[at]) : at]);
  }
  return mine;
}

}  // namespace isobar
