// A vocabulary that ranks share (Shoeybi et al. 2019, "Megatron-LM"): each has some rows of the table of tokens, and so
// some columns of the logits. Written as the ops of comm/ops.h: recorded, called by all ranks of the groups alike, and
// on groups of one rank the serial op.
//
//   vocab_embedding      y = Σ_s table_s[ids]           the rows of a rank's own ids; those of other ranks are 0
//   vocab_cross_entropy  the mean of the row losses of all rows; each rank has some columns of its rows' logits
//   vocab_head_loss      the same of logits = x·Wᵀ, which are made some rows at a time and not kept
//
// One message of three numbers a row tells the ranks of `columns` what each found in its columns
// (kernels/cross_entropy.h); no rank has the logits of another. The ranks of `rows` then add up two numbers.
#pragma once

#include <cstdint>

#include "comm/parallel.h"
#include "engine/ops.h"

namespace isobar {

// The rows of a table of tokens that a rank has, which are its columns of the logits.
struct VocabPart {
  Part own;                  // of the rows
  std::int64_t classes = 0;  // of all ranks: rows from it on stand for no token

  // Of the own rows, at their end: those that stand for no token.
  std::int64_t padding() const;
};

// Ranks get whole groups of rows, as evenly as they go: of 64, since products like such sizes, or of fewer where there
// would be fewer groups than tensor-parallel ranks. Error if there are fewer rows than ranks.
std::int64_t vocab_group(std::int64_t rows, const Parallel& parallel);

// The part of this rank of `rows` rows of which the first `classes` are tokens.
VocabPart vocab_part(std::int64_t rows, std::int64_t classes, const Parallel& parallel);

// ids of i32, any shape, this rank's rows of the table [own, C] -> [ids, C] in out_dtype, on all ranks of parallel.tp.
Tensor vocab_embedding(const Tensor& ids, const Tensor& table, DType out_dtype, const VocabPart& part,
                       const Parallel& parallel);

// The groups of ranks that share logits.
struct VocabRanks {
  const Communicator& columns;  // have the same rows
  const Communicator& rows;     // have other rows of the same samples
};

// logits [rows, own columns], labels [rows] of i32 -> [1], the mean over the labels of all `rows` ranks that are not
// `ignore`; the same on all ranks.
Tensor vocab_cross_entropy(const Tensor& logits, const Tensor& labels, std::int32_t ignore, const VocabPart& part,
                           const VocabRanks& ranks);

struct HeadLossOptions {
  std::int64_t rows_at_a_time = 1;
  std::int32_t ignore = kIgnoredLabel;
  bool tf32 = false;
};

// The loss of a last product whose logits never exist all at once: those of rows_at_a_time rows do, in x's dtype. The
// backward pass makes them again, and turns them into their gradient where they lie: one product more. x: rows of the
// stream as column_linear takes them (comm/ops.h), of which a branch would compute `rows`; weight: this rank's rows of
// the table, [own, C]. The bits of the loss do not depend on rows_at_a_time; the gradient of the weight adds up in as
// many parts.
Tensor vocab_head_loss(const Tensor& x, std::int64_t rows, const Tensor& weight, const Tensor& labels,
                       const HeadLossOptions& options, const VocabPart& part, const Parallel& parallel);

// Of this rank's rows; `loss` is their mean alone. Never recorded.
ClassPredictions vocab_predictions(const Tensor& logits, const Tensor& labels, const VocabPart& part,
                                   const Communicator& columns);

}  // namespace isobar
