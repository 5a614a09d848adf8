// Images as tokens (Dosovitskiy et al. 2020): each patch of P x P points, with all its variables, goes through one
// linear layer. That is a convolution with a P x P kernel and stride P, and its weight is stored as one.
//
// Context-parallel ranks hold a band of whole rows of patches each: for them the image is a smaller one.
#pragma once

#include <cstdint>
#include <string>

#include "models/build.h"
#include "models/pass.h"

namespace isobar {

struct PatchEmbeddingSpec {
  std::int64_t channels = 0, height = 0, width = 0;  // V, LAT, LON of the whole image
  std::int64_t patch = 0, embed = 0;                 // P, C
};

class PatchEmbedding {
 public:
  // Lists name.proj.weight [C, V, P, P] and name.proj.bias [C]; both start as PyTorch's Conv2d. Error where a
  // context-parallel rank would get no row of patches.
  PatchEmbedding(const Build& build, const std::string& name, const PatchEmbeddingSpec& spec);

  // [B, V, LAT, LON] in the parameters' dtype -> [B·T, C] in the same; patches in row-major order. LAT and T are those
  // of this rank. Error where an image has another shape, and where P does not divide LAT and LON.
  Tensor operator()(const Tensor& image) const;
  Weights weights() const { return {weight_, bias_}; }

  Part rows() const { return rows_; }  // of the whole image, that this rank has

 private:
  const Parameters& parameters_;
  PatchEmbeddingSpec spec_;
  bool tf32_;
  Part rows_;
  int weight_, bias_;
};

}  // namespace isobar
