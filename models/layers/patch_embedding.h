// Images as tokens (Dosovitskiy et al. 2020): each patch of P x P points, with all its variables, goes through one
// linear layer. That is a convolution with a P x P kernel and stride P, and its weight is stored as one.
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops.h"
#include "engine/parameters.h"

namespace isobar {

struct PatchEmbeddingOptions {
  std::int64_t channels = 0, patch = 0, width = 0;  // V, P, C
  bool tf32 = false;
};

class PatchEmbedding {
 public:
  // Lists name.proj.weight [C, V, P, P] and name.proj.bias [C]; both start as PyTorch's Conv2d.
  PatchEmbedding(Parameters& parameters, const std::string& name, const PatchEmbeddingOptions& options);

  // [B, V, LAT, LON] -> [B·T, C] in the parameters' dtype; patches in row-major order. Error where P does not divide
  // LAT and LON.
  Tensor forward(const Tensor& image) const;

 private:
  const Parameters& parameters_;
  PatchEmbeddingOptions options_;
  int weight_, bias_;
};

}  // namespace isobar
