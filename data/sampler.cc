#include "data/sampler.h"

#include <algorithm>
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

std::vector<std::int64_t> with_holes(const Era5Dataset& dataset, SamplerKind kind) {
  return kind == SamplerKind::tutorial ? by_the_tutorials_rule(dataset) : every_pair(dataset);
}

bool spans_a_hole(const Era5Dataset& dataset, std::int64_t step) {
  return !dataset.regular(step, step + dataset.dt());
}

}  // namespace

SamplerKind parse_sampler(const std::string& name) {
  ISOBAR_CHECK(name == "all_pairs" || name == "tutorial", "sampler \"", name, "\" is not all_pairs or tutorial");
  return name == "tutorial" ? SamplerKind::tutorial : SamplerKind::all_pairs;
}

std::vector<std::int64_t> list_samples(const Era5Dataset& dataset, SamplerKind kind, std::int64_t limit) {
  std::vector<std::int64_t> samples = with_holes(dataset, kind);
  std::erase_if(samples, [&](std::int64_t step) { return spans_a_hole(dataset, step); });
  ISOBAR_CHECK(!samples.empty(), dataset.file_name(0), ": no two steps dt = ", dataset.dt(),
               " apart lie in one file and in the range asked for, without a hole in time between them");
  if (limit > 0 && limit < static_cast<std::int64_t>(samples.size())) samples.resize(static_cast<std::size_t>(limit));
  return samples;
}

std::string describe_left_out(const Era5Dataset& dataset, SamplerKind kind) {
  const std::vector<std::int64_t> samples = with_holes(dataset, kind);
  const auto left_out = std::ranges::count_if(samples, [&](std::int64_t step) { return spans_a_hole(dataset, step); });
  if (left_out == 0) return "";
  constexpr int kFilesNamed = 3;
  std::string text = std::to_string(left_out) + (left_out == 1 ? " pair left out: " : " pairs left out: ");
  int files = 0;
  for (const Segment& segment : dataset.segments()) {
    const std::size_t holes = dataset.holes(segment).size();
    if (holes == 0 || ++files > kFilesNamed) continue;
    if (files > 1) text += ", ";
    text += std::to_string(holes) + (holes == 1 ? " hole" : " holes") + " in time in " +
            dataset.file_name(dataset.file_of(segment.first));
  }
  return files > kFilesNamed ? text + ", and more in " + std::to_string(files - kFilesNamed) + " other files" : text;
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
