// A band of rows is a smaller picture to all that works on patches, fields and scores; the sums of the bands are the
// whole picture's.
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "comm/thread_ranks.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "models/forecast/forecaster.h"
#include "models/forecast/scores.h"
#include "models/vit/recipe.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

using Bands = std::vector<std::pair<std::int64_t, std::int64_t>>;  // first row, number of rows

Tensor random_tensor(Shape shape, unsigned seed, DType dtype = DType::fp64) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(numel_of(shape)));
  for (double& value : values) value = normal(generator);
  Tensor t = Tensor::empty(std::move(shape), dtype, Device{});
  t.set_values(values);
  return t;
}

// Rows [first, first + count) of the second to last axis.
Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  Shape shape = x.shape();
  const std::int64_t width = x.size(-1), plane = x.size(-2) * width;
  shape[shape.size() - 2] = count;
  const Tensor part = Tensor::empty(std::move(shape), x.dtype(), x.device());
  copy_strided(part, {0, count * width}, x, {first * width, plane}, x.numel() / plane, count * width);
  return part;
}

// With missing points (NaN): all of the first field, every third of the second, and so on.
Tensor with_holes(const Tensor& x) {
  std::vector<double> values = x.to_vector();
  const std::size_t plane = static_cast<std::size_t>(x.size(-2) * x.size(-1));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i / plane % 3 == 0 || (i / plane % 3 == 1 && i % 3 == 0)) values[i] = std::nan("");
  Tensor holed = Tensor::empty(x.shape(), x.dtype(), x.device());
  holed.set_values(values);
  return holed;
}

}  // namespace

TEST_CASE("bands: patches of a band are those rows of the whole picture's patches") {
  constexpr std::int64_t kPatch = 2, kColumns = 3;
  const Tensor image = random_tensor({2, 3, 10, kColumns * kPatch}, 1);
  for (const PatchOrder order : {PatchOrder::channels_first, PatchOrder::channels_last}) {
    const Tensor tokens = patchify(image, kPatch, order, DType::fp64);
    for (const auto& [first, count] : Bands{{0, 2}, {2, 1}, {3, 2}}) {  // in rows of patches
      const Tensor band = rows_of(image, first * kPatch, count * kPatch);
      const Tensor own =
          rows_of(tokens.view({2, 5 * kColumns, 3 * kPatch * kPatch}), first * kColumns, count * kColumns);
      CHECK(patchify(band, kPatch, order, DType::fp64).to_vector() == own.to_vector());
      CHECK(unpatchify(own.view({2 * count * kColumns, -1}), band.shape(), kPatch, order).to_vector() ==
            band.to_vector());
    }
  }
}

TEST_CASE("bands: the sums of the scores are those of their formulas") {
  constexpr std::int64_t kChannels = 2, kHeight = 3, kWidth = 4, kPlane = kHeight * kWidth;
  const Tensor forecast = random_tensor({2, kChannels, kHeight, kWidth}, 1),
               target = random_tensor({2, kChannels, kHeight, kWidth}, 2),
               climatology = random_tensor({kChannels, kHeight, kWidth}, 3), weights = random_tensor({kHeight}, 4);
  const std::vector<double> got = score_sums(forecast, target, weights, climatology).to_vector();
  REQUIRE(got.size() == 2 * kChannels * 4);
  std::vector<double> expected(got.size(), 0.0);
  for (std::int64_t i = 0; i < forecast.numel(); ++i) {
    const double p = forecast.data_as<double>()[i], t = target.data_as<double>()[i];
    const double mean = climatology.data_as<double>()[i % (kChannels * kPlane)];
    const double w = weights.data_as<double>()[i / kWidth % kHeight];
    double* sums = &expected[static_cast<std::size_t>(i / kPlane * 4)];
    sums[0] += w * (p - t) * (p - t);
    sums[1] += w * (p - mean) * (t - mean);
    sums[2] += w * (p - mean) * (p - mean);
    sums[3] += w * (t - mean) * (t - mean);
  }
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - expected[i]) <= 1e-13);
}

TEST_CASE("bands: the sums of the scores of all bands give the whole picture's scores") {
  constexpr std::int64_t kHeight = 9;
  const Shape shape{3, 2, kHeight, 7};
  const auto check = [&](DType dtype, bool masked) {
    const Tensor forecast = random_tensor(shape, 1, dtype), whole_target = random_tensor(shape, 2, dtype);
    const Tensor target = masked ? with_holes(whole_target) : whole_target;
    const std::size_t per_channel = masked ? 6 : 4;
    const Tensor climatology = random_tensor({2, kHeight, 7}, 3, dtype);
    Tensor weights = Tensor::empty({kHeight}, dtype, Device{});
    weights.set_values({0.1, 0.5, 1, 1.5, 2, 1.5, 1, 0.5, 0.1});
    for (const Tensor& climate : {climatology, Tensor()}) {
      const std::vector<double> whole = score_sums(forecast, target, weights, climate, masked).to_vector();
      std::vector<double> added(whole.size(), 0.0);
      for (const auto& [first, count] : Bands{{0, 4}, {4, 1}, {5, 4}}) {
        const std::vector<double> part =
            score_sums(rows_of(forecast, first, count), rows_of(target, first, count), weights.slice(first, {count}),
                       climate.defined() ? rows_of(climate, first, count) : Tensor(), masked)
                .to_vector();
        for (std::size_t i = 0; i < added.size(); ++i) added[i] += part[i];
      }
      for (std::size_t i = 0; i < whole.size(); ++i)
        CHECK(std::abs(added[i] - whole[i]) <= 1e-14 * (std::abs(whole[i]) + whole[i / per_channel * per_channel + 2] +
                                                        whole[i / per_channel * per_channel + 3]));
      ScoreTotals all(2, kHeight * 7, masked), of_bands(2, kHeight * 7, masked);
      all.add(whole);
      of_bands.add(added);
      for (std::size_t c = 0; c < 2; ++c) {
        CHECK(std::abs(of_bands.rmse()[c] / all.rmse()[c] - 1) <= 1e-14);
        CHECK(std::abs(of_bands.mean_sample_rmse()[c] / all.mean_sample_rmse()[c] - 1) <= 1e-14);
        CHECK(std::abs(of_bands.acc()[c] - all.acc()[c]) <= 1e-14);
      }
    }
  };
  for (const DType dtype : {DType::fp64, DType::fp32})
    for (const bool masked : {false, true}) check(dtype, masked);
}

TEST_CASE("bands: a rank weighs the rows of its own band") {
  constexpr std::int64_t kChannels = 2, kHeight = 8, kWidth = 4;
  const VitOptions vit{.embed_dim = 8, .depth = 1, .num_heads = 2, .patch_size = 2};
  ForecasterOptions options{.network = std::make_shared<VitRecipe>(vit), .forecast = {}};
  options.forecast.img_size = {kHeight, kWidth};
  options.forecast.n_in_channels = options.forecast.n_out_channels = kChannels;
  options.forecast.loss = LossKind::weighted_mse;
  const ComputeOptions compute{.dtype = ArithmeticType::fp64};
  const FieldsInfo info{.channel_names = {"a", "b"},
                        .statistics = {{0, 0}, {1, 1}},
                        .row_weights = {0.1, 0.3, 0.7, 1.1, 1.3, 1.7, 1.5, 1.3},
                        .latitudes = {},
                        .longitudes = {}};
  const bool masked = GENERATE(false, true);
  if (masked) options.forecast.missing = NumbersOrWords{{info.channel_names.front(), "mean"}};
  const Tensor forecast = random_tensor({2, kChannels, kHeight, kWidth}, 1),
               present = random_tensor({2, kChannels, kHeight, kWidth}, 2);
  const Tensor target = masked ? with_holes(present) : present;
  const Forecaster whole(options, compute, info, Device{});
  const double loss = whole.loss(forecast, target).to_vector()[0];
  const std::vector<double> scores = whole.scores(forecast, target);
  std::vector<double> losses(2), apart(2);
  run_ranks({.ranks = 2}, [&](const Communicator& world) {
    const Parallel parallel = Parallel::start(world, {.cp = 2}, "cp-tp-dp");
    const Forecaster band(options, compute, info, Device{}, parallel);
    const std::int64_t rows = kHeight / 2, first = rows * world.rank();
    const Tensor own = rows_of(forecast, first, rows), wanted = rows_of(target, first, rows);
    const auto rank = static_cast<std::size_t>(world.rank());
    losses[rank] = band.loss(own, wanted).to_vector()[0];
    const std::vector<double> sums = band.scores(own, wanted);
    for (std::size_t i = 0; i < sums.size(); ++i) apart[rank] = std::max(apart[rank], std::abs(sums[i] - scores[i]));
  });
  for (const std::size_t rank : {0, 1}) {
    CHECK(std::abs(losses[rank] / loss - 1) <= 1e-14);
    CHECK(apart[rank] <= 1e-12);
  }
}

TEST_CASE("bands: scores of what does not fit are refused") {
  const Tensor fields = random_tensor({2, 3, 4, 5}, 1), weights = random_tensor({4}, 2);
  const auto of = [](Shape shape) { return random_tensor(std::move(shape), 3); };
  CHECK_THROWS_WITH(score_sums(fields, of({2, 3, 3, 5}), weights),
                    "scores: forecast [2, 3, 4, 5] and target [2, 3, 3, 5] differ");
  CHECK_THROWS_WITH(score_sums(fields, fields, of({9})),
                    "scores: row weights [9] do not fit the forecast [2, 3, 4, 5]");
  CHECK_THROWS_WITH(score_sums(fields, fields, weights, of({3, 9, 5})),
                    "scores: climatology [3, 9, 5] does not fit the forecast [2, 3, 4, 5]");
  CHECK_THROWS_WITH(score_sums(fields, fields, random_tensor({4}, 2, DType::fp32)),
                    "scores: target, row weights and climatology must be fp64, not fp32");
}
