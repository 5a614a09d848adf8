#include "models/layers/transformer.h"

namespace isobar {
namespace {

constexpr std::uint64_t kAttentionPath = Attention::kMasks, kMlp = kAttentionPath + 1, kMlpPath = kMlp + Mlp::kMasks;
static_assert(kMlpPath < TransformerBlock::kMasks);

}  // namespace

TransformerBlock::TransformerBlock(Parameters& parameters, const std::string& name, const TransformerOptions& options)
    : options_(options),
      norm1_(parameters, name + ".norm1", options.width, options.eps),
      attention_(parameters, name + ".attn",
                 {.width = options.width, .heads = options.heads, .dropout = options.dropout, .tf32 = options.tf32}),
      norm2_(parameters, name + ".norm2", options.width, options.eps),
      mlp_(parameters, name + ".mlp",
           {.width = options.width,
            .hidden = options.hidden,
            .activation = options.activation,
            .dropout = options.dropout,
            .tf32 = options.tf32}) {}

Residual TransformerBlock::forward(const Residual& in, std::int64_t batch, const Context& context) const {
  const float rate = context.rate(options_.drop_path);
  const LayernormResult first = norm1_.forward(in.x, in.branch);
  const Tensor attended = attention_.forward(first.y, batch, context);
  const Residual middle{first.sum, drop_path(attended, batch, rate, context.mask(kAttentionPath))};
  const LayernormResult second = norm2_.forward(middle.x, middle.branch);
  const Tensor fed = mlp_.forward(second.y, context.masks_from(kMlp));
  return {second.sum, drop_path(fed, batch, rate, context.mask(kMlpPath))};
}

}  // namespace isobar
