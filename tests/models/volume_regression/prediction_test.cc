// Predictions of volumes in crops: equal to the network on the whole volume where the overlap covers what it sees.
#include "models/volume_regression/prediction.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/conv_ops.h"
#include "models/cnn/recipe.h"
#include "models/regression/regressor.h"
#include "models/unet/recipe.h"
#include "models/vit/recipe.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

constexpr std::int64_t kIn = 2, kOut = 3;

// Weights that are large enough for every level to matter.
std::shared_ptr<const NetworkRecipe> unet(std::int64_t levels, const EdgeWords& edge = {}) {
  return std::make_shared<UnetRecipe>(
      UnetOptions{.width = 2, .levels = levels, .edge = edge, .bounded = false, .conv_scale = 0.3, .conv_bias = 0.1});
}

std::shared_ptr<const NetworkRecipe> cnn(std::int64_t depth) {
  return std::make_shared<CnnRecipe>(CnnOptions{.width = 3, .depth = depth});
}

const EdgeWords kWraps = std::vector<std::string>{"wrap"};

VolumePair volumes(const Point& extent) {
  return synthetic_volumes(extent, kIn, kOut, 5);
}

Ports ports_on(const Point& size) {
  return {.in = {kIn, size[0], size[1], size[2]}, .out = {kOut, size[0], size[1], size[2]}};
}

const ComputeOptions kComputeFp64{.dtype = ArithmeticType::fp64};

// What the network computes of the whole volume at once, [C', D, H, W].
std::vector<float> whole(const std::shared_ptr<const NetworkRecipe>& network, const Point& extent) {
  const VolumeRegressor task(network, kComputeFp64, ports_on(extent), {}, Device{});
  Tensor input = Tensor::empty({1, kIn, extent[0], extent[1], extent[2]}, DType::fp32, Device{});
  volumes(extent).input->read(0, {}, extent, input.data_as<float>());
  Tensor turn = Tensor::empty({1}, DType::i32, Device{});
  turn.set_values(std::vector<double>{0});
  const std::vector<double> values = to_channels_first(task.prediction({{"input", input}, {"turn", turn}})).to_vector();
  return {values.begin(), values.end()};
}

struct Crops {
  Point size;
  std::int64_t overlap;
  bool wrap = false;
};

std::unique_ptr<VolumePrediction> predict(const std::shared_ptr<const NetworkRecipe>& network, const Point& extent,
                                          const Crops& crops) {
  return std::make_unique<VolumePrediction>(VolumeNetwork{.recipe = network,
                                                          .ports = ports_on(crops.size),
                                                          .objective = {},
                                                          .wrap = crops.wrap,
                                                          .overlap = crops.overlap},
                                            volumes(extent));
}

// The volume that the boxes of all crops make, computed so many at once, in this order.
std::vector<float> in_crops(VolumePrediction& prediction, std::int64_t at_once, bool backwards = false,
                            Metrics* metrics = nullptr) {
  const Shape shape = prediction.shape();
  std::vector<float> result(static_cast<std::size_t>(numel_of(shape)), std::nanf(""));
  std::vector<std::int64_t> order(static_cast<std::size_t>(prediction.parts().samples()));
  std::iota(order.begin(), order.end(), 0);
  if (backwards) std::ranges::reverse(order);
  for (std::size_t first = 0; first < order.size(); first += static_cast<std::size_t>(at_once)) {
    const std::size_t count = std::min(order.size() - first, static_cast<std::size_t>(at_once));
    const std::span<const std::int64_t> parts(order.data() + first, count);
    for (const PredictedBox& box : prediction.compute(parts, read_batch(prediction.parts(), parts), metrics)) {
      auto from = box.values.begin();
      for (std::int64_t c = 0; c < box.count[0]; ++c)
        for (std::int64_t i = 0; i < box.count[1]; ++i)
          for (std::int64_t j = 0; j < box.count[2]; ++j) {
            const std::int64_t line = (c * shape[1] + box.start[1] + i) * shape[2] + box.start[2] + j;
            std::copy_n(from, box.count[3], result.begin() + line * shape[3] + box.start[3]);
            from += box.count[3];
          }
    }
  }
  return result;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::isfinite(a[i]) ? std::max(largest, std::abs(static_cast<double>(a[i]) - b[i])) : INFINITY;
  return largest;
}

double error_of(const std::shared_ptr<const NetworkRecipe>& network,
                const std::shared_ptr<const NetworkRecipe>& of_whole, const Point& extent, const Crops& crops) {
  const auto prediction = predict(network, extent, crops);
  prediction->make_task(kComputeFp64, Device{});
  return difference(in_crops(*prediction, 4), whole(of_whole, extent));
}

// Along each axis, which points of the output change when the input's middle point does: the largest distance.
std::int64_t seen_by(const std::shared_ptr<const NetworkRecipe>& network, std::int64_t length, std::int64_t at) {
  const Ports ports{.in = {1, length}, .out = {1, length}};
  const Regressor task(network, kComputeFp64, ports, Device{});
  const auto of = [&](double value) {
    std::vector<double> field(static_cast<std::size_t>(length), 1.0);
    field[static_cast<std::size_t>(at)] = value;
    Tensor input = Tensor::empty({1, 1, length}, DType::fp32, Device{});
    input.set_values(field);
    return task.prediction({{"input", input}}).to_vector();
  };
  const std::vector<double> before = of(1), after = of(-3);
  std::int64_t farthest = 0;
  for (std::int64_t i = 0; i < length; ++i)
    if (before[static_cast<std::size_t>(i)] != after[static_cast<std::size_t>(i)])
      farthest = std::max(farthest, std::abs(i - at));
  return farthest;
}

// Rounding to the fp32 of the file.
constexpr double kRounding = 1e-6;

}  // namespace

TEST_CASE("prediction: networks see exactly as far as they say") {
  for (const std::int64_t levels : {1, 2, 3}) {
    INFO(levels << " levels");
    const auto network = unet(levels);
    const Reach reach = *network->reach();
    CHECK(reach.points == 3 * ((1 << levels) - 1));
    CHECK(reach.stride == 1 << levels);
    std::int64_t farthest = 0;  // it depends on where a point lies between multiples of the stride
    for (std::int64_t at = 32; at < 32 + reach.stride; ++at) farthest = std::max(farthest, seen_by(network, 64, at));
    CHECK(farthest == reach.points);
  }
  for (const std::int64_t depth : {2, 5}) {
    CHECK(cnn(depth)->reach()->points == depth);
    CHECK(seen_by(cnn(depth), 32, 15) == depth);
  }
  CHECK(unet(1, kWraps)->reach()->wraps_along(2));
  CHECK_FALSE(unet(1)->reach()->wraps_along(2));
  const EdgeWords globe = std::vector<std::string>{"zeros", "wrap"};
  CHECK_FALSE(unet(1, globe)->reach()->wraps_along(0));
  CHECK(unet(1, globe)->reach()->wraps_along(1));
  CHECK_FALSE(make_network_recipe("vit")->reach());
}

TEST_CASE("prediction: where the overlap covers what a U-Net sees, crops give what it computes of the whole volume") {
  // Reach 3, stride 2: a margin of 3 is enough, one of 2 is not.
  const Point extent{16, 12, 20};
  CHECK(error_of(unet(1), unet(1), extent, {{12, 12, 12}, 6}) < kRounding);
  CHECK(error_of(unet(1), unet(1), extent, {{12, 8, 10}, 6}) < kRounding);
  CHECK(error_of(unet(1), unet(1), extent, {{12, 12, 12}, 4}) > 1e-3);
  // Crops that begin at odd points see another network.
  CHECK(error_of(unet(1), unet(1), extent, {{12, 12, 12}, 7}) > 1e-3);
  CHECK(error_of(unet(2), unet(2), {32, 24, 24}, {{24, 24, 24}, 20}) < kRounding);
  CHECK(error_of(unet(2), unet(2), {32, 24, 24}, {{24, 24, 24}, 12}) > 1e-4);
}

TEST_CASE("prediction: of a CNN crops may begin anywhere, and the overlap may be odd") {
  const Point extent{13, 7, 9};
  CHECK(error_of(cnn(2), cnn(2), extent, {{7, 7, 8}, 4}) < kRounding);
  CHECK(error_of(cnn(2), cnn(2), extent, {{7, 6, 8}, 5}) < kRounding);
  CHECK(error_of(cnn(2), cnn(2), extent, {{7, 7, 8}, 3}) > 1e-3);
}

TEST_CASE("prediction: a periodic volume is that of a network whose edges wrap, whatever the edges of the crops") {
  const Point extent{16, 12, 20};
  const Crops aligned{.size = {12, 12, 12}, .overlap = 8, .wrap = true};
  CHECK(error_of(unet(1), unet(1, kWraps), extent, aligned) < kRounding);
  CHECK(error_of(unet(1, kWraps), unet(1, kWraps), extent, {aligned.size, 8}) < kRounding);
  CHECK(error_of(unet(1), unet(1), extent, aligned) > 1e-3);
  // One crop that is the volume wraps by itself if the network does.
  CHECK(error_of(unet(2, kWraps), unet(2, kWraps), {8, 8, 8}, {{8, 8, 8}, 4, true}) < kRounding);
  CHECK(predict(unet(2, kWraps), {8, 8, 8}, {{8, 8, 8}, 4, true})->parts().samples() == 1);
  CHECK(predict(unet(2), {8, 8, 8}, {{8, 8, 8}, 4, true})->parts().samples() == 8);
  // Of two axes that a network wraps along one.
  const EdgeWords one = std::vector<std::string>{"zeros", "zeros", "wrap"};
  CHECK(error_of(unet(1, one), unet(1, one), extent, {aligned.size, 8}) < kRounding);
}

TEST_CASE("prediction: neither the order of crops nor the number of them at once changes a bit") {
  for (const ComputeOptions& compute : {kComputeFp64, ComputeOptions{}, ComputeOptions{.amp_mode = AmpMode::bf16}}) {
    const auto prediction = predict(unet(2), {16, 12, 12}, {{8, 8, 8}, 4});
    prediction->make_task(compute, Device{});
    const std::vector<float> one = in_crops(*prediction, 1);
    CHECK(std::ranges::none_of(one, [](float value) { return std::isnan(value); }));
    CHECK(in_crops(*prediction, 5) == one);
    CHECK(in_crops(*prediction, 3, /*backwards=*/true) == one);
  }
}

TEST_CASE("prediction: the scores are those of the volume that is written, each point once") {
  const Point extent{16, 12, 12};
  const auto prediction = predict(unet(1), extent, {{8, 8, 8}, 3});
  Task& task = prediction->make_task(kComputeFp64, Device{});
  const std::unique_ptr<Metrics> metrics = task.metrics();
  metrics->begin();
  const std::vector<float> values = in_crops(*prediction, 4, false, metrics.get());
  metrics->end();
  const VolumePair pair = volumes(extent);
  std::vector<float> target(values.size()), input(values.size() / kOut * kIn);
  pair.target->read(0, {}, extent, target.data());
  pair.input->read(0, {}, extent, input.data());
  const Report report = metrics->report(DataSplit::test);
  const std::size_t points = values.size() / kOut;
  double all = 0;
  for (std::size_t c = 0; c < kOut; ++c) {
    double l1 = 0, of_input = 0;
    for (std::size_t i = c * points; i < (c + 1) * points; ++i) {
      l1 += std::abs(static_cast<double>(values[i]) - target[i]) / static_cast<double>(points);
      if (c < kIn) of_input += std::abs(static_cast<double>(input[i]) - target[i]) / static_cast<double>(points);
    }
    CHECK(std::abs(report.line.at(c).value - l1) < kRounding);
    if (c < kIn) CHECK(std::abs(report.line.at(kOut + c).value - of_input) < 1e-12);
    all += l1 / kOut;
  }
  CHECK(std::abs(metrics->loss() - all) < kRounding);
}

TEST_CASE("prediction: it says how it cuts a volume, and what the seams are") {
  const auto sentences = [](const std::shared_ptr<const NetworkRecipe>& network, const Point& extent,
                            const Crops& crops) {
    std::string all;
    for (const std::string& sentence : predict(network, extent, crops)->sentences()) all += sentence + "\n";
    return all;
  };
  CHECK(sentences(unet(1), {16, 12, 20}, {{12, 12, 12}, 6}) ==
        "the synthetic input [2, 16, 12, 20]: 6 crops of 12 x 12 x 12 points that overlap by 6 x 6 x 6\n"
        "kept of a crop: what lies 3 x 3 x 3 points or more from its inner ends; the network looks 3 points far: no "
        "seams, the result is that of the network on the whole volume\n");
  CHECK_THAT(sentences(unet(2), {16, 12, 20}, {{12, 12, 12}, 6}),
             ContainsSubstring("the network looks 9 points far, which is farther: there are seams"));
  CHECK_THAT(sentences(unet(1), {16, 12, 20}, {{12, 8, 10}, 6}),
             ContainsSubstring(" crops of 12 x 8 x 10 points that overlap by 6 x 6 x 6\n"));
  CHECK_THAT(sentences(unet(1), {16, 12, 20}, {{12, 12, 12}, 7}),
             ContainsSubstring("not every crop begins at a multiple of 2 points"));
  CHECK_THAT(sentences(unet(1), {16, 12, 20}, {{12, 12, 12}, 8, true}),
             ContainsSubstring("periodic along axis 0, 1, 2: 60 crops"));
  CHECK(sentences(unet(1), {16, 12, 12}, {{12, 12, 12}, 6})
            .starts_with("the synthetic input [2, 16, 12, 12]: 2 crops of 12 x 12 x 12 points that overlap by 6 x 6 x "
                         "6\nkept of"));
  CHECK(sentences(unet(1), {12, 12, 12}, {{12, 12, 12}, 6}) ==
        "the synthetic input [2, 12, 12, 12]: computed at once\n");
}

TEST_CASE("prediction: one crop that is the whole volume, round, without a reach, and with the overlap of nobody") {
  const auto sentences_of = [](const VolumePrediction& prediction) {
    std::string all;
    for (const std::string& sentence : prediction.sentences()) all += sentence + "\n";
    return all;
  };
  CHECK(sentences_of(*predict(unet(1), {12, 12, 12}, {{12, 12, 12}, 0, true})) ==
        "the synthetic input [2, 12, 12, 12], periodic along axis 0, 1, 2: 1 crop of 12 x 12 x 12 points that overlap "
        "by 0 x 0 x 0\nkept of a crop: what lies 0 x 0 x 0 points or more from its inner ends; the network looks 3 "
        "points far, which is farther: there are seams, the result is not that of the network on the whole volume\n");
  // A network that wraps needs no other points along an axis that a crop covers.
  CHECK(sentences_of(*predict(unet(1, kWraps), {12, 12, 12}, {{12, 12, 12}, 6})) ==
        "the synthetic input [2, 12, 12, 12]: computed at once\n");
  CHECK(sentences_of(*predict(unet(1, kWraps), {12, 24, 12}, {{12, 12, 12}, 6}))
            .starts_with("the synthetic input [2, 12, 24, 12], periodic along axis 1: 4 crops of "));
  const auto made = [](std::shared_ptr<const NetworkRecipe> network) {
    const Point size{12, 8, 10};
    return VolumePrediction(VolumeNetwork{.recipe = std::move(network), .ports = ports_on(size), .objective = {}},
                            volumes({24, 16, 20}));
  };
  CHECK(sentences_of(made(cnn(2))) ==
        "the synthetic input [2, 24, 16, 20]: 27 crops of 12 x 8 x 10 points that overlap by 6 x 4 x 5\n"
        "kept of a crop: what lies 3 x 2 x 2 points or more from its inner ends; the network looks 2 points far: no "
        "seams, the result is that of the network on the whole volume\n");
  CHECK_THAT(
      sentences_of(made(std::make_shared<VitRecipe>())),
      ContainsSubstring("; the network looks as far as a crop goes: the result is not that of the network on the "
                        "whole volume\n"));
  CHECK(made(cnn(2)).shape() == Shape{kOut, 24, 16, 20});
}

TEST_CASE("prediction: volumes of other channels are refused") {
  const auto make = [](std::int64_t in, std::int64_t out) {
    Ports ports{.in = {in, 4, 4, 4}, .out = {out, 4, 4, 4}};
    return VolumePrediction(VolumeNetwork{.recipe = unet(1), .ports = ports, .objective = {}}, volumes({8, 8, 8}));
  };
  CHECK_THROWS_WITH(make(4, kOut), "the synthetic input [2, 8, 8, 8] has 2 channels, but the network takes 4");
  CHECK_THROWS_WITH(make(kIn, 5), "the synthetic target [3, 8, 8, 8] has 3 channels, but the network computes 5");
}

}  // namespace isobar
