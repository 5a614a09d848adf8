// A learned vector for every position of a sequence (Gehring et al. 2017), added to its token.
#pragma once

#include <cstdint>
#include <string>

#include "models/layers/residual_stream.h"

namespace isobar {

class PositionEmbedding {
 public:
  // Registers `name` [1, T, C], initialised with N(0, 0.02); T is build.tokens.
  PositionEmbedding(const Build& build, const std::string& name, std::int64_t width);

  // x + embedding; x: [B·T, C] of all tokens of this rank.
  Tensor operator()(const Tensor& x) const;
  Weights weights() const { return {embedding_}; }

 private:
  const Parameters& parameters_;
  ResidualStream stream_;
  int embedding_;
};

}  // namespace isobar
