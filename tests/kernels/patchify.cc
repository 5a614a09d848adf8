// patchify and unpatchify: the index map of the contract, both orders, every pair of dtypes.
#include "kernels/cases/patchify.h"

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const std::vector<PatchOrder> kOrders = {PatchOrder::channels_first, PatchOrder::channels_last};

struct Shape {
  std::int64_t batch, channels, height, width, patch;
  std::int64_t size() const { return batch * channels * height * width; }
};
// {1, 52, 4, 136, 4} and {1, 97, 2, 138, 2} are wider, and have more channels, than a tile of the CUDA kernel (128
// pixels, then 44 channels). In the last two a tile starts at pixel 126, though rows are a multiple of 4 pixels long.
const std::vector<Shape> kShapes = {{1, 1, 1, 1, 1},    {2, 3, 4, 6, 2},    {1, 5, 9, 3, 3},   {3, 2, 8, 16, 8},
                                    {0, 3, 4, 4, 2},    {2, 20, 24, 52, 4}, {1, 7, 6, 10, 1},  {1, 70, 5, 5, 5},
                                    {1, 52, 4, 136, 4}, {1, 97, 2, 138, 2}, {1, 2, 3, 132, 3}, {1, 2, 9, 144, 9}};

// Where image pixel (b, c, h, w) lies among the tokens.
std::int64_t token_index(Shape s, PatchOrder order, std::int64_t b, std::int64_t c, std::int64_t h, std::int64_t w) {
  const std::int64_t p = s.patch, rows = s.height / p, cols = s.width / p;
  const std::int64_t token = (b * rows + h / p) * cols + w / p, r = h % p, col = w % p;
  const std::int64_t feature =
      order == PatchOrder::channels_first ? (c * p + r) * p + col : (r * p + col) * s.channels + c;
  return token * s.channels * p * p + feature;
}

Values tokens_of(const Values& image, Shape s, PatchOrder order, DType dtype) {
  Values tokens = constant_values(s.size(), dtype, 0);
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t h = 0; h < s.height; ++h)
        for (std::int64_t w = 0; w < s.width; ++w)
          tokens[token_index(s, order, b, c, h, w)] = round_to(image[i++], dtype);
  return tokens;
}

template <class F>
void for_each_case(const F& f) {
  for (Shape shape : kShapes)
    for (PatchOrder order : kOrders)
      for (DType image : kFloating)
        for (DType token : kFloating) {
          INFO(shape.batch << " x " << shape.channels << " x " << shape.height << " x " << shape.width << ", patch "
                           << shape.patch << ", " << (order == PatchOrder::channels_first ? "c r s" : "r s c")
                           << ", image " << name_of(image) << ", tokens " << name_of(token));
          f(shape, order, image, token);
        }
}

}  // namespace

TEST_CASE("patchify puts every pixel in its place") {
  for_each_case([](Shape s, PatchOrder order, DType image_dtype, DType token_dtype) {
    const Values image = random_values(s.size(), image_dtype, 1);
    on_devices(kDevices, {image_dtype, token_dtype}, [&](Workbench& bench) {
      const PatchifyArgs a = cases::patchify({.batch = s.batch,
                                              .channels = s.channels,
                                              .height = s.height,
                                              .width = s.width,
                                              .patch = s.patch,
                                              .order = order,
                                              .image_dtype = image_dtype,
                                              .token_dtype = token_dtype},
                                             bench.operands({{"image", image}}));
      ISOBAR_RUN(bench.device(), patchify, a);
      bench.check_equal("tokens", {a.tokens}, tokens_of(image, s, order, token_dtype));
    });
  });
}

TEST_CASE("unpatchify brings every pixel back") {
  for_each_case([](Shape s, PatchOrder order, DType image_dtype, DType token_dtype) {
    // Pixels that both dtypes hold, so that the way there and back is exact.
    const Values pixels = values_of(random_values(s.size(), token_dtype, 2).v, image_dtype);
    const Values image = values_of(values_of(pixels.v, token_dtype).v, image_dtype);
    on_devices(kDevices, {image_dtype, token_dtype}, [&](Workbench& bench) {
      const UnpatchifyArgs a =
          cases::unpatchify({.batch = s.batch,
                             .channels = s.channels,
                             .height = s.height,
                             .width = s.width,
                             .patch = s.patch,
                             .order = order,
                             .image_dtype = image_dtype,
                             .token_dtype = token_dtype},
                            bench.operands({{"tokens", tokens_of(pixels, s, order, token_dtype)}}));
      ISOBAR_RUN(bench.device(), unpatchify, a);
      bench.check_equal("image", {a.image}, image);
    });
  });
}

}  // namespace isobar::testing
