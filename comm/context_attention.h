// Attention among ranks that hold different tokens of the same samples (context parallel). One recorded op, in three
// forms that compute the same and differ in what travels (docs/parallelism.md):
//
//   all_to_all   tokens are exchanged for heads: a rank gets some of the heads with all tokens, computes the serial
//                attention of these, and gives the outputs back (DeepSpeed-Ulysses: Jacobs et al. 2023)
//   gather       every rank gets the keys and values of all tokens, and computes its own queries
//   ring         keys and values go round, a rank's block at a time, and the outputs over the blocks are merged by
//                their log-sum-exp (Liu et al. 2023); the next block travels while one is computed. Backward the
//                gradients of a block go round with it, and arrive at home after the last hop
//
// In the first two what is kept for the backward pass is that of the serial op, for this rank's share; gather collects
// keys and values once more. In 16 bits ring keeps outputs and gradients in the accumulator's type until all blocks
// have been added up; gather sums its dk and dv over the ranks in the operands' dtype.
#pragma once

#include "comm/dealt_axis.h"
#include "comm/parallel.h"
#include "engine/ops.h"

namespace isobar {

// The form that `automatic` stands for: all_to_all where every rank gets a head, else gather. Error where all_to_all is
// asked for with fewer heads than ranks.
ContextForm form_of(ContextForm asked, std::int64_t heads, int ranks);

// qkv [B·n_r, 3·E], the queries, keys and values of this rank's tokens -> [B·n_r, E]. `tokens`: of a sample, over
// `ranks`. The options are those of the serial op; of their window only samples and heads are read. On one rank this is
// the serial op.
Tensor context_attention(const Tensor& qkv, const AttentionOptions& options, const DealtAxis& tokens,
                         const Communicator& ranks, ContextForm form);

}  // namespace isobar
