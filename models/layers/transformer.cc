#include "models/layers/transformer.h"

namespace isobar {
namespace {

constexpr std::uint64_t kAttentionPath = Attention::kMasks, kMlp = kAttentionPath + 1, kMlpPath = kMlp + Mlp::kMasks;
static_assert(kMlpPath < TransformerBlock::kMasks);

}  // namespace

TransformerBlock::TransformerBlock(Parameters& parameters, const std::string& name, const TransformerOptions& options,
                                   const Parallel& parallel)
    : options_(options),
      parallel_(parallel),
      norm1_(parameters, name + ".norm1", options.width, options.eps, parallel.sharing_between_branches()),
      attention_(parameters, name + ".attn",
                 {.width = options.width, .heads = options.heads, .dropout = options.dropout, .tf32 = options.tf32},
                 parallel),
      norm2_(parameters, name + ".norm2", options.width, options.eps, parallel.sharing_between_branches()),
      mlp_(parameters, name + ".mlp",
           {.width = options.width,
            .hidden = options.hidden,
            .activation = options.activation,
            .dropout = options.dropout,
            .tf32 = options.tf32},
           parallel) {}

Residual TransformerBlock::forward(const Residual& in, std::int64_t batch, const Context& context) const {
  const float rate = context.rate(options_.drop_path);
  const auto path = [&](const Tensor& branch, std::uint64_t mask) {
    return drop_path(branch, rate, context.mask(mask), context.block.rows(branch, batch, PassBlock::Rows::own));
  };
  // The branches have no names of their own: each is freed as soon as its path has been drawn.
  const LayernormResult first = norm1_.forward(in.x, in.branch);
  const Residual middle{first.sum, path(attention_.forward(first.y, batch, context), kAttentionPath)};
  const LayernormResult second = norm2_.forward(middle.x, middle.branch);
  return {second.sum, path(mlp_.forward(second.y, batch, context.masks_from(kMlp)), kMlpPath)};
}

}  // namespace isobar
