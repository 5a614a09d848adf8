// The convolutional network: its size and names, against PyTorch (tests/golden/README.md), on a globe, and what it
// refuses.
#include "models/cnn/cnn.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"
#include "apps/train/model_file.h"
#include "comm/thread_ranks.h"
#include "engine/schedule.h"
#include "engine/tape.h"
#include "models/cnn/recipe.h"
#include "models/image_regression/recipe.h"
#include "models/regression/regressor.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_comparison.h"
#include "tests/harness/key_facts.h"

namespace isobar {
namespace {

using testing::Arithmetic, testing::ContainsSubstring, testing::Golden, testing::kFp64, testing::kGolden;
using testing::NamedValues, testing::check_budget, testing::check_exact;

// The golden network.
class Net {
 public:
  explicit Net(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& keys = {})
      : config_(read_config(testing::golden_entries(golden, arithmetic, keys))),
        task_(config_.recipe->on_shapes()->make_task(config_.compute, arithmetic.device)) {
    config_.batch.global_batch_size = golden.shape("input")[0];
    read_model(kGolden + "cnn_weights.safetensors", *task_);
  }

  Regressor& regressor() { return dynamic_cast<Regressor&>(*task_); }
  Parameters& parameters() { return task_->parameters(); }
  TrainerOptions options() const { return config_.trainer_options(); }

 private:
  RunConfig config_;
  std::unique_ptr<Task> task_;
};

Batch cnn_batch(const Golden& golden, Device device) {
  return {{"input", testing::load(golden, "input", device)}, {"target", testing::load(golden, "target", device)}};
}

struct CnnOutcome {
  std::vector<double> output, loss;
  NamedValues gradients;
};

CnnOutcome run_cnn(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& keys = {}) {
  Net net(golden, arithmetic, keys);
  const Batch batch = cnn_batch(golden, arithmetic.device);
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    loss = net.regressor().loss(batch, {});
  }
  return {net.regressor().prediction(batch).to_vector(), loss.to_vector(),
          testing::gradients_of(net.parameters(), tape, loss, testing::loss_scale_of(golden, arithmetic))};
}

testing::Training train_cnn(const Golden& golden, Arithmetic arithmetic) {
  Net net(golden, arithmetic, testing::training_keys(golden, "adam"));
  return testing::train(net.regressor(), net.options(), cnn_batch(golden, Device{}));
}

// Made without weights: on shapes.
std::vector<std::string> names_of_parameters(const std::vector<std::string>& assignments, std::int64_t& count) {
  RunConfig config = read_config(testing::entries_of(assignments));
  const auto task = config.recipe->on_shapes()->make_task(config.compute, {DeviceKind::meta});
  std::vector<std::string> names;
  for (const NamedParameter& p : task->parameters().named()) names.push_back(p.name);
  count = task->parameters().count();
  return names;
}

Tensor fields(const Shape& shape, std::int64_t roll = 0) {
  const Tensor t = Tensor::empty(shape, DType::fp32, Device{});
  const std::int64_t columns = shape.back();
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    const std::int64_t column = (i % columns + roll) % columns, from = i - i % columns + column;
    t.data_as<float>()[i] = static_cast<float>(std::sin(1.7 * static_cast<double>(from)));
  }
  return t;
}

std::vector<double> prediction_of(const CnnOptions& options, const Tensor& input) {
  const Ports ports{.in = {2, input.size(2), input.size(3)}, .out = {2, input.size(2), input.size(3)}};
  const Regressor regressor(std::make_shared<CnnRecipe>(options), {}, ports, Device{});
  return regressor.prediction({{"input", input}}).to_vector();
}

}  // namespace

TEST_CASE("cnn: the network of the course has 112,001 parameters, with PyTorch's names in PyTorch's order") {
  std::int64_t count = 0;
  const std::vector<std::string> names = names_of_parameters({"task=image_regression"}, count);
  CHECK(count == 112001);
  std::vector<std::string> expected;
  for (const char* layer : {"conv_in.0", "conv_hidden.0.0", "conv_hidden.1.0", "conv_hidden.2.0", "conv_out.0"})
    for (const char* part : {".weight", ".bias"}) expected.push_back(std::string(layer) + part);
  CHECK(std::is_permutation(names.begin(), names.end(), expected.begin(), expected.end()));
  names_of_parameters({"task=image_regression", "n_in_channels=3", "n_out_channels=2", "depth=2", "width=4"}, count);
  CHECK(count == 4 * 3 * 9 + 4 + 2 * 4 * 9 + 2);
}

TEST_CASE("cnn: on shapes, the convolutions of a step by hand") {
  RunConfig config = read_config(
      testing::entries_of({"task=image_regression", "img_size=[8,9]", "n_in_channels=3", "width=5", "depth=4"}));
  config.batch.global_batch_size = 2;
  const StepPrediction step = predict_step(*config.recipe->on_shapes(), config.trainer_options(), {}, DeviceKind::cpu);
  constexpr double kPoints = 2 * 8 * 9, kTap = 2 * 9 * kPoints;
  constexpr double kFirst = kTap * 3 * 5, kHidden = kTap * 5 * 5, kLast = kTap * 5 * 1;
  CHECK(step.kernels.at("conv_fwd").calls == 4);
  CHECK(step.kernels.at("conv_fwd").cost.flops == kFirst + 2 * kHidden + kLast);
  CHECK(step.kernels.at("conv_bwd_weight").cost.flops == kFirst + 2 * kHidden + kLast);
  CHECK(step.kernels.at("conv_bwd_data").cost.flops == 2 * kHidden + kLast);  // images have no gradient
}

TEST_CASE("cnn: output, loss and every gradient equal PyTorch's in fp64") {
  const Golden golden("cnn");
  const CnnOutcome pass = run_cnn(golden, kFp64);
  check_exact("output", pass.output, golden.values("output"));
  check_exact("loss", pass.loss, golden.values("loss"));
  REQUIRE(pass.gradients.size() == golden.parameters().size());
  testing::check_exact_gradients(golden, pass.gradients);
}

TEST_CASE("cnn: ten steps of Adam equal PyTorch's in fp64") {
  const Golden golden("cnn");
  testing::check_exact_training(golden, train_cnn(golden, kFp64), "adam");
}

TEST_CASE("cnn: lower precisions err at most twice as much as PyTorch in the same precision") {
  const Golden golden("cnn"), weights("cnn_weights");
  NamedValues start;
  for (const std::string& name : golden.parameters()) start[name] = weights.values(name);
  for (const Arithmetic arithmetic : testing::low_precisions()) {
    const std::string yardstick = std::string("yardstick.") + name_of(arithmetic.dtype) + ".";
    INFO(name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind));
    const CnnOutcome pass = run_cnn(golden, arithmetic);
    check_budget("output", pass.output, golden.values("output"), golden.values(yardstick + "output")[0]);
    check_budget("loss", pass.loss, golden.values("loss"), golden.values(yardstick + "loss")[0]);
    testing::check_gradient_budgets(golden, pass.gradients, yardstick);
    testing::check_update_budget(golden, train_cnn(golden, arithmetic), start, "adam", yardstick);
  }
}

TEST_CASE("cnn: layers that are computed again give the same bits") {
  const Golden golden("cnn");
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    const Arithmetic arithmetic{{DeviceKind::cpu}, dtype};
    const CnnOutcome kept = run_cnn(golden, arithmetic), again = run_cnn(golden, arithmetic, {{"recompute", true}});
    CHECK(kept.output == again.output);
    CHECK(kept.gradients == again.gradients);
  }
}

TEST_CASE("cnn: the rates of the course's 25 epochs are PyTorch's") {
  const std::vector<double> expected = Golden("cnn").values("course_rates");
  constexpr std::int64_t kIterations = 4;  // an epoch
  ScheduleOptions options;
  options.num_epochs = options.decay_epochs = 25;
  options.lr = 1e-3;
  options.lr_step = RateStep::epoch;
  const ScheduleOptions run = options.of_run(kIterations);
  CHECK(run.num_iters == 25 * kIterations);
  const LearningRate rate = run.learning_rate(32, kIterations);
  for (std::int64_t t = 0; t < 25 * kIterations; ++t) {
    INFO("after " << t << " updates");
    const double pytorch = expected[static_cast<std::size_t>(t / kIterations)];
    CHECK(std::abs(rate.at(t) - pytorch) <= 1e-13 * 1e-3);
  }
  options.num_epochs = 5;  // a run that ends before its decay does
  CHECK(options.of_run(kIterations).learning_rate(32, kIterations).at(4) == rate.at(4));
}

TEST_CASE("cnn: where longitude wraps, a turned globe gives the turned output, bit for bit") {
  CnnOptions globe{.width = 5, .depth = 4, .edge = std::vector<std::string>{"zeros", "wrap"}};
  const Shape shape{2, 2, 6, 8};
  constexpr std::int64_t kHalf = 4;
  const auto turned = [&](const std::vector<double>& values) {
    std::vector<double> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      result[i] = values[i - i % 8 + (i % 8 + static_cast<std::size_t>(kHalf)) % 8];
    return result;
  };
  CHECK(prediction_of(globe, fields(shape, kHalf)) == turned(prediction_of(globe, fields(shape))));
  globe.edge.reset();
  CHECK(prediction_of(globe, fields(shape, kHalf)) != turned(prediction_of(globe, fields(shape))));
}

TEST_CASE("cnn: its initial weights are uniform up to 1/sqrt(fan_in), as PyTorch's are") {
  const Ports ports{.in = {2, 6, 8}, .out = {3, 6, 8}};
  Regressor regressor(std::make_shared<CnnRecipe>(CnnOptions{.width = 20, .depth = 3}), {}, ports, Device{});
  for (const NamedParameter& p : regressor.parameters().named()) {
    if (!p.name.ends_with("weight")) continue;
    INFO(p.name);
    const double bound = 1 / std::sqrt(static_cast<double>(p.full_shape[1] * 9));
    double largest = 0;
    for (const double value : regressor.parameters().weight(p).to_vector())
      largest = std::max(largest, std::abs(value));
    CHECK(largest <= bound * (1 + 1e-6));
    CHECK(largest > 0.95 * bound);
  }
}

TEST_CASE("cnn: an output that is added to a good guess starts at zero") {
  const Ports ports{.in = {2, 4, 4}, .out = {2, 4, 4}, .starts_at_zero = true};
  const Regressor regressor(std::make_shared<CnnRecipe>(), {}, ports, Device{});
  const std::vector<double> output = regressor.prediction({{"input", fields({1, 2, 4, 4})}}).to_vector();
  CHECK(std::ranges::all_of(output, [](double value) { return value == 0; }));
}

TEST_CASE("cnn: what it cannot compute is refused in a sentence") {
  const CnnRecipe recipe;
  Parameters parameters;
  const ComputeOptions compute;
  const auto make = [&](const Ports& ports, const CnnRecipe& of) {
    return make_network(of, ports, {parameters, compute});
  };
  CHECK_THROWS_WITH(make({.in = {1, 28, 28}, .out = {10}}, recipe),
                    "config key model: a CNN computes fields on the grid of its input, and cannot make [10] of "
                    "[1, 28, 28]");
  CHECK_THROWS_WITH(make({.in = {1, 8, 8}, .out = {1, 8, 9}}, recipe), ContainsSubstring("cannot make [1, 8, 9]"));
  CHECK_THROWS_WITH(recipe.check({.in = {1, 28, 28}, .out = {10}}, ""), ContainsSubstring("cannot make [10]"));
  CnnRecipe three;
  three.cnn.edge = {"zeros", "wrap", "wrap"};
  CHECK_THROWS_WITH(make({.in = {1, 8, 8}, .out = {1, 8, 8}}, three),
                    "config key edge: there are 3 words for the 2 axes of [1, 8, 8]");
  CHECK_THROWS_WITH(testing::checked_config(testing::entries_of({"task=image_regression", "edge=[\"mirror\"]"})),
                    ContainsSubstring("edge in --set must be a list of zeros and wrap, not mirror"));
  CHECK_THROWS_WITH(prediction_of({}, fields({1, 3, 4, 4})), ContainsSubstring("input has the shape [1, 3, 4, 4]"));
}

TEST_CASE("cnn: a small one for checks has a hidden layer at least, one for each piece, and none that is not there") {
  const auto depth = [](std::int64_t own, std::int64_t blocks) {
    CnnRecipe recipe({.width = 4, .depth = own});
    recipe.shrink(blocks);
    return recipe.cnn.depth;
  };
  CHECK(depth(8, 1) == 3);
  CHECK(depth(8, 5) == 5);
  CHECK(depth(8, 9) == 8);
  CHECK(depth(2, 1) == 2);
}

TEST_CASE("cnn: ranks that would share it are refused") {
  for (const MeshSizes sizes : {MeshSizes{.tp = 2}, MeshSizes{.cp = 2}})
    CHECK_THROWS_WITH(
        run_ranks({.ranks = 2},
                  [&](const Communicator& world) {
                    const Parallel parallel = Parallel::start(world, sizes, "tp-cp-dp");
                    Parameters parameters;
                    const ComputeOptions compute;
                    make_network(CnnRecipe(), {.in = {1, 8, 8}, .out = {1, 8, 8}}, {parameters, compute, parallel});
                  }),
        ContainsSubstring("tensor and context parallel: ranks cannot share a CNN; use data parallel"));
}

TEST_CASE("cnn options: each key's bounds, default and names in other programs") {
  CnnOptions options;
  CHECK(testing::key_facts(options.keys()) ==
        std::vector<std::string>{"width; at least 1, at most 1048576; also: hiddendim",
                                 "depth; at least 2, at most 8000; also: layers, numlayers",
                                 "edge; also: padding, paddingmode", "activate_output"});
  CHECK(options.width == 64);
  CHECK(options.depth == 5);
  CHECK_FALSE(options.edge);
  CHECK_FALSE(options.activate_output);
  const CnnConfig config = CnnOptions{.width = 7, .depth = 3, .activate_output = true}.config();
  CHECK(config.width == 7);
  CHECK(config.depth == 3);
  CHECK(config.activate_output);
}

TEST_CASE("cnn options: a recipe sees as many points as it has convolutions, and wraps where its words say so") {
  const CnnRecipe recipe(CnnOptions{.width = 4, .depth = 9, .edge = std::vector<std::string>{"zeros", "wrap"}});
  CHECK(recipe.reach()->points == 9);
  CHECK(recipe.reach()->stride == 1);
  CHECK_FALSE(recipe.reach()->wraps_along(0));
  CHECK(recipe.reach()->wraps_along(1));
}

}  // namespace isobar
