// A network that no task has been written for: docs/adding_a_model.md followed to the letter. It trains as a forecast
// and as a classification, and what it cannot do it refuses by name.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/trainer.h"
#include "comm/thread_ranks.h"
#include "kernels/common/check.h"
#include "models/classification/classifier.h"
#include "models/forecast/forecaster.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/patch_embedding.h"
#include "models/recipe.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

// A perceptron on patches: y = head(norm(gelu(W·patch + b))), every patch by itself. The norm rounds to the dtype of
// products.
class Perceptron : public Network {
 public:
  static constexpr std::int64_t kPatch = 2;

  Perceptron(const Ports& ports, std::int64_t width, const Build& build)
      : Network(ports),
        patches_(
            build, "patches",
            {.channels = ports.in[0], .height = ports.in[1], .width = ports.in[2], .patch = kPatch, .embed = width}),
        norm_(build, "norm", width, 1e-6),
        head_(build, {"head"}, head_of(ports, width)),
        stages_{{[this](const Tensors& in, const Pass&) { return Tensors{hidden(in[0])}; },
                 joined({patches_.weights(), norm_.weights()})},
                {[this](const Tensors& in, const Pass& pass) { return Tensors{head(in[0], pass)}; }, head_.weights()}} {
  }

  std::string name() const override { return "perceptron"; }
  std::span<const Stage> stages() const override { return stages_; }
  std::int64_t patch() const override { return ports().are_fields() ? kPatch : 0; }

 private:
  static LinearSpec head_of(const Ports& ports, std::int64_t width) {
    const std::int64_t points = kPatch * kPatch, patches = ports.in[1] * ports.in[2] / points;
    if (ports.are_fields()) return {.in = width, .out = ports.out[0] * points, .wide = true};
    return {.in = patches * width, .out = ports.out[0], .wide = true};
  }
  Tensor hidden(const Tensor& image) const { return norm_({gelu(patches_(image), Activation::gelu_erf), {}}).y; }
  Tensor head(const Tensor& x, const Pass& pass) const {
    return head_(ports().are_fields() ? x : x.view({pass.samples(), -1}), pass);
  }

  PatchEmbedding patches_;
  LayerNorm norm_;
  Linear head_;
  std::vector<Stage> stages_;
};

class PerceptronRecipe : public NetworkRecipe {
 public:
  std::int64_t width = 32;
  bool refuses_ranks = true;

  KeyTable keys() override {
    return {"The perceptron", {key("width", width, "hidden numbers of a patch").at_least(1)}};
  }
  void check(const Ports& ports, const std::string& sizes) const override {
    for (const std::int64_t extent : {ports.in[1], ports.in[2]})
      ISOBAR_CHECK(extent % Perceptron::kPatch == 0, sizes, " must be even, not ", extent);
  }
  std::unique_ptr<Network> make(const Ports& ports, const Build& build) const override {
    ISOBAR_CHECK(!refuses_ranks || build.parallel.model.size() == 1, "a perceptron cannot be split over ranks");
    return std::make_unique<Perceptron>(ports, width, build);
  }
};

Tensor random_fields(const Shape& shape, double phase) {
  Tensor t = Tensor::empty(shape, DType::fp32, Device{});
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data_as<float>()[i] = static_cast<float>(std::sin(1.7 * static_cast<double>(i) + phase));
  return t;
}

// The first channels of fields, as a target has them.
Tensor leading(const Tensor& fields, std::int64_t channels) {
  const std::int64_t pixels = fields.size(2) * fields.size(3), n = channels * pixels;
  Tensor out = Tensor::empty({fields.size(0), channels, fields.size(2), fields.size(3)}, DType::fp32, Device{});
  for (std::int64_t b = 0; b < fields.size(0); ++b)
    std::copy_n(fields.data_as<float>() + b * fields.size(1) * pixels, n, out.data_as<float>() + b * n);
  return out;
}

// The loss of the first update and of the last of `updates` with one batch.
std::pair<double, double> losses_of(Task& task, const Batch& batch, const ComputeOptions& compute) {
  TrainerOptions options{.batch = {.global_batch_size = batch_size(batch)}, .compute = compute};
  options.schedule.lr = 0.01;
  Trainer trainer(task, options);
  const auto loaded = std::make_shared<LoadedBatch>();
  loaded->tensors = batch;
  double first = 0, last = 0;
  for (int update = 0; update < 40; ++update) {
    last = trainer.step([&] { return loaded; }).loss;
    if (update == 0) first = last;
  }
  return {first, last};
}

Forecaster forecaster_of(std::shared_ptr<NetworkRecipe> network, const ComputeOptions& compute,
                         const Parallel& parallel = Parallel::alone()) {
  ForecasterOptions options{.network = std::move(network), .forecast = {}};
  options.forecast.img_size = {4, 6};
  options.forecast.n_in_channels = 3;
  options.forecast.n_out_channels = 2;
  FieldsInfo info;
  info.channel_names = {"a", "b", "c"};
  info.statistics = {{0, 0, 0}, {1, 1, 1}};
  info.row_weights = {1, 1, 1, 1};
  return {options, compute, info, Device{}, parallel};
}

}  // namespace

TEST_CASE("a network that is one file trains as a forecast and as a classification, in fp32 and bf16") {
  const auto network = std::make_shared<PerceptronRecipe>();
  for (const AmpMode mode : {AmpMode::none, AmpMode::bf16}) {
    const ComputeOptions compute{.amp_mode = mode};
    Forecaster forecaster = forecaster_of(network, compute);
    CHECK(forecaster.network() == "perceptron");
    const Batch pairs{{"input", random_fields({4, 3, 4, 6}, 0)},
                      {"target", leading(random_fields({4, 3, 4, 6}, 1), 2)}};
    const auto [forecast_first, forecast_last] = losses_of(forecaster, pairs, compute);
    CHECK(forecast_last < 0.5 * forecast_first);

    Classifier classifier(network, compute, {.height = 4, .width = 6, .classes = 3}, Device{});
    CHECK(classifier.network() == "perceptron classifier");
    Tensor labels = Tensor::empty({4}, DType::i32, Device{});
    for (int i = 0; i < 4; ++i) labels.data_as<std::int32_t>()[i] = i % 3;
    const Batch images{{"image", random_fields({4, 1, 4, 6}, 2)}, {"label", labels}};
    const auto [class_first, class_last] = losses_of(classifier, images, compute);
    CHECK(class_last < 0.2 * class_first);
  }
}

TEST_CASE("a network that cannot be split over ranks says so") {
  CHECK_THROWS_WITH(run_ranks({.ranks = 2},
                              [](const Communicator& world) {
                                const Parallel parallel = Parallel::start(world, {.tp = 2}, "tp");
                                forecaster_of(std::make_shared<PerceptronRecipe>(), {}, parallel);
                              }),
                    ContainsSubstring("a perceptron cannot be split over ranks"));
}

TEST_CASE("a network without a residual stream is not split by sequence parallel, where its gradients would be wrong") {
  CHECK_THROWS_WITH(run_ranks({.ranks = 2},
                              [](const Communicator& world) {
                                const auto network = std::make_shared<PerceptronRecipe>();
                                network->refuses_ranks = false;
                                Parallel parallel = Parallel::start(world, {.tp = 2}, "tp");
                                CHECK_NOTHROW(forecaster_of(network, {}, parallel));
                                parallel.sequence = true;
                                forecaster_of(network, {}, parallel);
                              }),
                    ContainsSubstring("--sequence-parallel: perceptron has no residual stream, whose rows it splits"));
}

TEST_CASE("a network without a residual stream is not cut for a pipeline") {
  const auto network = std::make_shared<PerceptronRecipe>();
  network->refuses_ranks = false;
  CHECK_THROWS_WITH(forecaster_of(network, {}, Parallel::imagined(1, {.pp = 3}, "tp-cp-dp")),
                    "--pipeline-parallel 3: perceptron has no residual stream, at which a pipeline cuts a network");
}

TEST_CASE(
    "a training reads what the stage of its iteration reads, from its first iteration to the last before the next") {
  const std::vector<TrainingStage> stages{{0, nullptr, "a"}, {20, nullptr, "b"}, {30, nullptr, "c"}};
  for (const auto& [iterations, stage] : std::vector<std::pair<std::int64_t, std::string>>{
           {0, "a"}, {19, "a"}, {20, "b"}, {29, "b"}, {30, "c"}, {1000000, "c"}})
    CHECK(stage_after(stages, iterations).sentence == stage);
  CHECK_THROWS_WITH(stage_after({}, 0), "no stage of the training begins at iteration 0");
  CHECK_THROWS_WITH(stage_after({{1, nullptr, "a"}}, 5), "no stage of the training begins at iteration 0");
}

TEST_CASE("the list of networks refuses a name that it does not have") {
  std::string names;
  for (const NetworkEntry& entry : network_list()) names += std::string(entry.name) + ", ";
  CHECK_THROWS_WITH(make_network_recipe("resnet"), "config key model must be one of " + names + "not resnet");
  CHECK(make_network_recipe("vit") != nullptr);
  CHECK_THROWS_WITH(network_of_task("translation"),
                    "config key task must be one of forecast, classification, image_regression, volume_regression, "
                    "language_model, not translation");
  CHECK(std::string(network_of_task("language_model")) == "gpt");
  CHECK(std::string(network_of_task("volume_regression")) == "unet");
  CHECK(std::string(network_of_task("image_regression")) == "cnn");
}

}  // namespace isobar
