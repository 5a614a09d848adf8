// The attention kernels on tensors: what the op (engine/ops/attention.cc) calls once, and the ops that make one
// attention of several calls (comm/context_attention.h) call for every block of keys. Nothing is recorded here.
#pragma once

#include <array>
#include <cstdint>

#include "engine/ops.h"

namespace isobar {

// Operands and shape of a call.
struct AttentionBlock {
  Columns q, k, v;
  AttentionShape shape;
  double scale;
  bool causal, tf32;
  AttentionWindow window;
  AttentionDropout dropout;

  // Error where operands and options do not fit together.
  AttentionBlock(const Columns& q, const Columns& k, const Columns& v, const AttentionOptions& options);

  std::array<const Columns*, 3> all() const { return {&q, &k, &v}; }
  DType dtype() const { return q.tensor.dtype(); }
  Device device() const { return q.tensor.device(); }

  // Not written yet: [B, NH, Tq] in the accumulator's type.
  Tensor empty_lse() const;
};

// o [B·Tq, E] in the operands' dtype or the accumulator's; lse of AttentionBlock::empty_lse.
void run_attention(const AttentionBlock& block, const Tensor& o, const Tensor& lse);

// Where a call's gradients go, all three in one dtype: that of the operands or the accumulator's.
struct AttentionGradients {
  Columns dq, dk, dv;
  Grad dq_mode = Grad::overwrite;
};
// With the o and lse over all keys, of which the block may hold some only; d_o [B·Tq, E].
void run_attention_backward(const AttentionBlock& block, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                            const AttentionGradients& gradients);

}  // namespace isobar
