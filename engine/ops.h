// The index of differentiable operations: one line each. kernels/x.h has the formula and the contract of op x;
// engine/ops/x.cc checks shapes, allocates, runs the kernel for the device and records the backward.
#pragma once

#include <cstdint>

#include "engine/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/window.h"
#include "kernels/cross_entropy.h"
#include "kernels/forecast_loss.h"
#include "kernels/gemm/gemm.h"
#include "kernels/patchify.h"

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
  bool causal = false;  // a query sees no keys behind it
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

struct LossInputs {
  LossKind kind = LossKind::relative_l2;
  Tensor row_weights = {}, channel_weights = {};  // [H] of the rows given, [C]; may be undefined
  std::int64_t whole_height = 0;  // of the picture that the fields are a band of rows of; 0: they are all of it
  AddUp add_up = {};              // of the sums [B, 2] of the bands; empty: there is one
  std::int64_t patch = 0;         // of a forecast in rows of patches, PatchOrder::channels_last; 0: it is fields
};

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearOptions options);  // [M,K]·[N,K]ᵀ + [N]
Tensor mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
           LinearOptions options);              // fc2(gelu(fc1 x)), gelu computed again in the backward
Tensor gelu(const Tensor& x, Activation kind);  // any shape
Tensor layernorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                 DType out_dtype);  // [M,C] -> [M,C]
LayernormResult layernorm_residual(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                                   double eps);                        // s = x + branch; y = norm(s)
Tensor attention(const Tensor& qkv, const AttentionOptions& options);  // [B·T,3·E] -> [B·T,E]
Tensor attention(const Columns& q, const Columns& k, const Columns& v,
                 const AttentionOptions& options);  // [B·Tq,E], [B·Tk,E] twice -> [B·Tq,E]
Tensor patchify(const Tensor& image, std::int64_t patch, PatchOrder order,
                DType out_dtype);  // [B,C,H,W] -> [B·N,C·p·p]
Tensor unpatchify(const Tensor& tokens, Shape image_shape, std::int64_t patch,
                  PatchOrder order);                 // [B·N,C·p·p] -> [B,C,H,W]
Tensor add(const Tensor& a, const Tensor& b);        // same shape; result in a's dtype
Tensor add_row(const Tensor& x, const Tensor& row);  // [G·M,C] + [M,C], row repeated
Tensor add_row(const Tensor& x, const Tensor& row, std::int64_t first,
               std::int64_t count);  // [G·M,C] + [N,C](first : first + M), M = count; other rows get zeros
Tensor add_leading_channels(const Tensor& x,
                            const Tensor& fields);  // [B,C,H,W] + [B,C+k,H,W](:, :C); no gradient to fields
Tensor dropout(const Tensor& x, float p, DropoutKey key, const ElementWindow& window = {});  // any shape
Tensor drop_path(const Tensor& x, float p, DropoutKey key, const RowWindow& rows);           // [M,C], whole samples
Tensor forecast_loss(const Tensor& pred, const Tensor& target,
                     const LossInputs& inputs);  // [B,C,H,W] or [B·N,p·p·C], [B,C,H,W] -> [1]; no gradient to target
Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     std::int32_t ignore = kIgnoredLabel);  // [M,C], [M] of i32 -> [1]; no gradient to labels

ClassPredictions class_predictions(const Tensor& logits, const Tensor& labels);  // [M,C], [M] of i32; never recorded

}  // namespace isobar
