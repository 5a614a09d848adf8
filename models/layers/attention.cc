#include "models/layers/attention.h"

#include <cmath>

#include "comm/context_attention.h"
#include "comm/ops.h"

namespace isobar {
namespace {

std::int64_t head_size(const AttentionLayerOptions& options) {
  ISOBAR_CHECK(options.heads >= 1 && options.width % options.heads == 0, "attention: ", options.width,
               " channels do not divide into ", options.heads, " heads");
  return options.width / options.heads;
}

Part heads_of_rank(const AttentionLayerOptions& options, const Parallel& parallel) {
  ISOBAR_CHECK(options.heads >= parallel.tp.size(), "attention: ", parallel.tp.size(), " tensor-parallel ranks share ",
               options.heads, " heads, and each needs one");
  return parallel.over_tp(options.heads);
}

}  // namespace

Attention::Attention(Parameters& parameters, const std::string& name, const AttentionLayerOptions& options,
                     const Parallel& parallel)
    : options_(options),
      parallel_(parallel),
      head_size_(head_size(options)),
      heads_(heads_of_rank(options, parallel)),
      qkv_(parameters, {name + ".q", name + ".k", name + ".v"},
           {.in = options.width,
            .out = options.width,
            .tf32 = options.tf32,
            .part = LinearPart{LinearPart::Of::outputs, {heads_.begin * head_size_, heads_.end * head_size_}}}),
      proj_(parameters, {name + ".proj"},
            {.in = options.width,
             .out = options.width,
             .tf32 = options.tf32,
             .part = LinearPart{LinearPart::Of::inputs, {heads_.begin * head_size_, heads_.end * head_size_}},
             .bias_sharing = parallel.sharing_between_branches()}) {
  // Every tp rank asks for the fewest heads that one of them has, so that all refuse alike.
  if (parallel.cp.size() > 1) form_of(parallel.form, options.heads / parallel.tp.size(), parallel.cp.size());
}

Tensor Attention::forward(const Tensor& x, std::int64_t batch, const Context& context) const {
  const double scale = 1 / std::sqrt(static_cast<double>(head_size_));
  const float rate = context.rate(options_.dropout);
  const LinearOptions product{.out_dtype = x.dtype(), .tf32 = options_.tf32};
  PassBlock block = context.block;
  if (parallel_.tp.size() > 1) block.heads = {heads_.begin, options_.heads};
  const std::int64_t rows = block.row_count(x, batch);
  const Tensor qkv = column_linear(x, rows, qkv_.weight(), qkv_.bias(), product, parallel_);
  const std::int64_t tokens = block.tokens.total != 0 ? block.tokens.total : rows / batch;  // of a sample
  const Tensor o =
      context_attention(qkv,
                        {.batch = batch,
                         .heads = heads_.size(),
                         .scale = scale,
                         .tf32 = options_.tf32,
                         .dropout = rate,
                         .key = context.mask(0),
                         .window = block.attention()},
                        DealtAxis(tokens, parallel_.cp.size(), block.token_unit), parallel_.cp, parallel_.form);
  const Tensor y = row_linear(o, proj_.weight(), proj_.bias(), product, parallel_);
  return dropout(y, rate, context.mask(1), block.elements(y, batch, PassBlock::Rows::own));
}

}  // namespace isobar
