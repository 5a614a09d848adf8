// Attention among ranks that hold different tokens of the same samples (context parallel). One recorded op in three
// forms. They compute the same and differ in what they communicate (docs/parallelism.md):
//
//   all_to_all   a rank receives all tokens of some heads, computes the serial attention of these heads, and sends
//                the outputs back (DeepSpeed-Ulysses: Jacobs et al. 2023)
//   gather       a rank receives the keys and values of all tokens, and computes the outputs of its own queries
//   ring         keys and values pass around the ring, one rank's block at a time. The outputs over the blocks are
//                merged by their log-sum-exp (Liu et al. 2023). The next block is sent while one is computed. In the
//                backward pass a block's gradients pass around with it, and reach their rank after the last hop
//
// Tokens may be in zig-zag (comm/sharded_axis.h), as a causal mask wants them. Then gather and ring compute each chunk
// of a rank's queries by itself: against all keys, or against each chunk of keys that it sees.
//
// For the backward pass, all_to_all and gather save what the serial op saves, for this rank's share; gather gathers
// keys and values again. With 16-bit tensors ring keeps outputs and gradients in the accumulator's dtype until all
// blocks are added; gather sums its dk and dv over the ranks in the operands' dtype.
#pragma once

#include "comm/parallel.h"
#include "comm/sharded_axis.h"
#include "engine/ops.h"

namespace isobar {

// The form that `automatic` means: all_to_all if there is a head for every rank, else gather. Error if all_to_all is
// requested with fewer heads than ranks.
ContextForm form_of(ContextForm asked, std::int64_t heads, int ranks);

// qkv [B·n_r, 3·C], the queries, keys and values of this rank's tokens -> [B·n_r, C]. `tokens`: how the tokens of a
// sample are split over `ranks`. The options are those of the serial op; only samples and heads of their window are
// read, and their intervals of keys are those of whole samples. With one rank this is the serial op.
Tensor context_attention(const Tensor& qkv, const AttentionOptions& options, const ShardedAxis& tokens,
                         const Communicator& ranks, ContextForm form);

}  // namespace isobar
