#include "models/vit/recipe.h"

#include <algorithm>

#include "kernels/common/check.h"
#include "models/vit/start.h"

namespace isobar {
namespace {

constexpr std::int64_t kShrunkDepth = 2;

void check_axes(const Ports& ports) {
  refuse_tokens("a ViT", ports);
  ISOBAR_CHECK(ports.in.size() == 3, "config key model: a ViT has two axes, and the samples ", to_string(ports.in),
               " have ", ports.in.size() - 1);
}

}  // namespace

std::shared_ptr<NetworkRecipe> make_vit_recipe() {
  return std::make_shared<VitRecipe>();
}

void VitRecipe::fill(const Ports& ports, KeyFiller& filler) {
  check_axes(ports);
  const auto default_patch = ports.may_be_padded ? default_patch_size_padded : default_patch_size;
  filler.fill("patch_size", vit.patch_size, default_patch(ports.in[1], ports.in[2]));
}

void VitRecipe::check(const Ports& ports, const std::string& sizes) const {
  check_axes(ports);
  for (const std::int64_t extent : {ports.in[1], ports.in[2]})
    ISOBAR_CHECK(extent >= *vit.patch_size && extent % *vit.patch_size == 0, sizes,
                 " must be a multiple of patch_size (", *vit.patch_size, "), not ", extent);
}

// A classifier's head has a bias and goes by its shape.
TensorStart VitRecipe::start_of(const std::string& name, const Shape& shape, const SafetensorsReader& file,
                                const FieldsMeaning& theirs, const FieldsMeaning& ours) const {
  const TensorInfo* const tensor = file.find(name);
  if (tensor != nullptr && name == "patch_embed.proj.weight")
    return start_of_patch_weights(shape, *tensor, file, theirs, ours);
  if (tensor != nullptr && name == "pos_embed")
    return start_of_positions(shape, *vit.patch_size, *tensor, file, theirs, ours);
  if (tensor != nullptr && name == "head.weight" && file.find("head.bias") == nullptr)
    return start_of_head(shape, *vit.patch_size, *tensor, file, theirs, ours);
  return start_by_shape(shape, tensor);
}

void VitRecipe::shrink(std::int64_t blocks) {
  vit.depth = std::min(vit.depth, std::max(kShrunkDepth, blocks));
}

std::unique_ptr<Network> VitRecipe::make(const Ports& ports, const Build& build) const {
  check_axes(ports);
  ISOBAR_CHECK(ports.are_fields() || build.parallel.cp.size() == 1,
               "context parallel: a classifier's head reads every ", "token of an image, and cannot be dealt over ",
               build.parallel.cp.size(), " ranks");
  return std::make_unique<Vit>(vit.config(ports), build);
}

}  // namespace isobar
