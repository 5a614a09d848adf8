// One pass through a network: whether it trains, which samples it has, and where its random masks come from.
#pragma once

#include <cstdint>

#include "engine/ops.h"
#include "kernels/common/window.h"

namespace isobar {

// Masks are numbered in the order in which the layers of a stage draw them, from a number that belongs to the stage. So
// a stage that is computed again draws the same masks, and no layer says how many it has. Layers take a pass by
// reference and draw from it; a stage has a copy of its own.
class Pass {
 public:
  // Of an evaluation: no mask is drawn.
  Pass() = default;
  // Of training. Mask n is drawn with the key {seed, stream + n}: passes need streams at least 2^16 apart. `samples`:
  // where this rank's samples lie in the global batch.
  static Pass training(DropoutKey masks, SampleWindow samples = {});

  // The same pass over `count` samples of this rank. run_stages and the layers need to know how many there are.
  Pass over(std::int64_t count) const;
  // The same pass as stage `number` of the network sees it, with kMasksOfStage masks of its own.
  Pass stage(std::int64_t number) const;

  bool is_training() const { return is_training_; }
  float rate(double p) const { return is_training_ ? static_cast<float>(p) : 0; }  // p in training, else 0
  std::int64_t samples() const;                                                    // of this rank; Error before over()
  SampleWindow window() const { return window_; }

  // The key of the next mask. A layer draws it at every rate, 0 too: the masks behind it keep their numbers. Error
  // where a stage draws more than kMasksOfStage.
  DropoutKey next_mask();

  static constexpr std::uint64_t kMasksOfStage = 8;

 private:
  bool is_training_ = false;
  DropoutKey masks_ = {};  // of the stage: mask 0
  std::uint64_t drawn_ = 0;
  std::int64_t samples_ = 0;
  SampleWindow window_ = {};
};

}  // namespace isobar
