// One pass through a network: whether it is training, its samples, and the keys of its random masks.
#pragma once

#include <cstdint>

#include "engine/ops.h"
#include "kernels/common/window.h"

namespace isobar {

class KeyValueCache;

// What data say of tokens whose samples hold several documents; undefined: that a sample is one.
struct TokenPlaces {
  Tensor position = {};   // [B, own tokens] of i32: which row of the table of positions a token has
  Tensor key_begin = {};  // [B, T] of i32, of whole samples: the first token that a token sees
  double key_share = 1;   // of the pairs of a causal sample, those that it leaves in the mean: for the cost model
};

// Masks are numbered in the order in which the layers of a stage draw them, starting from a number of the stage. So a
// recomputed stage draws the same masks, and layers need not declare how many they draw. Layers take a pass by
// reference and draw from it; each stage has its own copy.
class Pass {
 public:
  // An evaluation pass: no masks.
  Pass() = default;
  // A training pass. Mask n has the key {seed, stream + n}: streams of different passes must be at least 2^16 apart.
  // samples: the position of this rank's samples in the global batch.
  static Pass training(DropoutKey masks, SampleWindow samples = {});

  // An evaluation pass that continues texts: it keeps keys and values, and reads those that are kept (models/
  // key_value_cache.h). Of the last tokens alone there are results.
  static Pass continuing(KeyValueCache& cache);

  // The same pass over `count` samples of this rank. run_stages and the layers need this number.
  Pass over(std::int64_t count) const;
  // The same pass over tokens with these places.
  Pass over(TokenPlaces places) const;
  // The same pass for step k >= 0 of a rollout. Its masks are those of other streams, 2^48 apart: an iteration has 2^16
  // numbers, so that 2^32 passes come before they would meet. Step 0 has the masks of the pass itself.
  Pass step(std::int64_t k) const;
  // The same pass for stage `number` of the network, with its own kMasksOfStage mask numbers.
  Pass stage(std::int64_t number) const;

  bool is_training() const { return is_training_; }
  float rate(double p) const { return is_training_ ? static_cast<float>(p) : 0; }  // p in training, else 0
  std::int64_t samples() const;                                                    // of this rank; Error before over()
  SampleWindow window() const { return window_; }
  const TokenPlaces& places() const { return places_; }
  KeyValueCache* cache() const { return cache_; }  // null: nothing is kept
  std::int64_t stage_number() const { return stage_; }

  // The key of the next mask. A layer calls it at every rate, also at 0: later masks then keep their numbers. Error if
  // a stage draws more than kMasksOfStage.
  DropoutKey next_mask();

  static constexpr std::uint64_t kMasksOfStage = 8;

 private:
  bool is_training_ = false;
  DropoutKey masks_ = {};  // key of mask 0 of the stage
  std::uint64_t drawn_ = 0;
  std::int64_t samples_ = 0;
  SampleWindow window_ = {};
  TokenPlaces places_ = {};
  KeyValueCache* cache_ = nullptr;
  std::int64_t stage_ = 0;
};

}  // namespace isobar
