// The residual stream of a network of blocks: a matrix [B·T, C] with one row per token; every branch adds to it. This
// class knows which rows a rank has.
//
//   data parallel      some of the samples
//   context parallel   a range of the tokens of each sample (Build::token_multiple), or two (Build::zigzag)
//   sequence parallel  between branches a contiguous range of the remaining rows; within a branch all of them, while
//                      each tensor-parallel rank has some of the heads or hidden channels
//
// A random mask is a function of positions in the whole stream of the global batch (kernels/common/window.h), so it
// does not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/sharded_axis.h"
#include "models/build.h"
#include "models/stage.h"

namespace isobar {

// The value passed between blocks: the stream is x + branch. The next norm adds them in its own kernel, which reads the
// sum anyway. Both [B·T, C]; x in the parameters' dtype, branch in the activation's. `branch` is undefined before the
// first block.
struct Residual {
  Tensor x, branch;
  // x is the sum that another rank has made (models/pipeline_share.h). The next norm treats it as if it had added the
  // branch itself, so that all gradients have the same bits.
  bool is_joined = false;

  // Conversion to and from the tensors that pass between stages.
  // {x} before the first block, {x, branch} behind a block, {x, undefined} where they have been joined.
  static Residual of(const Tensors& list) {
    if (list.size() == 1) return {list[0], {}};
    return {list[0], list[1], !list[1].defined()};
  }
  Tensors list() const { return {x, branch}; }
};

class ResidualStream {
 public:
  // For build.tokens tokens per sample, split by build.parallel. Error if there are fewer tokens than chunks in
  // zig-zag; in the functions below if a context-parallel rank has no tokens, or if samples are split but build.tokens
  // is unknown.
  explicit ResidualStream(const Build& build);

  // Start of the stream: [B·T, C] of all tokens of this rank -> this rank's rows, with dropout at rate p.
  Tensor begin(const Tensor& tokens, double p, Pass& pass) const;
  // End of the stream: back to all tokens of this rank.
  Tensor end(const Tensor& rows, const Pass& pass) const;

  // Dropout of elements of x [rows, C], and of whole samples.
  Tensor drop(const Tensor& x, double p, Pass& pass) const;
  Tensor drop_path(const Tensor& x, double p, Pass& pass) const;
  // Dropout within a branch: x [B·T, columns of this rank]; columns.total is the number of columns over all ranks.
  Tensor drop_within(const Tensor& x, double p, Pass& pass, const Span& columns) const;

  // B·T: the number of rows that a branch computes.
  std::int64_t rows_within(const Tensor& x, const Pass& pass) const;
  std::int64_t tokens() const;  // of a sample, on this rank; 0: unknown
  std::int64_t first_token() const { return chunks_.front().begin; }
  // The tokens of a sample that this rank has, ascending: one range or two. An empty one: unknown.
  const std::vector<Part>& chunks() const { return chunks_; }
  // T of a whole sample and its split over ranks, for x [rows, C].
  ShardedAxis axis(const Tensor& x, const Pass& pass) const;

 private:
  RowWindow window(const Tensor& x, const Pass& pass, bool within) const;
  ShardedAxis axis_of(std::int64_t tokens) const;

  const Parallel& parallel_;
  std::int64_t total_, unit_;
  bool zigzag_;
  std::vector<Part> chunks_;
};

}  // namespace isobar
