#include "models/layers/attention.h"

#include <cmath>

namespace isobar {

Attention::Attention(Parameters& parameters, const std::string& name, const AttentionLayerOptions& options)
    : options_(options),
      qkv_(parameters, {name + ".q", name + ".k", name + ".v"},
           {.in = options.width, .out = options.width, .tf32 = options.tf32}),
      proj_(parameters, {name + ".proj"}, {.in = options.width, .out = options.width, .tf32 = options.tf32}) {
  ISOBAR_CHECK(options.heads >= 1 && options.width % options.heads == 0, "attention: ", options.width,
               " channels do not divide into ", options.heads, " heads");
}

Tensor Attention::forward(const Tensor& x, std::int64_t batch, const Context& context) const {
  const double scale = 1 / std::sqrt(static_cast<double>(options_.width / options_.heads));
  const float rate = context.rate(options_.dropout);
  const Tensor qkv = qkv_.forward(x, x.dtype());
  const Tensor o = attention(qkv, {.batch = batch,
                                   .heads = options_.heads,
                                   .scale = scale,
                                   .dropout = rate,
                                   .key = context.mask(0),
                                   .window = context.block.attention()});
  const Tensor y = proj_.forward(o, x.dtype());
  return dropout(y, rate, context.mask(1), context.block.elements(y, batch, PassBlock::Rows::own));
}

}  // namespace isobar
