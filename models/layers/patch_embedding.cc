#include "models/layers/patch_embedding.h"

#include <cmath>

namespace isobar {

PatchEmbedding::PatchEmbedding(Parameters& parameters, const std::string& name, const PatchEmbeddingOptions& options)
    : parameters_(parameters), options_(options) {
  const std::int64_t inputs = options.channels * options.patch * options.patch;
  const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(inputs))};  // PyTorch's default for a Conv2d
  weight_ = parameters.add({.names = {name + ".proj.weight"},
                            .shape = {options.width, options.channels, options.patch, options.patch},
                            .init = init,
                            .decay = true,
                            .compute_copy = true});
  bias_ = parameters.add({.names = {name + ".proj.bias"}, .shape = {options.width}, .init = init});
}

Tensor PatchEmbedding::forward(const Tensor& image) const {
  const Tensor patches = patchify(image, options_.patch, PatchOrder::channels_first, parameters_.activation_dtype());
  return linear(patches, parameters_.get(weight_).view({options_.width, -1}), parameters_.get(bias_),
                {.out_dtype = parameters_.dtype(), .tf32 = options_.tf32});
}

}  // namespace isobar
