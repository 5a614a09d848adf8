// Samples of several sets, mixed by weights as Megatron mixes them.
//
//   sample i comes from the set d of the largest  w_d·max(i, 1) - count_d,  the first one of a tie;
//   it is the next sample of that set, number count_d
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace isobar {

// A list of paths, with or without weights: "0.3 A 0.7 B" or "A B".
struct Blend {
  std::vector<std::string> paths = {};
  std::vector<double> weights = {};  // as many as paths, of sum 1; or none
};

// As --data-path gives it: weights if every second word, from the first on, is a number. Error naming a weight that is
// not positive, or a list that is half of both.
Blend parse_blend(const std::vector<std::string>& words);

// The samples that a set of a blend must have so that `samples` of the whole can be drawn, with Megatron's reserve of
// half a percent. core: rounded up twice.
std::int64_t samples_of_part(std::int64_t samples, double weight, bool core);

class BlendedSamples : public Dataset {
 public:
  // weights: of sum 1. All parts have one layout. Error with the numbers if a part has fewer samples than are drawn of
  // it.
  BlendedSamples(std::vector<std::unique_ptr<Dataset>> parts, const std::vector<double>& weights, std::int64_t samples);

  std::string name() const override;
  std::int64_t samples() const override { return static_cast<std::int64_t>(part_.size()); }
  bool has_own_order() const override { return true; }
  std::vector<TensorSpec> layout() const override { return parts_[0]->layout(); }
  void read(const SampleKey& key, std::span<void* const> to) const override;

  // Which part sample i comes from, and its number there.
  struct Place {
    std::int64_t part = 0, sample = 0;
  };
  Place place(std::int64_t i) const;

 private:
  void check_parts() const;

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<std::uint16_t> part_;   // of each sample
  std::vector<std::int64_t> counts_;  // [block, part]: samples of a part before each block
};

}  // namespace isobar
