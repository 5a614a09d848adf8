#include "models/layers/embedding.h"

#include <algorithm>
#include <vector>

#include "comm/ops.h"
#include "kernels/common/check.h"
#include "models/key_value_cache.h"

namespace isobar {
namespace {

ParameterSpec table_of(const std::string& name, const EmbeddingSpec& spec, bool compute_copy) {
  return {.names = {name + ".weight"},
          .shape = {spec.rows, spec.width},
          .init = {Init::Kind::normal, spec.init_std},
          .decay = true,
          .compute_copy = compute_copy};
}

ParameterSpec shared_table(const std::string& name, const EmbeddingSpec& spec, const Part& own) {
  ParameterSpec table = table_of(name, spec, /*compute_copy=*/spec.is_head);
  if (own == Part{0, spec.rows}) return table;
  table.sharing = Sharing::shard;
  table.shard = {.axis = 0, .begin = own.begin, .end = own.end};
  return table;
}

}  // namespace

TokenEmbedding::TokenEmbedding(const Build& build, const std::string& name, const EmbeddingSpec& spec)
    : parameters_(build.parameters),
      parallel_(build.parallel),
      stream_(build),
      part_(vocab_part(spec.rows, spec.rows, build.parallel)),
      tf32_(build.compute.may_use_tf32()),
      weight_(build.parameters.add(shared_table(name, spec, part_.own))) {
  build.note_over_tp("rows of the table of tokens", part_.own, spec.rows);
}

Tensor TokenEmbedding::operator()(const Tensor& ids) const {
  return vocab_embedding(ids, parameters_.get(weight_), parameters_.dtype(), part_, parallel_);
}

Tensor TokenEmbedding::logits(const Tensor& x, const Pass& pass) const {
  return column_linear(x, stream_.rows_within(x, pass), parameters_.get(weight_), {},
                       {.out_dtype = x.dtype(), .tf32 = tf32_}, parallel_);
}

LinearSpec untied_head(const Build& build, const EmbeddingSpec& spec) {
  return {.in = spec.width,
          .out = spec.rows,
          .bias = false,
          .init_std = spec.init_std,
          .split = Split::outputs,
          .multiple = vocab_group(spec.rows, build.parallel)};
}

VocabPart logit_part(const Build& build, std::int64_t rows, std::int64_t classes) {
  return vocab_part(rows, classes, build.parallel);
}

// No product reads it, so it has no copy in 16 bits.
PositionTable::PositionTable(const Build& build, const std::string& name, const EmbeddingSpec& spec)
    : parameters_(build.parameters),
      stream_(build),
      positions_(spec.rows),
      weight_(build.parameters.add(table_of(name, spec, /*compute_copy=*/false))) {}

Tensor PositionTable::operator()(const Tensor& x, const Pass& pass) const {
  if (pass.cache() != nullptr && pass.cache()->is_step())
    return add(x, embedding(pass.cache()->positions(), parameters_.get(weight_), parameters_.dtype()));
  const std::vector<Part>& chunks = stream_.chunks();
  const std::int64_t tokens = x.size(0) / pass.samples(), last = std::max(tokens, chunks.back().end);
  ISOBAR_CHECK(last <= positions_, "a sample of ", last, " tokens is longer than the ", positions_,
               " positions of the network");
  const Tensor& table = parameters_.get(weight_);
  if (pass.places().position.defined()) return add(x, embedding(pass.places().position, table, parameters_.dtype()));
  if (chunks.size() > 1) return add_row(x, rows_of_chunks());
  return add_row(x, table, chunks.front().begin, tokens);
}

// Of the positions that this rank has, in the order in which it has them.
Tensor PositionTable::rows_of_chunks() const {
  std::vector<double> positions;
  for (const Part& chunk : stream_.chunks())
    for (std::int64_t t = chunk.begin; t < chunk.end; ++t) positions.push_back(static_cast<double>(t));
  Tensor ids = Tensor::empty({std::ssize(positions)}, DType::i32, parameters_.device());
  ids.set_values(positions);
  return embedding(ids, parameters_.get(weight_), parameters_.dtype());
}

}  // namespace isobar
