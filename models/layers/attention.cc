#include "models/layers/attention.h"

#include <cmath>

#include "comm/context_attention.h"
#include "kernels/common/check.h"
#include "models/key_value_cache.h"

namespace isobar {
namespace {

std::int64_t head_size(const AttentionSpec& spec) {
  if (spec.head_size > 0) return spec.head_size;
  ISOBAR_CHECK(spec.heads >= 1 && spec.width % spec.heads == 0, "attention: ", spec.width,
               " channels do not divide into ", spec.heads, " heads");
  return spec.width / spec.heads;
}

Part heads_of_rank(const AttentionSpec& spec, const Parallel& parallel) {
  ISOBAR_CHECK(spec.heads >= parallel.tp.size(), "attention: ", parallel.tp.size(), " tensor-parallel ranks share ",
               spec.heads, " heads, and each needs one");
  return parallel.over_tp(spec.heads);
}

LinearSpec into_heads(const AttentionSpec& spec) {
  return {.in = spec.width,
          .out = spec.heads * head_size(spec),
          .bias = spec.bias,
          .init_std = spec.init_std,
          .split = Split::outputs,
          .multiple = head_size(spec)};
}

LinearSpec out_of_heads(const AttentionSpec& spec) {
  return {.in = spec.heads * head_size(spec),
          .out = spec.width,
          .bias = spec.bias,
          .init_std = spec.proj_init_std,
          .split = Split::inputs,
          .multiple = head_size(spec)};
}

}  // namespace

Attention::Attention(const Build& build, const std::string& name, const AttentionSpec& spec)
    : parallel_(build.parallel),
      spec_(spec),
      tf32_(build.compute.may_use_tf32()),
      stream_(build),
      head_size_(head_size(spec)),
      heads_(heads_of_rank(spec, build.parallel)),
      qkv_(build, {name + ".q", name + ".k", name + ".v"}, into_heads(spec)),
      proj_(build, {name + ".proj"}, out_of_heads(spec)) {
  build.note_over_tp("heads", heads_, spec.heads);
  // Checks the smallest number of heads of a tensor-parallel rank, so that all ranks throw the same Error.
  if (parallel_.cp.size() > 1) form_of(parallel_.form, spec.heads / parallel_.tp.size(), parallel_.cp.size());
}

Tensor Attention::operator()(const Tensor& x, Pass& pass) const {
  const Tensor qkv = qkv_(x, pass);
  const Tensor o = heads(qkv, pass);
  return stream_.drop(proj_(o, pass), spec_.dropout, pass);
}

// o of this rank's heads and tokens. The window of dropout only needs samples and heads.
Tensor Attention::heads(const Tensor& qkv, Pass& pass) const {
  const AttentionOptions options{
      .batch = pass.samples(),
      .heads = heads_.size(),
      .scale = 1 / std::sqrt(static_cast<double>(head_size_)),
      .causal = spec_.causal,
      .tf32 = tf32_,
      .dropout = pass.rate(spec_.attention_dropout),
      .key = pass.next_mask(),
      .window = {.samples = pass.window(), .heads = {heads_.begin, spec_.heads}, .queries = {}, .keys = {}},
      .keys = {.begin = pass.places().key_begin, .share = pass.places().key_share}};
  if (pass.cache() != nullptr && pass.cache()->is_step())
    return pass.cache()->attend(qkv, pass.stage_number(), options);
  if (pass.cache() != nullptr) pass.cache()->keep(qkv, pass.stage_number());
  return context_attention(qkv, options, stream_.axis(qkv, pass), parallel_.cp, parallel_.form);
}

}  // namespace isobar
