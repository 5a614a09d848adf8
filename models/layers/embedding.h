// The ends of a network of tokens: a learned vector for every token, and for every position (Gehring et al. 2017).
#pragma once

#include <cstdint>
#include <string>

#include "comm/vocabulary.h"
#include "models/build.h"
#include "models/layers/linear.h"
#include "models/layers/residual_stream.h"
#include "models/pass.h"

namespace isobar {

struct EmbeddingSpec {
  std::int64_t rows = 0, width = 0;  // tokens or positions; C
  double init_std = 0.02;
  bool is_head = false;  // of tokens: products read the table too, in the activation's dtype
};

// The table of tokens. Its transpose may be the last product too (Press and Wolf 2017, "Using the output embedding to
// improve language models"): then its gradient is the sum of both. Each tensor-parallel rank has some of the rows
// (comm/vocabulary.h).
class TokenEmbedding {
 public:
  // Registers name.weight [rows, C], which decays as weight matrices do. Error if there are fewer rows than
  // tensor-parallel ranks.
  TokenEmbedding(const Build& build, const std::string& name, const EmbeddingSpec& spec);

  // Ids [B, T] i32 -> [B·T, C], in the parameters' dtype: the start of the residual stream.
  Tensor operator()(const Tensor& ids) const;
  // The tied head, x·Wᵀ: rows of the stream [M, C], in the activation's dtype -> [B·T, own rows of the table], in the
  // same. The spec must say so.
  Tensor logits(const Tensor& x, const Pass& pass) const;
  Weights weights() const { return {weight_}; }
  const Tensor& table() const { return parameters_.get(weight_); }  // this rank's rows

 private:
  const Parameters& parameters_;
  const Parallel& parallel_;
  ResidualStream stream_;
  VocabPart part_;
  bool tf32_;
  int weight_;
};

// The last product of a network whose head has a table of its own: as logits(), of the weights name.weight.
LinearSpec untied_head(const Build& build, const EmbeddingSpec& spec);
// The columns of the logits that this rank has, of tables of `rows` rows of which the first `classes` have
// probabilities.
VocabPart logit_part(const Build& build, std::int64_t rows, std::int64_t classes);

// The table of positions.
class PositionTable {
 public:
  // Registers name.weight [rows, C], which decays as weight matrices do.
  PositionTable(const Build& build, const std::string& name, const EmbeddingSpec& spec);

  // x + the rows of positions 0 to T - 1, or of those that the pass says (TokenPlaces); x [B·T, C] of whole samples, or
  // of the tokens of them that this rank has.
  // Error if there are fewer than T. Of a pass that continues texts by a token each, x [B, C]: the rows of the
  // positions that the cache says.
  Tensor operator()(const Tensor& x, const Pass& pass) const;
  Weights weights() const { return {weight_}; }

 private:
  Tensor rows_of_chunks() const;

  const Parameters& parameters_;
  ResidualStream stream_;
  std::int64_t positions_;
  int weight_;
};

}  // namespace isobar
