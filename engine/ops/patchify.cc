// patchify and unpatchify: each is the other's gradient.
#include "kernels/patchify.h"

#include "engine/field_ops.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

void to_tokens(const Tensor& image, const Tensor& tokens, std::int64_t patch, PatchOrder order) {
  ISOBAR_RUN(image.device(), patchify,
             {.batch = image.size(0),
              .channels = image.size(1),
              .height = image.size(2),
              .width = image.size(3),
              .patch = patch,
              .order = order,
              .image_dtype = image.dtype(),
              .token_dtype = tokens.dtype(),
              .image = image.data(),
              .tokens = tokens.data()},
             current_stream());
}

void to_image(const Tensor& tokens, const Tensor& image, std::int64_t patch, PatchOrder order) {
  ISOBAR_RUN(image.device(), unpatchify,
             {.batch = image.size(0),
              .channels = image.size(1),
              .height = image.size(2),
              .width = image.size(3),
              .patch = patch,
              .order = order,
              .image_dtype = image.dtype(),
              .token_dtype = tokens.dtype(),
              .tokens = tokens.data(),
              .image = image.data()},
             current_stream());
}

void check_patches(const char* op, const Shape& image, std::int64_t patch) {
  ISOBAR_CHECK(image.size() == 4 && patch >= 1 && image[2] % patch == 0 && image[3] % patch == 0, op, ": images ",
               to_string(image), " do not divide into patches of ", patch);
}

}  // namespace

Tensor patchify(const Tensor& image, std::int64_t patch, PatchOrder order, DType out_dtype) {
  check_operands("patchify", {{"the batch of images", image, 4}});
  check_patches("patchify", image.shape(), patch);
  const std::int64_t pixels = image.size(1) * patch * patch;
  Tensor tokens = Tensor::empty({image.numel() / pixels, pixels}, out_dtype, image.device());
  to_tokens(image, tokens, patch, order);
  Tape::record("patchify", {&image}, {}, {&tokens},
               [image = Target(image), patch, order](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dimage = Tensor::empty(image.shape, image.dtype, image.device);
                 to_image(dy[0], dimage, patch, order);
                 gradients.give(image, dimage);
               });
  return tokens;
}

Tensor unpatchify(const Tensor& tokens, Shape image_shape, std::int64_t patch, PatchOrder order) {
  check_operands("unpatchify", {{"the tensor of tokens", tokens}});
  check_patches("unpatchify", image_shape, patch);
  ISOBAR_CHECK(numel_of(image_shape) == tokens.numel(), "unpatchify: tokens ", to_string(tokens.shape()),
               " do not make images ", to_string(image_shape));
  Tensor image = Tensor::empty(std::move(image_shape), accumulator_of(tokens.dtype()), tokens.device());
  to_image(tokens, image, patch, order);
  Tape::record("unpatchify", {&tokens}, {}, {&image},
               [tokens = Target(tokens), patch, order](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dtokens = Tensor::empty(tokens.shape, tokens.dtype, tokens.device);
                 to_tokens(dy[0], dtokens, patch, order);
                 gradients.give(tokens, dtokens);
               });
  return image;
}

}  // namespace isobar
