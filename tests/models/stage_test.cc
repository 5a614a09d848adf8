// Stages (models/stage.h): each lists exactly the weights that it reads, so that a network can be cut between them.
#include "models/stage.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/ops.h"
#include "engine/tape.h"
#include "models/network.h"
#include "models/vit/vit.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

VitConfig small_vit(bool gives_fields) {
  VitConfig config{.height = 4, .width = 6, .patch = 2, .in_channels = 3, .embed = 16, .depth = 2, .heads = 2};
  (gives_fields ? config.out_channels : config.classes) = 5;
  return config;
}

bool is_finite(const Tensors& tensors) {
  for (const Tensor& tensor : tensors)
    if (tensor.defined())
      for (std::int64_t i = 0; i < tensor.numel(); ++i)
        if (!std::isfinite(tensor.data_as<double>()[i])) return false;
  return true;
}

void fill(const Tensor& tensor, double value) {
  std::fill_n(tensor.data_as<double>(), tensor.numel(), value);
}

// The weights that the stage's outputs depend on: each is made NaN in turn.
Weights weights_read_by(const Stage& stage, const Tensors& inputs, const Pass& pass, const Parameters& parameters) {
  Weights read;
  for (int handle = 0; handle < parameters.handles(); ++handle) {
    const Tensor& weight = parameters.get(handle);
    const std::vector<double> before(weight.data_as<double>(), weight.data_as<double>() + weight.numel());
    fill(weight, kNan);
    if (!is_finite(stage.forward(inputs, pass))) read.push_back(handle);
    std::copy(before.begin(), before.end(), weight.data_as<double>());
  }
  return read;
}

constexpr LinearOptions kWide{.out_dtype = DType::fp64};

// y = gelu(x·Wᵀ)·Wᵀ with one W, the toy of a tied weight.
struct Tied {
  Parameters parameters;
  int weight = parameters.add({.names = {"weight"}, .shape = {3, 3}, .init = {Init::Kind::normal, 1}});
  std::vector<Stage> stages = {
      {[this](const Tensors& in, const Pass&) {
         return Tensors{gelu(linear(in[0], parameters.get(weight), {}, kWide), Activation::gelu_erf)};
       },
       {weight}},
      {[this](const Tensors& in, const Pass&) { return Tensors{linear(in[0], parameters.get(weight), {}, kWide)}; },
       {weight}}};
};

}  // namespace

TEST_CASE("stages: each lists exactly the weights that its outputs depend on") {
  const TapeScope off(nullptr);
  for (const bool gives_fields : {false, true}) {
    Parameters parameters;
    const ComputeOptions compute{.dtype = ArithmeticType::fp64};
    const Vit vit(small_vit(gives_fields), {parameters, compute});
    compute.allocate(parameters, Device{}, {});
    Tensor image = Tensor::empty({2, 3, 4, 6}, DType::fp64, Device{});
    for (std::int64_t i = 0; i < image.numel(); ++i)
      image.data_as<double>()[i] = std::sin(0.7 * static_cast<double>(i));

    Tensors state{image};
    const Pass pass = Pass().over(2);
    for (const Stage& stage : vit.stages()) {
      Weights listed = stage.weights;
      std::sort(listed.begin(), listed.end());
      CHECK(weights_read_by(stage, state, pass, parameters) == listed);
      state = stage.forward(state, pass);
    }
    CHECK(is_finite(state));
  }
}

TEST_CASE("stages: a network whose stages forget a parameter is refused by the parameter's name") {
  Parameters parameters;
  const ComputeOptions compute;
  const Vit vit(small_vit(true), {parameters, compute});
  std::vector<Stage> stages(vit.stages().begin(), vit.stages().end());
  CHECK_NOTHROW(check_stages(stages, parameters));
  stages[1].weights.pop_back();
  CHECK_THROWS_WITH(check_stages(stages, parameters),
                    "no stage of the network lists the parameter blocks.0.mlp.fc2.bias");
}

TEST_CASE("stages: a watch notes what each one keeps and its largest tensor, the most of several passes") {
  const TapeScope off(nullptr);
  std::int64_t size = 1000;  // numbers of 8 bytes
  const auto numbers = [](std::int64_t count) { return Tensor::empty({count}, DType::fp64, Device{}); };
  const std::vector<Stage> stages{{[&](const Tensors&, const Pass&) { return Tensors{numbers(size)}; }, {}},
                                  {[&](const Tensors&, const Pass&) {
                                     const Tensor scratch = numbers(3 * size);
                                     return Tensors{numbers(1)};
                                   },
                                   {}}};
  const auto run = [&] {
    const Tensor of_others = numbers(100 * size);  // does not count
    run_stages(stages, {numbers(1)}, Pass());
  };
  StageWatch watch;
  run();
  REQUIRE(watch.stages().size() == 2);
  CHECK(watch.stages()[0].kept >= 8000);
  CHECK(watch.stages()[0].kept < 16000);
  CHECK(watch.stages()[0].largest < 16000);
  CHECK(watch.stages()[1].largest >= 24000);
  CHECK(watch.stages()[1].kept == 0);  // less is held than before
  size = 500;
  run();
  CHECK(watch.stages()[0].kept >= 8000);
  CHECK(watch.stages()[1].largest >= 24000);
  size = 4000;
  {
    const StageWatch inner;
    run_stages(stages, {numbers(1)}, Pass(), {1, 2});
    REQUIRE(inner.stages().size() == 2);  // under their numbers in the whole network
    CHECK(inner.stages()[0].largest == 0);
    CHECK(inner.stages()[1].largest >= 96000);
  }
  CHECK(watch.stages()[1].largest < 96000);
  run();
  CHECK(watch.stages()[0].kept >= 32000);
}

TEST_CASE("stages: a network of fields gives no logits of tokens") {
  Parameters parameters;
  const ComputeOptions compute;
  const Vit vit(small_vit(true), {parameters, compute});
  CHECK_THROWS_WITH(vit.token_head(), "a ViT gives no logits of tokens");
}

TEST_CASE("stages: the gradient of a weight that two stages list is the sum of theirs") {
  Tied tied;
  tied.parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor& weight = tied.parameters.get(tied.weight);
  Tensor x = Tensor::empty({2, 3}, DType::fp64, Device{});
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data_as<double>()[i] = std::cos(static_cast<double>(i));
  const auto sum_of_outputs = [&] {
    const TapeScope off(nullptr);
    const Tensor y = run_stages(tied.stages, {x}, Pass().over(2))[0];
    double sum = 0;
    for (std::int64_t i = 0; i < y.numel(); ++i) sum += y.data_as<double>()[i];
    return sum;
  };

  tied.parameters.begin_step();
  {
    Tape tape;
    Tensor y;
    {
      const TapeScope recording(tape);
      y = run_stages(tied.stages, {x}, Pass().over(2))[0];
    }
    const Tensor ones = Tensor::empty(y.shape(), y.dtype(), Device{});
    fill(ones, 1);
    tape.backward(y, ones);
  }
  tied.parameters.finish_gradients();

  constexpr double kStep = 1e-6;
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    double& w = weight.data_as<double>()[i];
    const double before = w;
    w = before + kStep;
    const double above = sum_of_outputs();
    w = before - kStep;
    const double below = sum_of_outputs();
    w = before;
    CHECK(tied.parameters.grads().data_as<double>()[i] == testing::Approx((above - below) / (2 * kStep)).epsilon(1e-7));
  }
}

}  // namespace isobar
