// The ends of a network of tokens: a learned vector for every token, and for every position (Gehring et al. 2017).
#pragma once

#include <cstdint>
#include <string>

#include "models/build.h"
#include "models/pass.h"

namespace isobar {

struct EmbeddingSpec {
  std::int64_t rows = 0, width = 0;  // tokens or positions; C
  double init_std = 0.02;
  bool is_head = false;  // of tokens: products read the table too, in the activation's dtype
};

// The table of tokens. Its transpose may be the last product too (Press and Wolf 2017, "Using the output embedding to
// improve language models"): then its gradient is the sum of both.
class TokenEmbedding {
 public:
  // Registers name.weight [rows, C], which decays as weight matrices do.
  TokenEmbedding(const Build& build, const std::string& name, const EmbeddingSpec& spec);

  // Ids [B, T] i32 -> [B·T, C], in the parameters' dtype: the start of the residual stream.
  Tensor operator()(const Tensor& ids) const;
  // The tied head, x·Wᵀ: [M, C] in the activation's dtype -> [M, rows], in the same. The spec must say so.
  Tensor logits(const Tensor& x) const;
  Weights weights() const { return {weight_}; }

 private:
  const Parameters& parameters_;
  bool tf32_;
  int weight_;
};

// The table of positions.
class PositionTable {
 public:
  // Registers name.weight [rows, C], which decays as weight matrices do.
  PositionTable(const Build& build, const std::string& name, const EmbeddingSpec& spec);

  // x + the rows of positions 0 to T - 1; x [B·T, C] of whole samples. Error if there are fewer than T. Of a pass that
  // continues texts by a token each, x [B, C]: the rows of the positions that the cache says.
  Tensor operator()(const Tensor& x, const Pass& pass) const;
  Weights weights() const { return {weight_}; }

 private:
  const Parameters& parameters_;
  std::int64_t positions_;
  int weight_;
};

}  // namespace isobar
