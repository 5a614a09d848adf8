// Keys and values that the blocks of a network have computed for the tokens of some texts, so that a pass over one more
// token of each text computes no earlier one again.
//
// A text begins with a pass over all of its first tokens, alone (begin). Then passes over one token of each text follow
// (begin_step). What is kept of a text depends on its own tokens alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops.h"

namespace isobar {

class KeyValueCache {
 public:
  // For so many texts of at most `capacity` tokens each.
  KeyValueCache(std::int64_t texts, std::int64_t capacity, Device device);

  std::int64_t texts() const { return texts_; }
  std::int64_t capacity() const { return capacity_; }

  // The next pass is over the first tokens of this text, one sample.
  void begin(std::int64_t text);
  // The next pass is over one token of every text, those at these positions. -1: the text is left out, and what is
  // computed of it means nothing.
  void begin_step(const std::vector<std::int32_t>& positions);

  // For layers.
  bool is_step() const { return text_ < 0; }
  const Tensor& positions() const { return positions_; }  // [texts] i32, at least 0, on the device
  // Of the tokens of a text that begins, qkv [T, 3·C]: queries, keys, values.
  void keep(const Tensor& qkv, std::int64_t stage);
  // The attention of a token of each text, qkv [texts, 3·C] -> [texts, C].
  Tensor attend(const Tensor& qkv, std::int64_t stage, const AttentionOptions& options);

 private:
  struct Kept {
    Tensor keys, values;  // [texts, capacity, C]
  };
  Kept& of_stage(std::int64_t stage, const Tensor& qkv);

  std::int64_t texts_, capacity_, text_ = 0;  // text_ -1: a step
  Device device_;
  Tensor positions_, seen_;  // seen_: as begin_step was told
  std::vector<Kept> stages_;
};

}  // namespace isobar
