#include "models/layers/embedding.h"

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

}  // namespace

TokenEmbedding::TokenEmbedding(const Build& build, const std::string& name, const EmbeddingSpec& spec)
    : parameters_(build.parameters),
      tf32_(build.compute.may_use_tf32()),
      weight_(build.parameters.add(table_of(name, spec, /*compute_copy=*/spec.is_head))) {}

Tensor TokenEmbedding::operator()(const Tensor& ids) const {
  return embedding(ids, parameters_.get(weight_), parameters_.dtype());
}

Tensor TokenEmbedding::logits(const Tensor& x) const {
  return linear(x, parameters_.get(weight_), {}, {.out_dtype = x.dtype(), .tf32 = tf32_});
}

// No product reads it, so it has no copy in 16 bits.
PositionTable::PositionTable(const Build& build, const std::string& name, const EmbeddingSpec& spec)
    : parameters_(build.parameters),
      positions_(spec.rows),
      weight_(build.parameters.add(table_of(name, spec, /*compute_copy=*/false))) {}

Tensor PositionTable::operator()(const Tensor& x, const Pass& pass) const {
  if (pass.cache() != nullptr && pass.cache()->is_step())
    return add(x, embedding(pass.cache()->positions(), parameters_.get(weight_), parameters_.dtype()));
  const std::int64_t tokens = x.size(0) / pass.samples();
  ISOBAR_CHECK(tokens <= positions_, "a sample of ", tokens, " tokens is longer than the ", positions_,
               " positions of the network");
  return add_row(x, parameters_.get(weight_), 0, tokens);
}

}  // namespace isobar
