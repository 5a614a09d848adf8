// attention over a fused [B·T, 3·E] buffer of queries, keys and values.
#include "kernels/attention/attention.h"

#include "engine/ops/common.h"

namespace isobar {

Tensor attention(const Tensor& qkv, std::int64_t batch, std::int64_t heads, double scale, float dropout,
                 DropoutKey key) {
  const std::int64_t rows = qkv.size(0), embed = qkv.size(1) / 3;
  ISOBAR_CHECK(qkv.size(1) == 3 * embed && embed % heads == 0 && rows % batch == 0,
               "attention: queries, keys and values ", to_string(qkv.shape()), " do not divide into ", batch,
               " samples of ", heads, " heads");
  const std::int64_t tokens = rows / batch;
  const AttentionShape shape{batch, heads, tokens, tokens, embed / heads};
  const AttentionDropout mask{dropout, key.seed, key.stream};
  const auto part = [embed](const Tensor& t, std::int64_t i) {
    return static_cast<void*>(static_cast<std::byte*>(t.data()) +
                              static_cast<std::size_t>(i * embed) * size_of(t.dtype()));
  };

  Tensor o = Tensor::empty({rows, embed}, qkv.dtype(), qkv.device());
  const Tensor lse = Tensor::empty({batch, heads, tokens}, accumulator_of(qkv.dtype()), qkv.device());
  ISOBAR_RUN(qkv.device(), attention_fwd,
             {.shape = shape,
              .dtype = qkv.dtype(),
              .scale = scale,
              .dropout = mask,
              .q = part(qkv, 0),
              .k = part(qkv, 1),
              .v = part(qkv, 2),
              .o = o.data(),
              .lse = lse.data(),
              .q_stride = 3 * embed,
              .k_stride = 3 * embed,
              .v_stride = 3 * embed,
              .o_stride = embed},
             current_stream());
  Tape::record("attention", {&qkv}, {qkv, o, lse}, {&o},
               [=, o = o.detach()](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dqkv = gradient_like(qkv);
                 const Tensor scratch = workspace(attention_bwd_workspace(shape, qkv.dtype()), qkv.device());
                 ISOBAR_RUN(qkv.device(), attention_bwd,
                            {.shape = shape,
                             .dtype = qkv.dtype(),
                             .scale = scale,
                             .dropout = mask,
                             .q = part(qkv, 0),
                             .k = part(qkv, 1),
                             .v = part(qkv, 2),
                             .o = o.data(),
                             .lse = lse.data(),
                             .d_o = dy[0].data(),
                             .dq = part(dqkv, 0),
                             .dk = part(dqkv, 1),
                             .dv = part(dqkv, 2),
                             .q_stride = 3 * embed,
                             .k_stride = 3 * embed,
                             .v_stride = 3 * embed,
                             .o_stride = embed,
                             .do_stride = embed,
                             .dq_stride = 3 * embed,
                             .dk_stride = 3 * embed,
                             .dv_stride = 3 * embed,
                             .workspace = scratch.data()},
                            current_stream());
                 gradients.give(qkv, dqkv);
               });
  return o;
}

}  // namespace isobar
