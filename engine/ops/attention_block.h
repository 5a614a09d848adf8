// The attention kernels on tensors. The op (engine/ops/attention.cc) calls them once. Ops that compute one attention in
// several calls (comm/context_attention.h) call them for every block of keys. Nothing is recorded here.
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
  KeyIntervals keys;

  // Error if operands and options do not fit together; on the CPU also if an interval decreases.
  AttentionBlock(const Columns& q, const Columns& k, const Columns& v, const AttentionOptions& options);

  std::array<const Columns*, 3> all() const { return {&q, &k, &v}; }
  DType dtype() const { return q.tensor.dtype(); }
  Device device() const { return q.tensor.device(); }

  // Uninitialised: [B, NH, Tq] in the accumulator's type.
  Tensor empty_lse() const;
};

// o [B·Tq, C] in the operands' dtype or the accumulator's; lse from AttentionBlock::empty_lse.
void run_attention(const AttentionBlock& block, const Tensor& o, const Tensor& lse);

// The buffers of a call's gradients, all three in one dtype: the operands' or the accumulator's.
struct AttentionGradients {
  Columns dq, dk, dv;
  Grad dq_mode = Grad::overwrite, dkv_mode = Grad::overwrite;
};
// o [B·Tq, C] and lse are over all keys; the block may hold only some of them. d_o [B·Tq, C].
void run_attention_backward(const AttentionBlock& block, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                            const AttentionGradients& gradients);

}  // namespace isobar
