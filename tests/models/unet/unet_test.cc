// The U-Net: its sizes and names, against PyTorch (tests/golden/README.md), on other axes, and what it refuses.
#include "models/unet/unet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/train/model_file.h"
#include "engine/files/safetensors.h"
#include "engine/tape.h"
#include "models/cnn/recipe.h"
#include "models/regression/regressor.h"
#include "models/regression/volume_regressor.h"
#include "models/unet/recipe.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_comparison.h"
#include "tests/harness/hashed_numbers.h"
#include "tests/harness/key_facts.h"
#include "tests/harness/temporary_folder.h"

namespace isobar {
namespace {

using testing::Arithmetic, testing::ContainsSubstring, testing::Golden, testing::kFp64, testing::NamedValues;
using testing::check_exact, testing::hashed_tensor, testing::summary;

NamedValues summaries(const NamedValues& values) {
  NamedValues result;
  for (const auto& [name, tensor] : values) result[name] = summary(tensor);
  return result;
}

// ---- the golden networks --------------------------------------------------------------------------------------------

class Net {
 public:
  Net(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& keys = {})
      : config_(read_config(testing::golden_entries(golden, arithmetic, keys))),
        task_(config_.recipe->on_shapes()->make_task(config_.compute, arithmetic.device)) {
    config_.batch.global_batch_size = golden.metadata("batch").get<std::int64_t>();
    const nlohmann::json scales = golden.metadata("scales");
    std::uint64_t seed = 1000;
    for (const std::string& name : golden.parameters()) {
      const auto& all = parameters().named();
      const auto p = std::ranges::find(all, name, &NamedParameter::name);
      REQUIRE(p != all.end());
      const Tensor in_file = hashed_tensor(p->full_shape, Device{}, seed++, scales.at(name).get<double>());
      parameters().weight(*p).set_values(from_file_order(in_file, p->full_shape, p->order).to_vector());
    }
    parameters().round_to_compute();
  }

  VolumeRegressor& task() { return dynamic_cast<VolumeRegressor&>(*task_); }
  Parameters& parameters() { return task_->parameters(); }
  TrainerOptions options() const { return config_.trainer_options(); }

 private:
  RunConfig config_;
  std::unique_ptr<Task> task_;
};

// draw: 0 is the golden batch, 1 to 8 are those of the yardsticks.
Batch batch_of(const Golden& golden, Device device, std::uint64_t draw = 0) {
  const auto batch = golden.metadata("batch").get<std::int64_t>();
  const auto size = golden.metadata("config").at("data_size").get<std::int64_t>();
  Tensor turns = Tensor::empty({batch}, DType::i32, device);
  turns.set_values(std::vector<double>(static_cast<std::size_t>(batch), 0.0));
  return {{"input", hashed_tensor({batch, 4, size, size, size}, device, 2 * draw + 1)},
          {"target", hashed_tensor({batch, 5, size, size, size}, device, 2 * draw + 2, 0.5, -0.25)},
          {"turn", turns}};
}

struct UnetOutcome {
  std::vector<double> output, loss;  // the output in the order of files
  NamedValues gradients;
};

UnetOutcome run(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& keys = {}, std::uint64_t draw = 0) {
  Net net(golden, arithmetic, keys);
  const Batch batch = batch_of(golden, arithmetic.device, draw);
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    loss = net.task().loss(batch, {});
  }
  const TapeScope off(nullptr);
  return {to_channels_first(net.task().prediction(batch)).to_vector(), loss.to_vector(),
          testing::gradients_of(net.parameters(), tape, loss, testing::loss_scale_of(golden, arithmetic))};
}

// The sums of squared relative errors over several draws, by name.
using Errors = std::map<std::string, double>;

void add_errors(const UnetOutcome& pass, const UnetOutcome& exact, Errors& errors) {
  const auto add = [&](const std::string& name, const std::vector<double>& got, const std::vector<double>& expected) {
    INFO(name);
    REQUIRE(testing::finite(got));
    errors[name] += std::pow(testing::norm(testing::difference(got, expected)) / testing::norm(expected), 2);
  };
  add("output", pass.output, exact.output);
  add("loss", pass.loss, exact.loss);
  for (const auto& [name, gradient] : pass.gradients) add(name, gradient, exact.gradients.at(name));
}

// The draws of the yardsticks: where a loss has signs and exponentials, one draw may err by chance.
constexpr std::uint64_t kDraws = 8;

void check_precision(const Golden& golden, Arithmetic arithmetic, const std::vector<UnetOutcome>& exact) {
  const std::string yardstick = std::string("yardstick.") + name_of(arithmetic.dtype) + ".";
  Errors errors;
  for (std::uint64_t draw = 1; draw <= kDraws; ++draw)
    add_errors(run(golden, arithmetic, {}, draw), exact.at(draw - 1), errors);
  const auto check = [&](const std::string& name, double pytorch) {
    const double error = std::sqrt(errors.at(name) / kDraws);
    INFO(name << ", " << name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind) << ": error " << error
              << ", PyTorch's " << pytorch);
    CHECK(error <= 2 * pytorch + 0x1p-24);
  };
  for (const char* name : {"output", "loss"}) check(name, golden.values(yardstick + name)[0]);
  const std::vector<std::string> names = golden.parameters();
  const std::vector<double> yard = golden.values(yardstick + "gradients");
  for (std::size_t i = 0; i < names.size(); ++i) check(names[i], yard[2 * i]);
}

// Of all arithmetics on devices of which `is_wanted(kind)`.
void check_precisions(bool (*is_wanted)(DeviceKind)) {
  const Golden golden("unet_half");
  std::vector<UnetOutcome> exact;
  for (std::uint64_t draw = 1; draw <= kDraws; ++draw) exact.push_back(run(golden, kFp64, {}, draw));
  for (const Arithmetic arithmetic : testing::low_precisions())
    if (is_wanted(arithmetic.device.kind)) check_precision(golden, arithmetic, exact);
}

testing::Training train(const Golden& golden, Arithmetic arithmetic) {
  Net net(golden, arithmetic, testing::training_keys(golden, "adam"));
  return testing::train(net.task(), net.options(), batch_of(golden, Device{}));
}

// Made without weights: on shapes.
std::int64_t parameters_of(const std::vector<std::string>& assignments,
                           std::map<std::string, Shape>* shapes = nullptr) {
  std::vector<std::string> all{"task=volume_regression", "volumes=synthetic"};
  all.insert(all.end(), assignments.begin(), assignments.end());
  RunConfig config = read_config(testing::entries_of(all));
  const auto task = config.recipe->on_shapes()->make_task(config.compute, {DeviceKind::meta});
  if (shapes != nullptr)
    for (const NamedParameter& p : task->parameters().named()) (*shapes)[p.name] = p.full_shape;
  return task->parameters().count();
}

std::vector<double> prediction_of(const UnetOptions& options, const Tensor& input, const ComputeOptions& compute = {}) {
  Ports ports{.in = {input.shape().begin() + 1, input.shape().end()}, .out = {}};
  ports.out = ports.in;
  const Regressor regressor(std::make_shared<UnetRecipe>(options), compute, ports, Device{});
  return regressor.prediction({{"input", input}}).to_vector();
}

constexpr const char* kGoldens[] = {"unet", "unet_half"};

}  // namespace

TEST_CASE(
    "unet: the reference's networks have 116,977,029 and 66,644,357 parameters, with PyTorch's names and shapes") {
  // In the order of PyTorch: a convolution [Co, Ci, 4, 4, 4], a transposed one [Ci, Co, 4, 4, 4].
  const std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>> layers{
      {"conv_down1.0", 64, 4, 64},     {"conv_down2.0", 128, 64, 128},  {"conv_down3.0", 256, 128, 256},
      {"conv_down4.0", 512, 256, 512}, {"conv_down5.0", 512, 512, 512}, {"conv_down6.0", 512, 512, 512},
      {"conv_up6.0", 512, 512, 512},   {"conv_up5.0", 1024, 512, 512},  {"conv_up4.0", 1024, 256, 256},
      {"conv_up3.0", 512, 128, 128},   {"conv_up2.0", 256, 64, 64},     {"conv_last", 128, 5, 5}};
  std::map<std::string, Shape> shapes, expected;
  for (const auto& [name, first, second, bias] : layers) {
    expected[name + ".weight"] = {first, second, 4, 4, 4};
    expected[name + ".bias"] = {bias};
  }
  CHECK(parameters_of({}, &shapes) == 116977029);
  CHECK(shapes == expected);
  CHECK(parameters_of({"full_scale=false"}) == 66644357);
  CHECK(parameters_of({"levels=1", "width=3", "data_size=2"}) == 64 * 4 * 3 + 3 + 64 * 3 * 5 + 5);
}

// The tutorials write no checkpoint: what there is of their network is its state_dict.
TEST_CASE(
    "unet: a state_dict of the reference is read by its names and written with the same names, shapes and bytes") {
  const std::string weights = testing::kGolden + "unet_weights.safetensors";
  RunConfig config = read_config(testing::entries_of({"task=volume_regression", "volumes=synthetic", "width=1"}));
  const auto task = config.recipe->on_shapes()->make_task(config.compute, Device{});
  read_model(weights, *task);
  const testing::TemporaryFolder folder;
  write_model(folder / "model.safetensors", *task, to_json(config));
  const SafetensorsFile read(weights), written(folder / "model.safetensors");
  CHECK(read.tensors().size() == 24);
  CHECK(written.tensors().size() == read.tensors().size());
  for (const TensorBytes& tensor : read.tensors()) {
    INFO(tensor.info.name);
    const TensorBytes& own = written.at(tensor.info.name);
    CHECK(own.info.dtype == tensor.info.dtype);
    CHECK(own.info.shape == tensor.info.shape);
    CHECK(std::ranges::equal(own.bytes, tensor.bytes));
  }
}

TEST_CASE("unet: output, loss and every gradient equal PyTorch's in fp64") {
  for (const char* name : kGoldens) {
    INFO(name);
    const Golden golden(name);
    const UnetOutcome pass = run(golden, kFp64);
    check_exact("output", summary(pass.output), golden.values("output"));
    check_exact("loss", pass.loss, golden.values("loss"));
    REQUIRE(pass.gradients.size() == golden.parameters().size());
    testing::check_exact_gradients(golden, summaries(pass.gradients));
  }
}

TEST_CASE("unet: ten steps of Adam equal PyTorch's in fp64") {
  for (const char* name : kGoldens) {
    INFO(name);
    const Golden golden(name);
    testing::Training training = train(golden, kFp64);
    training.weights = summaries(training.weights);
    testing::check_exact_training(golden, training, "adam");
  }
}

TEST_CASE("unet: lower precisions err at most twice as much as PyTorch in the same precision", "[.long]") {
  check_precisions([](DeviceKind kind) { return kind != DeviceKind::emulator; });
}

// What it adds: emulated kernels are put together as the CPU's are.
TEST_CASE("unet: in the emulator lower precisions err at most twice as much as PyTorch in the same precision",
          "[.long]") {
  check_precisions([](DeviceKind kind) { return kind == DeviceKind::emulator; });
}

TEST_CASE("unet: levels that are computed again give the same bits") {
  const Golden golden("unet_half");
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    const Arithmetic arithmetic{{DeviceKind::cpu}, dtype};
    const UnetOutcome kept = run(golden, arithmetic), again = run(golden, arithmetic, {{"recompute", true}});
    CHECK(kept.output == again.output);
    CHECK(kept.gradients == again.gradients);
  }
}

TEST_CASE("unet: the rates of the reference, of its base config and of a scaled batch with a warmup") {
  RunConfig base = read_config(load_config("unet", config_search_path()).entries);
  const auto rate_at = [](RunConfig& config, std::int64_t iteration) {  // which counts from 1
    const std::int64_t per_epoch = 65536 / config.batch.global_batch_size;
    const ScheduleOptions run = config.schedule.of_run(per_epoch);
    CHECK(run.num_iters == *config.schedule.num_epochs * per_epoch);
    return run.learning_rate(config.batch.global_batch_size, per_epoch).at(iteration - 1);
  };
  CHECK(std::abs(rate_at(base, 1024) - 1.95106e-4) < 5e-10);
  CHECK(std::abs(rate_at(base, 2048) - 1.80902e-4) < 5e-10);
  CHECK(std::abs(rate_at(base, 5120) - 1e-4) < 1e-15);

  RunConfig scaled = read_config(load_config("unet_bs512_opt", config_search_path()).entries);
  const std::vector<double> expected = Golden("unet").values("rates");
  const std::vector<std::int64_t> iterations{1, 127, 128, 129, 1024, 5120};
  for (std::size_t i = 0; i < iterations.size(); ++i)
    CHECK(std::abs(rate_at(scaled, iterations[i]) - expected[i]) < 1e-17);
}

TEST_CASE(
    "unet: fields of one and two axes, where longitude wraps, a turned globe gives the turned output, to the bit") {
  UnetOptions globe{.width = 3, .levels = 2, .edge = std::vector<std::string>{"zeros", "wrap"}, .bounded = false};
  const Shape shape{2, 2, 4, 8};
  const Tensor input = hashed_tensor(shape, Device{}, 5);
  const auto turned = [&](const std::vector<double>& values) {
    std::vector<double> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) result[i] = values[i - i % 8 + (i % 8 + 4) % 8];
    return result;
  };
  Tensor other = Tensor::empty(shape, DType::fp32, Device{});
  other.set_values(turned(input.to_vector()));
  CHECK(prediction_of(globe, other) == turned(prediction_of(globe, input)));
  globe.edge.reset();
  CHECK(prediction_of(globe, other) != turned(prediction_of(globe, input)));
  CHECK(prediction_of({.width = 3, .levels = 3}, hashed_tensor({2, 1, 16}, Device{}, 6)).size() == 32);
}

TEST_CASE("unet: its initial weights are the reference's, and an output that is added to a good guess starts at zero") {
  const Ports ports{.in = {2, 8, 8}, .out = {2, 8, 8}};
  UnetOptions options{.width = 16, .levels = 3, .conv_bias = 0.5};
  Regressor regressor(std::make_shared<UnetRecipe>(options), {}, ports, Device{});
  for (const NamedParameter& p : regressor.parameters().named()) {
    const std::vector<double> values = regressor.parameters().weight(p).to_vector();
    double sum = 0, squares = 0;
    for (const double value : values) {
      sum += value;
      squares += value * value;
    }
    const auto n = static_cast<double>(values.size());
    INFO(p.name);
    if (p.name.ends_with("bias"))
      CHECK(sum == 0.5 * n);
    else
      CHECK(std::abs(std::sqrt(squares / n) - 0.02) < 0.02 * 4 / std::sqrt(2 * n));
  }
  const Ports zero{.in = ports.in, .out = ports.out, .starts_at_zero = true};
  const Regressor added(std::make_shared<UnetRecipe>(options), {}, zero, Device{});
  const std::vector<double> output =
      added.prediction({{"input", hashed_tensor({1, 2, 8, 8}, Device{}, 7)}}).to_vector();
  CHECK(std::ranges::all_of(output, [](double value) { return value == 0; }));
}

TEST_CASE("unet: bounded outputs are the tanh of those that are not, and leave it in the dtype of the parameters") {
  const Tensor input = hashed_tensor({2, 2, 4, 4}, Device{}, 8, 3);
  const UnetOptions bounded{.width = 4, .levels = 2, .conv_scale = 0.7};
  UnetOptions free = bounded;
  free.bounded = false;
  const std::vector<double> inside = prediction_of(bounded, input), outside = prediction_of(free, input);
  CHECK(std::ranges::any_of(outside, [](double value) { return std::abs(value) > 1; }));
  for (std::size_t i = 0; i < inside.size(); ++i) CHECK(std::abs(inside[i] - std::tanh(outside[i])) < 1e-6);

  // In bf16 fields are rounded on their way in, and what comes out is not.
  const Tensor rounded = input.to(DType::bf16).to(DType::fp32);
  CHECK(prediction_of(bounded, rounded) != inside);
  const ComputeOptions in_bf16{.amp_mode = AmpMode::bf16};
  CHECK(prediction_of(bounded, rounded, in_bf16) == prediction_of(bounded, input, in_bf16));
  const Golden golden("unet_half");
  Net net(golden, {{DeviceKind::cpu}, DType::bf16});
  const TapeScope off(nullptr);
  CHECK(net.task().prediction(batch_of(golden, Device{})).dtype() == DType::fp32);
}

TEST_CASE("unet: what it cannot compute is refused in a sentence") {
  CHECK_THROWS_WITH(
      testing::checked_config(testing::entries_of({"task=volume_regression", "volumes=synthetic", "data_size=48"})),
      "config key data_size in --set: a U-Net of 6 levels takes multiples of 64 points, not 48; set full_scale or "
      "levels to have fewer levels");
  CHECK_THROWS_WITH(testing::checked_config(testing::entries_of(
                        {"task=volume_regression", "volumes=synthetic", "data_size=48", "full_scale=false"})),
                    ContainsSubstring("a U-Net of 5 levels takes multiples of 32 points, not 48"));
  const UnetRecipe recipe;
  CHECK_THROWS_WITH(recipe.check({.in = {1, 64, 64}, .out = {10}}, ""), ContainsSubstring("cannot make [10]"));
  Parameters parameters;
  const ComputeOptions compute;
  const auto network =
      UnetRecipe({.width = 2, .levels = 2}).make({.in = {1, 4, 4}, .out = {1, 4, 4}}, {parameters, compute});
  CHECK_THROWS_WITH(network->in_channels_last(hashed_tensor({1, 4, 8, 1}, Device{}, 1), {}),
                    ContainsSubstring("the model takes fields [1, 4, 4, 1], channels last, not [1, 4, 8, 1]"));
}

TEST_CASE("unet: a small one for checks has three levels of 8 channels, or its own if they are fewer") {
  const auto small = [](UnetOptions options) {
    UnetRecipe recipe(options);
    recipe.shrink(5);
    return std::pair(recipe.unet.config().levels, recipe.unet.config().width);
  };
  CHECK(small({}) == std::pair<std::int64_t, std::int64_t>(3, 8));
  CHECK(small({.width = 4, .levels = 2}) == std::pair<std::int64_t, std::int64_t>(2, 4));
  CHECK(small({.width = 9, .full_scale = false}) == std::pair<std::int64_t, std::int64_t>(3, 8));
}

TEST_CASE("unet: a task that has channels last gets them from a network that has them first") {
  const Ports ports{.in = {4, 4, 4, 4}, .out = {5, 4, 4, 4}};
  const VolumeRegressor task(std::make_shared<CnnRecipe>(CnnOptions{.width = 3, .depth = 2}), {}, ports, {}, Device{});
  Tensor turns = Tensor::empty({2}, DType::i32, Device{});
  turns.set_values({0, 0});
  const Batch batch{{"input", hashed_tensor({2, 4, 4, 4, 4}, Device{}, 1)},
                    {"target", hashed_tensor({2, 5, 4, 4, 4}, Device{}, 2)},
                    {"turn", turns}};
  CHECK(task.prediction(batch).shape() == Shape{2, 4, 4, 4, 5});
}

TEST_CASE("unet options: each key's bounds, default and names, and how many levels there are") {
  UnetOptions options;
  CHECK(testing::key_facts(options.keys()) ==
        std::vector<std::string>{
            "width; at least 1, at most 65536; also: ngf, basechannels", "full_scale", "levels; at least 1, at most 20",
            "edge; also: padding, paddingmode", "bounded", "conv_init; yaml: weight_init.conv_init",
            "conv_scale; at least 0; yaml: weight_init.conv_scale", "conv_bias; yaml: weight_init.conv_bias"});
  CHECK(options.width == 64);
  CHECK(options.full_scale);
  CHECK(options.bounded);
  CHECK(options.conv_init == ConvInitKind::normal);
  CHECK(options.conv_scale == 0.02);
  CHECK(options.conv_bias == 0);
  CHECK(options.config().levels == 6);
  options.full_scale = false;
  CHECK(options.config().levels == 5);
  options.levels = 2;
  options.bounded = false;
  options.conv_scale = 0.5;
  options.conv_bias = 0.25;
  CHECK(options.config().levels == 2);
  CHECK_FALSE(options.config().bounded);
  CHECK(options.config().init.scale == 0.5);
  CHECK(options.config().init.bias == 0.25);
}

}  // namespace isobar
