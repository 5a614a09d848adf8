// attention over queries, keys and values that are separate tensors, or columns of one.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/ops/attention_block.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

void* data_of(const Columns& x) {
  return static_cast<std::byte*>(x.tensor.data()) + static_cast<std::size_t>(x.first) * size_of(x.tensor.dtype());
}
std::int64_t stride_of(const Columns& x) {
  return x.tensor.size(1);
}
// One tensor. Two tensors that share memory (a tensor and its detach()) are not one: each gets its own gradient.
bool are_one(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.id() == b.id() && a.shape() == b.shape();
}

AttentionShape shape_of(const Columns& q, const Columns& k, const Columns& v, std::int64_t batch, std::int64_t heads) {
  check_operands("attention", {{"the tensor of queries", q.tensor, 2},
                               {"the tensor of keys", k.tensor, 2},
                               {"the tensor of values", v.tensor, 2}});
  for (const Columns* x : {&q, &k, &v}) {
    const Tensor& tensor = x->tensor;
    ISOBAR_CHECK(x->first >= 0 && x->cols >= 1 && x->first + x->cols <= tensor.size(1), "attention: there are no ",
                 x->cols, " columns from ", x->first, " on in ", to_string(tensor.shape()));
    ISOBAR_CHECK(x->cols == q.cols && tensor.dtype() == q.tensor.dtype(), "attention: ", q.cols,
                 " columns of queries in ", name_of(q.tensor.dtype()), " and ", x->cols, " of keys or values in ",
                 name_of(tensor.dtype()));
    ISOBAR_CHECK(batch >= 1 && heads >= 1 && x->cols % heads == 0 && tensor.size(0) % batch == 0,
                 "attention: ", to_string({tensor.size(0), x->cols}), " queries, keys or values do not divide into ",
                 batch, " samples of ", heads, " heads");
  }
  ISOBAR_CHECK(k.tensor.size(0) == v.tensor.size(0), "attention: ", k.tensor.size(0), " keys and ", v.tensor.size(0),
               " values");
  for (const auto& [a, b] : {std::pair(&q, &k), std::pair(&q, &v), std::pair(&k, &v)})
    ISOBAR_CHECK(!are_one(a->tensor, b->tensor) || a->first + a->cols <= b->first || b->first + b->cols <= a->first,
                 "attention: queries, keys and values must not share columns of a tensor ",
                 to_string(a->tensor.shape()));
  return {batch, heads, q.tensor.size(0) / batch, k.tensor.size(0) / batch, q.cols / heads};
}

// The tensors that hold the operands, each once, and the gradient of each: zero in columns that no operand uses.
struct TensorGradients {
  std::vector<Tensor> tensors, gradients;

  explicit TensorGradients(const AttentionBlock& a) {
    for (const Columns* x : a.all()) {
      if (gradient(*x).defined()) continue;
      std::int64_t covered = 0;
      for (const Columns* y : a.all()) covered += are_one(x->tensor, y->tensor) ? y->cols : 0;
      tensors.push_back(x->tensor);
      gradients.push_back(gradient_like(x->tensor));
      const Tensor& made = gradients.back();
      if (covered < x->tensor.size(1))
        ISOBAR_RUN(made.device(), fill, {.n = made.numel(), .dtype = made.dtype(), .value = 0, .y = made.data()},
                   current_stream());
    }
  }
  Tensor gradient(const Columns& x) const {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (are_one(tensors[i], x.tensor)) return gradients[i];
    return {};
  }
  Columns of(const Columns& x) const { return {gradient(x), x.first, x.cols}; }
};

// limits: of each query, [B, Tq]; may be undefined.
void check_limits(const char* what, const Tensor& limits, const AttentionShape& s) {
  if (!limits.defined()) return;
  ISOBAR_CHECK(limits.dtype() == DType::i32 && limits.numel() == s.batch * s.q_tokens, "attention: ", what, " ",
               to_string(limits.shape()), " in ", name_of(limits.dtype()), " is no i32 for each of ",
               s.batch * s.q_tokens, " queries");
  if (!(limits.device() == Device{})) return;
  const auto* of = limits.data_as<std::int32_t>();
  for (std::int64_t i = 0; i + 1 < limits.numel(); ++i)
    ISOBAR_CHECK((i + 1) % s.q_tokens == 0 || of[i] <= of[i + 1], "attention: ", what, " decreases from ", of[i],
                 " to ", of[i + 1], " at query ", i % s.q_tokens, " of sample ", i / s.q_tokens);
}

// In a trace the pairs that the intervals leave are counted, if the host has them.
AttentionKeys keys_of(const AttentionBlock& a) {
  const auto pointer = [](const Tensor& limits) { return limits.defined() ? limits.data_as<std::int32_t>() : nullptr; };
  AttentionKeys keys{pointer(a.keys.begin), pointer(a.keys.end), a.keys.share};
  if (trace_of_thread != nullptr && a.device() == Device{} && keys.are_limited())
    keys.share =
        attention_share({.shape = a.shape, .causal = a.causal, .window = a.window, .dropout = {}, .keys = keys});
  return keys;
}

}  // namespace

AttentionBlock::AttentionBlock(const Columns& queries, const Columns& keys, const Columns& values,
                               const AttentionOptions& options)
    : q(queries),
      k(keys),
      v(values),
      shape(shape_of(q, k, v, options.batch, options.heads)),
      scale(options.scale),
      causal(options.causal),
      tf32(options.tf32),
      window(options.window),
      dropout{.p = options.dropout,
              .seed = options.key.seed,
              .stream = options.key.stream,
              .stream_offset = options.key.stream_offset},
      keys(options.keys) {
  check_limits("the begin of the keys", options.keys.begin, shape);
  check_limits("the end of the keys", options.keys.end, shape);
}

Tensor AttentionBlock::empty_lse() const {
  return Tensor::empty({shape.batch, shape.heads, shape.q_tokens}, accumulator_of(dtype()), device());
}

void run_attention(const AttentionBlock& a, const Tensor& o, const Tensor& lse) {
  ISOBAR_RUN(a.device(), attention_fwd,
             {.shape = a.shape,
              .dtype = a.dtype(),
              .o_dtype = o.dtype(),
              .scale = a.scale,
              .causal = a.causal,
              .tf32 = a.tf32,
              .window = a.window,
              .dropout = a.dropout,
              .q = data_of(a.q),
              .k = data_of(a.k),
              .v = data_of(a.v),
              .o = o.data(),
              .lse = lse.data(),
              .q_stride = stride_of(a.q),
              .k_stride = stride_of(a.k),
              .v_stride = stride_of(a.v),
              .o_stride = o.size(1),
              .keys = keys_of(a)},
             current_stream());
}

void run_attention_backward(const AttentionBlock& a, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                            const AttentionGradients& gradients) {
  const auto& [dq, dk, dv, dq_mode, dkv_mode] = gradients;
  const Tensor scratch = workspace(attention_bwd_workspace(a.shape, a.dtype()), a.device());
  ISOBAR_RUN(a.device(), attention_bwd,
             {.shape = a.shape,
              .dtype = a.dtype(),
              .o_dtype = o.dtype(),
              .grad_dtype = dq.tensor.dtype(),
              .scale = a.scale,
              .causal = a.causal,
              .tf32 = a.tf32,
              .window = a.window,
              .dropout = a.dropout,
              .q = data_of(a.q),
              .k = data_of(a.k),
              .v = data_of(a.v),
              .o = o.data(),
              .lse = lse.data(),
              .d_o = d_o.data(),
              .dq = data_of(dq),
              .dk = data_of(dk),
              .dv = data_of(dv),
              .q_stride = stride_of(a.q),
              .k_stride = stride_of(a.k),
              .v_stride = stride_of(a.v),
              .o_stride = o.size(1),
              .do_stride = o.size(1),
              .dq_stride = stride_of(dq),
              .dk_stride = stride_of(dk),
              .dv_stride = stride_of(dv),
              .dq_mode = dq_mode,
              .dkv_mode = dkv_mode,
              .workspace = scratch.data(),
              .keys = keys_of(a)},
             current_stream());
}

Tensor attention(const Tensor& qkv, const AttentionOptions& options) {
  check_operands("attention", {{"the tensor of queries, keys and values", qkv, 2}});
  const std::int64_t embed = qkv.size(1) / 3;
  ISOBAR_CHECK(qkv.size(1) == 3 * embed && options.heads >= 1 && embed % options.heads == 0 && options.batch >= 1 &&
                   qkv.size(0) % options.batch == 0,
               "attention: queries, keys and values ", to_string(qkv.shape()), " do not divide into ", options.batch,
               " samples of ", options.heads, " heads");
  return attention({qkv, 0, embed}, {qkv, embed, embed}, {qkv, 2 * embed, embed}, options);
}

Tensor attention(const Columns& q, const Columns& k, const Columns& v, const AttentionOptions& options) {
  const AttentionBlock a(q, k, v, options);
  Tensor o = Tensor::empty({q.tensor.size(0), q.cols}, a.dtype(), a.device());
  const Tensor lse = a.empty_lse();
  run_attention(a, o, lse);

  std::vector<const Tensor*> inputs;
  std::vector<Tensor> saved;
  for (const Columns* x : a.all()) {
    if (std::any_of(saved.begin(), saved.end(), [x](const Tensor& y) { return are_one(x->tensor, y); })) continue;
    inputs.push_back(&x->tensor);
    saved.push_back(x->tensor);
  }
  saved.insert(saved.end(), {o, lse});
  for (const Tensor& limits : {a.keys.begin, a.keys.end})
    if (limits.defined()) saved.push_back(limits);
  Tape::record("attention", inputs, saved, std::array{&o},
               [a, lse, o = o.detach()](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const TensorGradients made(a);
                 run_attention_backward(a, o, lse, dy[0], {made.of(a.q), made.of(a.k), made.of(a.v)});
                 for (std::size_t i = 0; i < made.tensors.size(); ++i)
                   gradients.give(made.tensors[i], made.gradients[i]);
               });
  return o;
}

}  // namespace isobar
