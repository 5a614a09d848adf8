// A grid that the network's patch or levels do not divide is padded inside the forecaster, and nobody outside sees it.
#include "models/forecast/padding.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "apps/train/trainer.h"
#include "engine/tape.h"
#include "models/cnn/recipe.h"
#include "models/forecast/forecaster.h"
#include "models/unet/recipe.h"
#include "models/vit/recipe.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using Values = std::vector<double>;

constexpr std::int64_t kRows = 5, kColumns = 7, kInputs = 3, kOutputs = 2, kBatch = 2;

std::shared_ptr<NetworkRecipe> small_vit() {
  return std::make_shared<VitRecipe>(VitOptions{.embed_dim = 16, .depth = 1, .num_heads = 2, .patch_size = 2});
}

std::shared_ptr<UnetRecipe> small_unet(const EdgeWords& edge = {}) {
  return std::make_shared<UnetRecipe>(UnetOptions{.width = 4, .levels = 2, .edge = edge, .bounded = false});
}

Tensor fields(Shape shape, double phase, DType dtype = DType::fp32) {
  Tensor t = Tensor::empty(std::move(shape), dtype, Device{});
  Values values(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(1.7 * static_cast<double>(i) + phase);
  t.set_values(values);
  return t;
}

struct Grid {
  std::int64_t rows = kRows, columns = kColumns;
  bool pads = true, goes_round = true, predicts_change = false;
};

ForecasterOptions options_of(std::shared_ptr<NetworkRecipe> network, const Grid& grid = {}) {
  ForecasterOptions options{.network = std::move(network), .forecast = {}};
  options.forecast.img_size = {grid.rows, grid.columns};
  options.forecast.pad_grid = grid.pads;
  options.forecast.n_in_channels = kInputs;
  options.forecast.n_out_channels = kOutputs;
  options.forecast.predict_change = grid.predicts_change;
  options.forecast.loss = LossKind::weighted_mse;
  return options;
}

Forecaster forecaster(const std::shared_ptr<NetworkRecipe>& network, const Grid& grid = {},
                      ArithmeticType dtype = ArithmeticType::fp64) {
  FieldsInfo info{.channel_names = {"a", "b", "c"},
                  .statistics = {{0.1, 0.2, 0.3}, {1, 2, 3}},
                  .row_weights = {},
                  .latitudes = {},
                  .longitudes = {}};
  for (std::int64_t y = 0; y < grid.rows; ++y) info.row_weights.push_back(0.5 + 0.1 * static_cast<double>(y));
  for (std::int64_t x = 0; grid.goes_round && x < grid.columns; ++x)
    info.longitudes.push_back(360 * static_cast<double>(x) / static_cast<double>(grid.columns));
  return {options_of(network, grid), ComputeOptions{.dtype = dtype, .seed = 3}, info, Device{}};
}

// y[b, v, i, j] = x[b, v, min(i, LAT - 1), column(j)], point by point.
template <class Column>
Tensor by_hand(const Tensor& x, std::int64_t rows, std::int64_t columns, const Column& column) {
  const std::int64_t height = x.size(2), width = x.size(3);
  const Values from = x.to_vector();
  Values to;
  for (std::int64_t plane = 0; plane < x.size(0) * x.size(1); ++plane)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        to.push_back(
            from[static_cast<std::size_t>((plane * height + std::min(i, height - 1)) * width + column(j, width))]);
  Tensor y = Tensor::empty({x.size(0), x.size(1), rows, columns}, x.dtype(), Device{});
  y.set_values(to);
  return y;
}

std::int64_t wrapped(std::int64_t j, std::int64_t width) {
  return j % width;
}
std::int64_t clamped(std::int64_t j, std::int64_t width) {
  return std::min(j, width - 1);
}

}  // namespace

TEST_CASE("padding: added rows repeat the last one, added columns are the first ones or the last one") {
  Tensor x = Tensor::empty({1, 1, 2, 3}, DType::fp32, Device{});
  x.set_values({1, 2, 3, 4, 5, 6});
  CHECK(pad_fields(x, 4, 5, Behind::first_points).to_vector() ==
        Values{1, 2, 3, 1, 2, 4, 5, 6, 4, 5, 4, 5, 6, 4, 5, 4, 5, 6, 4, 5});
  CHECK(pad_fields(x, 3, 5, Behind::last_point).to_vector() == Values{1, 2, 3, 3, 3, 4, 5, 6, 6, 6, 4, 5, 6, 6, 6});
  CHECK(pad_fields(x, 2, 8, Behind::first_points).to_vector() ==
        Values{1, 2, 3, 1, 2, 3, 1, 2, 4, 5, 6, 4, 5, 6, 4, 5});
  CHECK(pad_fields(x, 2, 3, Behind::last_point).data() == x.data());
  CHECK(crop_fields(x, 2, 3).data() == x.data());
  CHECK(crop_fields(x, 1, 2).to_vector() == Values{1, 2});
  CHECK(crop_fields(x, 2, 1).to_vector() == Values{1, 4});
  const Device emulator{ISOBAR_HAS_EMULATOR ? DeviceKind::emulator : DeviceKind::cpu};
  for (const auto& [device, dtype] :
       {std::pair(Device{}, DType::fp32), std::pair(Device{}, DType::bf16), std::pair(Device{}, DType::fp64),
        std::pair(emulator, DType::fp32), std::pair(emulator, DType::bf16)}) {
    const Tensor y = fields({2, 3, 5, 7}, 1, dtype).to(device);
    CHECK(pad_fields(y, 8, 8, Behind::first_points).to_vector() == by_hand(y, 8, 8, wrapped).to_vector());
    CHECK(pad_fields(y, 8, 8, Behind::last_point).to_vector() == by_hand(y, 8, 8, clamped).to_vector());
    CHECK(crop_fields(pad_fields(y, 8, 8, Behind::last_point), 5, 7).to_vector() == y.to_vector());
  }
}

// The same seed gives two networks of one grid the same weights.
TEST_CASE("padding: a forecast is that of the same network on a grid that was padded outside, cut back") {
  struct Case {
    std::shared_ptr<NetworkRecipe> network;
    std::int64_t rows, columns;  // that the network sees
  };
  for (const Case& c : {Case{small_vit(), 6, 8}, Case{small_unet(), 8, 8}})
    for (const bool goes_round : {true, false})
      for (const bool predicts_change : {false, true}) {
        const Grid grid{.goes_round = goes_round, .predicts_change = predicts_change};
        Forecaster padded = forecaster(c.network, grid);
        Forecaster outside = forecaster(
            c.network, {.rows = c.rows, .columns = c.columns, .pads = false, .predicts_change = predicts_change});
        Parameters& weights = padded.parameters();
        REQUIRE(weights.weights().numel() == outside.parameters().weights().numel());
        Tensor(weights.weights())
            .copy_from(fields({weights.weights().numel()}, 5, DType::fp64));  // heads start at zero
        Tensor(outside.parameters().weights()).copy_from(weights.weights());
        const Tensor x = fields({kBatch, kInputs, kRows, kColumns}, 2, DType::fp64);
        const Tensor by_columns =
            goes_round ? by_hand(x, c.rows, c.columns, wrapped) : by_hand(x, c.rows, c.columns, clamped);
        const Tensor y = padded.forecast(x);
        CHECK(y.shape() == Shape{kBatch, kOutputs, kRows, kColumns});
        CHECK(y.to_vector() == crop_fields(outside.forecast(by_columns), kRows, kColumns).to_vector());
      }
}

TEST_CASE("padding: a network that takes every grid sees the data's") {
  const auto network = std::make_shared<CnnRecipe>();
  network->cnn.width = 4;
  network->cnn.depth = 2;
  const Tensor x = fields({kBatch, kInputs, kRows, kColumns}, 2, DType::fp64);
  const Grid plain{.pads = false};
  CHECK(network_ports(options_of(network).forecast, *network).in == Shape{kInputs, kRows, kColumns});
  CHECK(forecaster(network).forecast(x).to_vector() == forecaster(network, plain).forecast(x).to_vector());
  CHECK(about_padding(options_of(network).forecast, *network, {}) == "");
}

namespace {

Batch batch_of(const Grid& grid = {}) {
  return {{"input", fields({kBatch, kInputs, grid.rows, grid.columns}, 1)},
          {"target", fields({kBatch, kOutputs, grid.rows, grid.columns}, 2)}};
}

double loss_of(const Forecaster& task, const Batch& batch) {
  return task.loss(batch, Pass()).item();
}

}  // namespace

TEST_CASE("padding: the loss is the mean over the points of the data, and its gradient that of finite differences") {
  for (const std::shared_ptr<NetworkRecipe>& network : {small_vit(), std::shared_ptr<NetworkRecipe>(small_unet())}) {
    Forecaster task = forecaster(network);
    const Batch batch = batch_of();
    Tensor weights = task.parameters().weights();
    weights.copy_from(fields({weights.numel()}, 5, DType::fp64));

    const Values y = task.forecast(task.input().input_of(batch)).to_vector(),
                 target = task.input().target_of(batch).to_vector();
    double sum = 0, points = 0;
    for (std::size_t i = 0; i < y.size(); ++i, ++points)
      sum += task.info().row_weights[i / kColumns % kRows] * (y[i] - target[i]) * (y[i] - target[i]);
    CHECK(std::abs(loss_of(task, batch) / (sum / points) - 1) <= 1e-12);

    Tape tape;
    task.parameters().begin_step();
    Tensor loss;
    {
      const TapeScope recording(tape);
      loss = task.loss(batch, Pass());
    }
    tape.backward(loss);
    const Values gradient = task.parameters().grads().to_vector();
    constexpr double kStep = 1e-5;
    for (std::int64_t i = 0; i < weights.numel(); i += 7) {
      double& value = weights.data_as<double>()[i];
      const double saved = value;
      value = saved + kStep;
      const double above = loss_of(task, batch);
      value = saved - kStep;
      const double below = loss_of(task, batch);
      value = saved;
      const double expected = (above - below) / (2 * kStep), got = gradient[static_cast<std::size_t>(i)];
      INFO("weight " << i << ": " << got << ", finite differences " << expected);
      CHECK(std::abs(got - expected) <= 1e-6 * (1 + std::abs(expected)));
    }
  }
}

TEST_CASE("padding: a grid of 5 x 7 trains with patches of 2, and outside it has 5 x 7") {
  for (const bool predicts_change : {false, true}) {
    Forecaster task = forecaster(small_vit(), {.predicts_change = predicts_change}, ArithmeticType::fp32);
    TrainerOptions options{.batch = {.global_batch_size = kBatch}};
    options.schedule.lr = 0.01;
    Trainer trainer(task, options);
    const auto loaded = std::make_shared<LoadedBatch>();
    loaded->tensors = batch_of();
    Values losses;
    for (int update = 0; update < 60; ++update) losses.push_back(trainer.step([&] { return loaded; }).loss);
    CHECK(losses.back() < 0.2 * losses.front());
    const std::unique_ptr<Metrics> metrics = task.metrics();
    metrics->begin();
    task.score(loaded->tensors, *metrics);
    CHECK(std::abs(metrics->loss() / loss_of(task, loaded->tensors) - 1) <= 1e-6);
    REQUIRE(task.pictures(loaded->tensors, 0).size() == 1);
    CHECK(task.input().to_physical(task.forecast(task.input().input_of(loaded->tensors))).size() ==
          kBatch * kOutputs * kRows * kColumns);
  }
}

TEST_CASE("padding: what would be computed wrong is refused") {
  const Grid plain{.pads = false};
  CHECK_THROWS_WITH(forecaster(small_unet(), plain), ContainsSubstring("takes multiples of 4 points, not 5"));
  // Beyond the last column a convolution that wraps would read the first one, and find a copy between them.
  CHECK_THROWS_WITH(forecaster(small_unet({{"zeros", "wrap"}})),
                    ContainsSubstring("config key pad_grid: 7 columns would become 8, but config key edge wraps them"));
  CHECK_THROWS_WITH(forecaster(small_unet({{"wrap", "zeros"}})),
                    ContainsSubstring("config key pad_grid: 5 rows would become 8, but config key edge wraps them"));
  const Grid even{.columns = 8};
  CHECK_NOTHROW(forecaster(small_unet({{"zeros", "wrap"}}), even));
}

TEST_CASE("padding: a run is told what the network sees") {
  const ForecastOptions options = options_of(small_vit()).forecast;
  CHECK(
      about_padding(options, *small_vit(), {}) ==
      "pad_grid: the network sees 6 x 8 points instead of 5 x 7; added rows repeat the last one; added columns repeat "
      "the last one");
  ForecastOptions globe = options;
  globe.img_size = {4, 3};
  CHECK(about_padding(globe, *small_vit(), {0, 120, 240}) ==
        "pad_grid: the network sees 4 x 4 points instead of 4 x 3; added columns are the first ones, as on a globe");
  globe.img_size = {3, 4};
  CHECK(about_padding(globe, *small_vit(), {}) ==
        "pad_grid: the network sees 4 x 4 points instead of 3 x 4; added rows repeat the last one");
  globe.img_size = {4, 4};
  CHECK(about_padding(globe, *small_vit(), {}) == "");
}

}  // namespace isobar
