// The index of differentiable operations, a line each; those on fields are in engine/field_ops.h, convolutions
// in engine/conv_ops.h. kernels/x.h has the formula and the contract of op x. engine/ops/x.cc checks shapes, allocates,
// runs the kernel for the device and records the backward.
#pragma once

#include <cstdint>

#include "engine/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/activation.h"
#include "kernels/common/window.h"
#include "kernels/cross_entropy.h"

namespace isobar {

// The key of a random mask: the same key gives the same mask on every device. In a captured step `stream_offset`
// points to a number in device memory, which is added to `stream`; the caller keeps that memory.
struct DropoutKey {
  std::uint64_t seed = 0, stream = 0;
  const std::uint64_t* stream_offset = nullptr;
};

struct LinearOptions {
  Activation activation = Activation::none;
  DType out_dtype = DType::fp32;
  bool tf32 = false;
};

// An operand of attention: the tokens of all samples, [B·T, cols]. They may be columns of a wider tensor, so that one
// product can make queries, keys and values without copies.
struct Columns {
  Tensor tensor;
  std::int64_t first = 0, cols = 0;

  // NOLINTNEXTLINE: implicit, so that the op takes tensors
  Columns(const Tensor& all) : tensor(all), cols(all.shape().empty() ? 0 : all.size(-1)) {}
  Columns(const Tensor& of, std::int64_t begin, std::int64_t count) : tensor(of), first(begin), cols(count) {}
};

// Of every query of a sample, [B, Tq] of i32: the first key that it sees, and the first one after those; undefined: the
// first of all, and none. Neither decreases with the query (kernels/attention/attention.h).
struct KeyIntervals {
  Tensor begin = {}, end = {};
  double share = 1;  // of the pairs that `causal` leaves, those that they leave in the mean: for the cost model alone
};

struct AttentionOptions {
  std::int64_t batch = 0, heads = 0;
  double scale = 1;
  bool causal = false;  // query i sees keys j <= i
  bool tf32 = false;    // see LinearOptions
  float dropout = 0;    // probability of dropping an attention weight
  DropoutKey key = {};
  // The position of these queries and keys in the global batch.
  AttentionWindow window = {};
  KeyIntervals keys = {};
};

struct LayernormResult {
  Tensor sum, y;  // the residual stream after the branch was added, and its norm
};

// For labelled samples, one a row of logits [rows, classes].
struct ClassPredictions {
  Tensor loss;        // [1], the mean
  Tensor row_loss;    // [rows]
  Tensor prediction;  // [rows] i32, the class of the largest logit; -1 if a logit is NaN or +inf
};

// [M,K]·[N,K]ᵀ + [N] -> [M,N]; the bias may be undefined.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, LinearOptions);
// fc2(gelu(fc1 x)), [M,K] -> [M,N]; the backward pass computes the gelu again.
Tensor mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2, LinearOptions);

// Any shape.
Tensor gelu(const Tensor& x, Activation kind);
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x);  // 0.01·x below 0
Tensor tanh(const Tensor& x);
// [B·T,C] -> [B·T,C]. The bias may be undefined: 0.
Tensor layernorm(const Tensor& x, const Tensor& w, const Tensor& b, double eps, DType out_dtype);
// s = x + branch; y = layernorm(s); all [B·T,C].
LayernormResult layernorm_residual(const Tensor& x, const Tensor& branch, const Tensor& w, const Tensor& b, double eps);
// The same without a branch: s is x. All gradients have the bits of layernorm_residual for x + branch = this x.
LayernormResult layernorm_stream(const Tensor& x, const Tensor& w, const Tensor& b, double eps, DType out_dtype);

// [B·T,3·C] -> [B·T,C].
Tensor attention(const Tensor& qkv, const AttentionOptions& options);
// q [B·Tq,C], k and v [B·Tk,C] -> [B·Tq,C].
Tensor attention(const Columns& q, const Columns& k, const Columns& v, const AttentionOptions& options);

// Of one new token of each sample, qkv [B,3·C], whose earlier keys and values are kept in [B,capacity,C] -> [B,C]; its
// own are added to them. positions: [B] of i32. batch and causal are not read; never recorded.
Tensor attention_cached(const Tensor& qkv, const Tensor& keys, const Tensor& values, const Tensor& positions,
                        const AttentionOptions& options);

// Both of one shape; the result has the dtype of a.
Tensor add(const Tensor& a, const Tensor& b);
// [B·T,C] + [T,C]: row is added to every sample.
Tensor add_row(const Tensor& x, const Tensor& row);
// [B·count,C] + rows [first, first + count) of [T,C]; the gradient of the other rows is zero.
Tensor add_row(const Tensor& x, const Tensor& row, std::int64_t first, std::int64_t count);
// Any shape.
Tensor dropout(const Tensor& x, float p, DropoutKey key, const ElementWindow& window = {});
// [B·T,C]; drops all rows of a sample or none.
Tensor drop_path(const Tensor& x, float p, DropoutKey key, const RowWindow& rows);

// ids of i32, any shape, [rows,C] -> [ids,C], in the table's dtype, or in fp32 if that has 16 bits. Row r is that of id
// first + r; an id without a row gives 0. No gradient to ids.
Tensor embedding(const Tensor& ids, const Tensor& table, DType out_dtype, std::int64_t first = 0);

// [rows,classes], [rows] of i32 -> [1], the mean over the labels that are not `ignore`; no gradient to labels. The last
// `padding` columns are no classes.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::int32_t ignore = kIgnoredLabel,
                     std::int64_t padding = 0);
// [rows,classes], [rows] of i32; never recorded.
ClassPredictions class_predictions(const Tensor& logits, const Tensor& labels, std::int64_t padding = 0);

}  // namespace isobar
