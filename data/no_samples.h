// A set without samples, in the place of one that a run does without.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "kernels/common/check.h"

namespace isobar {

class NoSamples : public Dataset {
 public:
  // layout: of the samples of the sets beside it.
  NoSamples(std::string name, std::vector<TensorSpec> layout) : name_(std::move(name)), layout_(std::move(layout)) {}

  std::string name() const override { return name_; }
  std::int64_t samples() const override { return 0; }
  std::vector<TensorSpec> layout() const override { return layout_; }
  // Error, always.
  void read(const SampleKey& key, std::span<void* const>) const override {
    throw_error(name_, ": sample ", key.sample, " of none is asked for");
  }

 private:
  const std::string name_;
  const std::vector<TensorSpec> layout_;
};

}  // namespace isobar
