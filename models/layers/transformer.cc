#include "models/layers/transformer.h"

namespace isobar {

TransformerBlock::TransformerBlock(const Build& build, const std::string& name, const TransformerSpec& spec)
    : spec_(spec),
      stream_(build),
      norm1_(build, name + ".norm1", spec.width, spec.eps, spec.bias),
      attention_(build, name + ".attn",
                 {.width = spec.width,
                  .heads = spec.heads,
                  .head_size = spec.head_size,
                  .causal = spec.causal,
                  .bias = spec.bias,
                  .init_std = spec.init_std,
                  .proj_init_std = spec.branch_init_std,
                  .attention_dropout = spec.attention_dropout,
                  .dropout = spec.dropout}),
      norm2_(build, name + ".norm2", spec.width, spec.eps, spec.bias),
      mlp_(build, name + ".mlp",
           {.width = spec.width,
            .hidden = spec.hidden,
            .activation = spec.activation,
            .bias = spec.bias,
            .init_std = spec.init_std,
            .fc2_init_std = spec.branch_init_std,
            .hidden_dropout = spec.hidden_dropout,
            .dropout = spec.dropout}) {}

// Branches are temporaries: each is freed as soon as drop path has been applied.
Residual TransformerBlock::operator()(const Residual& in, Pass& pass) const {
  const LayernormResult first = norm1_(in);
  const Residual middle{first.sum, stream_.drop_path(attention_(first.y, pass), spec_.drop_path, pass)};
  const LayernormResult second = norm2_(middle);
  return {second.sum, stream_.drop_path(mlp_(second.y, pass), spec_.drop_path, pass)};
}

}  // namespace isobar
