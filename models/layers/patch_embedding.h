// Images as tokens (Dosovitskiy et al. 2020): each patch of P x P points, with all its variables, goes through one
// linear layer. That is a convolution with a P x P kernel and stride P, and its weight has the shape of a
// convolution's.
//
// Each context-parallel rank holds a band of whole rows of patches, which it treats as a smaller image.
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
  // Registers name.proj.weight [C, V, P, P] and name.proj.bias [C]; both are initialised as in PyTorch's Conv2d. Error
  // if a context-parallel rank would get no row of patches.
  PatchEmbedding(const Build& build, const std::string& name, const PatchEmbeddingSpec& spec);

  // [B, V, LAT, LON] in the parameters' dtype -> [B·T, C] in the same; patches in row-major order. LAT and T are those
  // of this rank. Error if an image has another shape, or if P does not divide LAT and LON.
  Tensor operator()(const Tensor& image) const;
  Weights weights() const { return {weight_, bias_}; }

  Part rows() const { return rows_; }  // this rank's rows of the whole image

 private:
  const Parameters& parameters_;
  PatchEmbeddingSpec spec_;
  bool tf32_;
  Part rows_;
  int weight_, bias_;
};

}  // namespace isobar
