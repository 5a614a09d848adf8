// The index of differentiable operations, a line each; those on fields are in engine/field_ops.h. kernels/x.h has the
// formula and the contract of op x; engine/ops/x.cc checks shapes, allocates, runs the kernel for the device and
// records the backward.
#pragma once

#include <cstdint>

#include "engine/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/activation.h"
#include "kernels/common/window.h"
#include "kernels/cross_entropy.h"

namespace isobar {

// A mask that can be drawn again: the same key gives the same mask on every device. Where a captured step draws it,
// `more_stream` is memory of the device, which the caller keeps, with a number that is added to the stream.
struct DropoutKey {
  std::uint64_t seed = 0, stream = 0;
  const std::uint64_t* more_stream = nullptr;
};

struct LinearOptions {
  Activation activation = Activation::none;
  DType out_dtype = DType::fp32;
  bool tf32 = false;
};

// An operand of attention: the tokens of all samples, [B·T, cols]. They may be columns of a wider tensor, so that
// queries, keys and values that one product has made need no copies.
struct Columns {
  Tensor tensor;
  std::int64_t first = 0, cols = 0;

  // NOLINTNEXTLINE: implicit, so that the op takes tensors
  Columns(const Tensor& all) : tensor(all), cols(all.shape().empty() ? 0 : all.size(-1)) {}
  Columns(const Tensor& of, std::int64_t begin, std::int64_t count) : tensor(of), first(begin), cols(count) {}
};

struct AttentionOptions {
  std::int64_t batch = 0, heads = 0;
  double scale = 1;
  bool causal = false;  // query i sees keys j <= i
  bool tf32 = false;    // as of LinearOptions
  float dropout = 0;    // of the probabilities
  DropoutKey key = {};
  AttentionWindow window = {};  // where the block of queries and keys lies in the global batch
};

struct LayernormResult {
  Tensor sum, y;  // the residual stream after the branch was added, and its norm
};

// Of labelled samples, one a row of logits.
struct ClassPredictions {
  Tensor loss;        // [1], the mean
  Tensor row_loss;    // [M]
  Tensor prediction;  // [M] i32, the class of the greatest logit; -1 where a logit is NaN or +inf
};

// [M,K]·[N,K]ᵀ + [N] -> [M,N]; the bias may be undefined.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, LinearOptions);
// fc2(gelu(fc1 x)), [M,K] -> [M,N]; the backward computes the gelu again.
Tensor mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2, LinearOptions);

// Any shape.
Tensor gelu(const Tensor& x, Activation kind);
// [M,C] -> [M,C].
Tensor layernorm(const Tensor& x, const Tensor& w, const Tensor& b, double eps, DType out_dtype);
// s = x + branch; y = layernorm(s); all [M,C].
LayernormResult layernorm_residual(const Tensor& x, const Tensor& branch, const Tensor& w, const Tensor& b, double eps);

// [B·T,3·E] -> [B·T,E].
Tensor attention(const Tensor& qkv, const AttentionOptions& options);
// [B·Tq,E], [B·Tk,E] twice -> [B·Tq,E].
Tensor attention(const Columns& q, const Columns& k, const Columns& v, const AttentionOptions& options);

// Of one shape; the result has the dtype of a.
Tensor add(const Tensor& a, const Tensor& b);
// [G·M,C] + [M,C], the rows repeated G times.
Tensor add_row(const Tensor& x, const Tensor& row);
// The same with rows [first, first + count) of [N,C], M = count; the gradient of the other rows is zero.
Tensor add_row(const Tensor& x, const Tensor& row, std::int64_t first, std::int64_t count);
// Any shape.
Tensor dropout(const Tensor& x, float p, DropoutKey key, const ElementWindow& window = {});
// [M,C]; drops all rows of a sample or none.
Tensor drop_path(const Tensor& x, float p, DropoutKey key, const RowWindow& rows);

// [M,C], [M] of i32 -> [1], the mean over the labels that are not `ignore`; no gradient to labels.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::int32_t ignore = kIgnoredLabel);
// [M,C], [M] of i32; never recorded.
ClassPredictions class_predictions(const Tensor& logits, const Tensor& labels);

}  // namespace isobar
