// The residual stream of a network of blocks: a matrix [B·T, C] to whose rows, the tokens of all samples, every branch
// adds. This class knows which of the rows a rank has.
//
//   data parallel      some of the samples
//   context parallel   of each sample a range of its tokens (Build::token_unit)
//   sequence parallel  between the branches of the blocks a contiguous range of the rows that are left; all of them
//                      within a branch, where tensor-parallel ranks have some of the heads or hidden channels
//
// A random mask is drawn for the elements of the whole stream of the global batch (kernels/common/window.h), so that it
// does not depend on how many ranks there are.
#pragma once

#include <cstdint>

#include "comm/dealt_axis.h"
#include "models/build.h"
#include "models/stage.h"

namespace isobar {

// What goes from block to block: the value of the stream is x + branch, which the next norm adds up, in the kernel that
// reads the sum anyway. [B·T, C] both; x in the parameters' dtype, branch in the activation's. `branch` is undefined
// before the first block.
struct Residual {
  Tensor x, branch;

  // As it crosses from stage to stage.
  static Residual of(const Tensors& list) { return {list[0], list.size() > 1 ? list[1] : Tensor()}; }
  Tensors list() const { return {x, branch}; }
};

class ResidualStream {
 public:
  // Of build.tokens tokens a sample, as build.parallel shares them. What is called below is an Error where a
  // context-parallel rank gets none, and where samples are split whose tokens are not known.
  explicit ResidualStream(const Build& build);

  // The stream begins: [B·T, C] of all tokens that the rank has -> those of its rows, dropped at rate p.
  Tensor begin(const Tensor& tokens, double p, Pass& pass) const;
  // It ends: back to all tokens that the rank has.
  Tensor end(const Tensor& rows, const Pass& pass) const;

  // Dropout of x [rows, C], and of whole samples of it.
  Tensor drop(const Tensor& x, double p, Pass& pass) const;
  Tensor drop_path(const Tensor& x, double p, Pass& pass) const;
  // Dropout within a branch: of x [B·T, columns of this rank], of whose columns there are columns.total in all.
  Tensor drop_within(const Tensor& x, double p, Pass& pass, const Span& columns) const;

  // B·T: the rows that a branch computes.
  std::int64_t rows_within(const Tensor& x, const Pass& pass) const;
  std::int64_t tokens() const { return own_.size(); }  // of a sample, on this rank; 0: not known
  std::int64_t first_token() const { return own_.begin; }
  // T of a whole sample, for x [rows, C].
  DealtAxis axis(const Tensor& x, const Pass& pass) const;

 private:
  RowWindow window(const Tensor& x, const Pass& pass, bool within) const;

  const Parallel& parallel_;
  std::int64_t total_, unit_;
  Part own_;  // tokens of a sample
};

}  // namespace isobar
