#include "data/text/blend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

constexpr std::int64_t kBlendBlock = 4096;  // samples between two counts that are kept

}  // namespace

Blend parse_blend(const std::vector<std::string>& words) {
  ISOBAR_CHECK(!words.empty(), "no data is named");
  const auto numbers =
      std::ranges::count_if(words, [](const std::string& word) { return number_from<double>(word).has_value(); });
  if (numbers == 0) return {.paths = words};
  Blend blend;
  double sum = 0;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::optional<double> weight = number_from<double>(words[i]);
    ISOBAR_CHECK(weight && i + 1 < words.size(), "the data ", comma_list(words, in_quotes),
                 " are neither paths alone nor a weight before each path");
    ISOBAR_CHECK(*weight > 0 && std::isfinite(*weight), "weight ", words[i], " of ", words[i + 1], " is not above 0");
    blend.weights.push_back(*weight);
    blend.paths.push_back(words[i + 1]);
    sum += *weight;
  }
  for (double& weight : blend.weights) weight /= sum;
  return blend;
}

std::int64_t samples_of_part(std::int64_t samples, double weight, bool core) {
  const double wanted = static_cast<double>(samples) * weight;
  return static_cast<std::int64_t>(std::ceil((core ? std::ceil(wanted) : wanted) * 1.005));
}

BlendedSamples::BlendedSamples(std::vector<std::unique_ptr<Dataset>> parts, const std::vector<double>& weights,
                               std::int64_t samples)
    : parts_(std::move(parts)) {
  ISOBAR_CHECK(!parts_.empty() && parts_.size() == weights.size(), parts_.size(), " sets have ", weights.size(),
               " weights");
  ISOBAR_CHECK(parts_.size() <= std::numeric_limits<std::uint16_t>::max(), parts_.size(),
               " sets are too many to blend");
  part_.resize(static_cast<std::size_t>(samples));
  std::vector<std::int64_t> counts(parts_.size());
  for (std::int64_t i = 0; i < samples; ++i) {
    if (i % kBlendBlock == 0) counts_.insert(counts_.end(), counts.begin(), counts.end());
    const double place = std::max(static_cast<double>(i), 1.0);
    std::size_t chosen = 0;
    double most = weights[0] * place - static_cast<double>(counts[0]);
    for (std::size_t d = 1; d < weights.size(); ++d) {
      const double behind = weights[d] * place - static_cast<double>(counts[d]);
      if (behind <= most) continue;
      most = behind;
      chosen = d;
    }
    part_[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(chosen);
    ++counts[chosen];
  }
  for (std::size_t d = 0; d < parts_.size(); ++d)
    ISOBAR_CHECK(counts[d] <= parts_[d]->samples(), parts_[d]->name(), " has ", parts_[d]->samples(),
                 " samples, but the blend of ", samples, " samples takes ", counts[d], " of it");
  check_parts();
}

void BlendedSamples::check_parts() const {
  const auto same = [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.shape == b.shape && a.dtype == b.dtype;
  };
  const std::vector<TensorSpec> first = parts_[0]->layout();
  for (const auto& part : parts_)
    ISOBAR_CHECK(std::ranges::equal(first, part->layout(), same), parts_[0]->name(), " and ", part->name(),
                 " have samples of different tensors");
}

std::string BlendedSamples::name() const {
  return comma_list(parts_, [](const auto& part) { return part->name(); });
}

BlendedSamples::Place BlendedSamples::place(std::int64_t i) const {
  const std::uint16_t part = part_[static_cast<std::size_t>(i)];
  const std::int64_t block = i / kBlendBlock;
  const std::int64_t before = counts_[static_cast<std::size_t>(block) * parts_.size() + part];
  const auto begin = part_.begin() + block * kBlendBlock;
  return {.part = part, .sample = before + std::count(begin, part_.begin() + i, part)};
}

void BlendedSamples::read(const SampleKey& key, std::span<void* const> to) const {
  ISOBAR_CHECK(key.sample >= 0 && key.sample < samples(), name(), ": sample ", key.sample, " of ", samples(),
               " is asked for");
  const Place from = place(key.sample);
  parts_[static_cast<std::size_t>(from.part)]->read({.sample = from.sample, .epoch = key.epoch, .seed = key.seed}, to);
}

}  // namespace isobar
