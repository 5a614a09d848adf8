#include "models/layers/patch_embedding.h"

#include <cmath>

#include "engine/field_ops.h"
#include "engine/ops.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

Part rows_of_rank(const PatchEmbeddingSpec& spec, const Parallel& parallel) {
  const std::int64_t patch_rows = spec.height / spec.patch;
  ISOBAR_CHECK(parallel.cp.size() <= patch_rows, "context parallel: ", spec.height, " rows in patches of ", spec.patch,
               " are ", patch_rows, " rows of patches, and each of ", parallel.cp.size(), " ranks needs one");
  const Part of_patches = parallel.over_cp(patch_rows);
  return {of_patches.begin * spec.patch, of_patches.end * spec.patch};
}

}  // namespace

PatchEmbedding::PatchEmbedding(const Build& build, const std::string& name, const PatchEmbeddingSpec& spec)
    : parameters_(build.parameters),
      spec_(spec),
      tf32_(build.compute.may_use_tf32()),
      rows_(rows_of_rank(spec, build.parallel)) {
  const std::int64_t patch_rows = spec.height / spec.patch;
  build.note_over_cp("rows of patches", build.parallel.over_cp(patch_rows), patch_rows);
  const std::int64_t inputs = spec.channels * spec.patch * spec.patch;
  const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(inputs))};  // PyTorch's default for a Conv2d
  weight_ = build.parameters.add({.names = {name + ".proj.weight"},
                                  .shape = {spec.embed, spec.channels, spec.patch, spec.patch},
                                  .init = init,
                                  .decay = true,
                                  .compute_copy = true});
  bias_ = build.parameters.add({.names = {name + ".proj.bias"}, .shape = {spec.embed}, .init = init});
}

Tensor PatchEmbedding::operator()(const Tensor& image) const {
  ISOBAR_CHECK(image.shape() == Shape({image.size(0), spec_.channels, rows_.size(), spec_.width}),
               "the model takes fields ", to_string(Shape{-1, spec_.channels, rows_.size(), spec_.width}), ", not ",
               to_string(image.shape()));
  const Tensor patches = patchify(image, spec_.patch, PatchOrder::channels_first, parameters_.activation_dtype());
  return linear(patches, parameters_.get(weight_).view({spec_.embed, -1}), parameters_.get(bias_),
                {.out_dtype = parameters_.dtype(), .tf32 = tf32_});
}

}  // namespace isobar
