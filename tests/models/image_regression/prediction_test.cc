// Predictions of images: which the network takes, what it says of them, and the box that each of them is.
#include "models/image_regression/prediction.h"

#include <memory>
#include <string>
#include <vector>

#include "data/images/image_pairs.h"
#include "models/cnn/recipe.h"
#include "models/unet/recipe.h"
#include "models/vit/recipe.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

std::shared_ptr<const NetworkRecipe> small_cnn() {
  return std::make_shared<CnnRecipe>(CnnOptions{.width = 2, .depth = 2});
}

ImagePrediction prediction_of(const PairSizes& images, const PairSizes& trained,
                              const std::shared_ptr<const NetworkRecipe>& network = small_cnn()) {
  return {network, trained, std::make_unique<RandomPairs>(images, 3, DataSplit::valid)};
}

}  // namespace

TEST_CASE(
    "image prediction: images of other channels are refused with both numbers, and those without targets are not") {
  const auto refusal = [](const PairSizes& images, const PairSizes& trained) {
    return error_of([&] { prediction_of(images, trained); });
  };
  CHECK(refusal({2, 3, 4, 6}, {2, 3, 8, 8}).empty());  // a CNN takes other extents
  CHECK(refusal({2, 0, 4, 6}, {2, 3, 8, 8}).empty());
  CHECK(refusal({2, 3, 4, 6}, {1, 3, 4, 6}) ==
        "the random images has images [2, 4, 6], but the network was trained on [1, 4, 6], of 1 channel");
  CHECK(refusal({1, 3, 4, 6}, {2, 3, 4, 6}) ==
        "the random images has images [1, 4, 6], but the network was trained on [2, 4, 6], of 2 channels");
  CHECK(refusal({2, 3, 4, 6}, {2, 1, 4, 6}) ==
        "the random images has targets [3, 4, 6], but the network computes 1 channel");
  CHECK(refusal({2, 1, 4, 6}, {2, 3, 4, 6}) ==
        "the random images has targets [1, 4, 6], but the network computes 3 channels");
  const auto vit = std::make_shared<VitRecipe>(VitOptions{.embed_dim = 8, .depth = 1, .num_heads = 1, .patch_size = 2});
  CHECK(error_of([&] {
          prediction_of({1, 1, 4, 6}, {1, 1, 6, 4}, vit);
        }) == "the random images has images of 4 x 6, but the network takes those of its training alone, 6 x 4");
  CHECK(error_of([&] { prediction_of({1, 1, 4, 6}, {1, 1, 4, 6}, vit); }).empty());
  const auto unet = std::make_shared<UnetRecipe>(UnetOptions{.width = 2, .levels = 2});
  CHECK(error_of([&] {
          prediction_of({1, 1, 8, 6}, {1, 1, 8, 8}, unet);
        }) == "the random images has images of 8 x 6, but the network takes multiples of 4 points");
  CHECK(error_of([&] {
          prediction_of({1, 1, 6, 8}, {1, 1, 8, 8}, unet);
        }) == "the random images has images of 6 x 8, but the network takes multiples of 4 points");
  CHECK(error_of([&] { prediction_of({1, 1, 4, 12}, {1, 1, 8, 8}, unet); }).empty());
}

TEST_CASE("image prediction: each image is a box of its own, in the order asked for, and has the values of the task") {
  ImagePrediction prediction = prediction_of({2, 3, 4, 6}, {2, 3, 4, 6});
  CHECK(prediction.shape() == Shape{3, 3, 4, 6});
  CHECK(prediction.dataset() == "target");
  CHECK(prediction.missing_target().empty());
  CHECK(prediction_of({2, 0, 4, 6}, {2, 3, 4, 6}).missing_target() == "'target'");
  CHECK(prediction.sentences() == std::vector<std::string>{"the random images: 3 images [2, 4, 6] to [3, 4, 6]"});
  prediction.make_task({.dtype = ArithmeticType::fp64}, Device{});
  const std::vector<std::int64_t> both{2, 0};
  const std::vector<PredictedBox> boxes = prediction.compute(both, read_batch(prediction.parts(), both), nullptr);
  REQUIRE(boxes.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(boxes[i].start == std::vector<std::int64_t>{both[i], 0, 0, 0});
    CHECK(boxes[i].count == std::vector<std::int64_t>{1, 3, 4, 6});
    const std::vector<std::int64_t> one{both[i]};
    CHECK(prediction.compute(one, read_batch(prediction.parts(), one), nullptr).at(0).values == boxes[i].values);
  }
  CHECK(boxes[0].values.size() == 72);
  CHECK(boxes[0].values != boxes[1].values);
}

}  // namespace isobar::testing
