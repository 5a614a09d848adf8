// How one forward pass runs: whether it trains, where its random masks come from, and which block of the whole pass it
// computes.
#pragma once

#include <cstdint>

#include "engine/ops.h"
#include "kernels/common/window.h"

namespace isobar {

// What a rank computes of a forward pass that several ranks share; by default all of it. The tensors of the pass are
// [B·T, C]. The rank has some samples of the batch and a band of the tokens of each; within a branch it may have some
// of the heads and of the hidden channels, and between the branches some of its own rows only. Masks are drawn for the
// elements of the whole (kernels/common/window.h).
struct PassBlock {
  enum class Rows { all, own };  // of the samples and tokens that the rank has; those it has between the branches

  SampleWindow samples = {};
  Span tokens = {}, heads = {}, hidden = {};
  std::int64_t token_unit = 1;   // tokens are dealt over context-parallel ranks in whole rows of so many patches
  std::int64_t batch_size = 0;   // samples that the rank has; 0: its rows tell, where it has all rows of each
  std::int64_t sample_rows = 0;  // tokens of a sample that the rank has; 0: rows / batch
  std::int64_t first_own = 0;    // where its own rows begin among all of them

  AttentionWindow attention() const { return {samples, heads, tokens, tokens}; }
  // How many rows the samples and tokens of the rank have; x [rows, C] may be its own ones only.
  std::int64_t row_count(const Tensor& x, std::int64_t batch) const {
    return sample_rows != 0 ? batch * sample_rows : x.size(0);
  }
  // Of x [rows, C]. `batch`: samples that the rank has.
  RowWindow rows(const Tensor& x, std::int64_t batch, Rows which) const {
    return {.before = which == Rows::own ? first_own : 0,
            .tokens = sample_rows != 0 ? sample_rows : x.size(0) / batch,
            .samples = samples,
            .band = tokens};
  }
  ElementWindow elements(const Tensor& x, std::int64_t batch, Rows which, const Span& columns = {}) const {
    return {.cols = x.size(1), .columns = columns, .rows = rows(x, batch, which)};
  }
};

struct Context {
  bool training = false;  // dropout and drop path are applied
  // Mask n of the pass is drawn with the key {seed, stream + n}. Passes need streams at least 2^16 apart.
  DropoutKey masks = {};
  PassBlock block = {};

  DropoutKey mask(std::uint64_t n) const { return {masks.seed, masks.stream + n, masks.more_stream}; }
  float rate(double p) const { return training ? static_cast<float>(p) : 0; }  // p in training, else 0

  // The same pass for a part of the network whose mask 0 is this one's mask n. A layer counts its masks from 0 (kMasks
  // of them), and whoever contains it gives it a range of its own.
  Context masks_from(std::uint64_t n) const { return {training, mask(n), block}; }

  // The same pass over that many samples of the rank: for networks whose stages do not all have whole samples.
  Context with_batch(std::int64_t samples) const {
    Context same = *this;
    same.block.batch_size = samples;
    return same;
  }
};

}  // namespace isobar
