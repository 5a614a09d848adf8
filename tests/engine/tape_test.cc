// The tape: every op's gradient against finite differences in fp64 with random cotangents, shared inputs, leaves that
// accumulate, and memory that is given back.
#include "engine/tape.h"

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "engine/conv_ops.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

Tensor random_tensor(Shape shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor t = Tensor::empty(std::move(shape), DType::fp64, Device{});
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data_as<double>()[i] = normal(generator);
  return t;
}

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// With missing points (NaN) at these places.
Tensor with_holes(const Tensor& x, std::initializer_list<std::int64_t> places) {
  std::vector<double> values = x.to_vector();
  for (const std::int64_t i : places) values[static_cast<std::size_t>(i)] = std::nan("");
  Tensor holed = Tensor::empty(x.shape(), x.dtype(), x.device());
  holed.set_values(values);
  return holed;
}

double dot(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const std::vector<double> x = a[k].to_vector(), y = b[k].to_vector();
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  }
  return sum;
}

// d(Σ cotangent · f(inputs)) by central differences, against the tape's gradients of every input.
void check_gradients(const Function& f, std::vector<Tensor> inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs)
    leaves.push_back(make_leaf(input, Tensor::zeros(input.shape(), DType::fp64, Device{})));
  Tape tape;
  std::vector<Tensor> outputs;
  {
    const TapeScope recording(tape);
    outputs = f(leaves);
  }
  std::vector<Tensor> cotangents, upstream;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    cotangents.push_back(random_tensor(outputs[k].shape(), 100 + static_cast<unsigned>(k)));
    upstream.push_back(random_tensor(outputs[k].shape(), 100 + static_cast<unsigned>(k)));
  }
  // An op that left one of its inputs out of its node would tell of it too early or never.
  std::map<const Leaf*, std::vector<double>> told;
  tape.on_ready([&](const Leaf& leaf) {
    CHECK(!told.contains(&leaf));
    told[&leaf] = leaf.grad.to_vector();
  });
  tape.backward(outputs, upstream);
  CHECK(told.size() == leaves.size());
  for (const Tensor& leaf : leaves) CHECK(told[leaf.leaf().get()] == leaf.leaf()->grad.to_vector());

  constexpr double kStep = 1e-5;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    REQUIRE(leaves[k].leaf()->touched);
    const std::vector<double> gradient = leaves[k].leaf()->grad.to_vector();
    for (std::int64_t i = 0; i < inputs[k].numel(); ++i) {
      double& value = inputs[k].data_as<double>()[i];
      const double saved = value;
      value = saved + kStep;
      const double above = dot(f(inputs), cotangents);
      value = saved - kStep;
      const double below = dot(f(inputs), cotangents);
      value = saved;
      const double expected = (above - below) / (2 * kStep), got = gradient[static_cast<std::size_t>(i)];
      INFO("input " << k << ", element " << i << ": " << got << ", finite differences " << expected);
      REQUIRE(std::isfinite(got));
      REQUIRE(std::abs(got - expected) <= 1e-6 * (1 + std::abs(expected)));
    }
  }
}

constexpr LinearOptions kWide{.out_dtype = DType::fp64};

Tensor leaf_of(const Shape& shape, unsigned seed) {
  return make_leaf(random_tensor(shape, seed), Tensor::empty(shape, DType::fp64, Device{}));
}

// Notes which leaves a tape tells, by name, and what their gradients are at that moment.
struct Watch {
  std::vector<std::pair<Tensor, std::string>> leaves;
  std::vector<std::string> names;
  std::map<const Leaf*, std::vector<double>> gradients;

  Watch(Tape& tape, std::vector<std::pair<Tensor, std::string>> all) : leaves(std::move(all)) {
    tape.on_ready([this](const Leaf& told) {
      for (const auto& [leaf, name] : leaves)
        if (leaf.leaf().get() == &told) names.push_back(name);
      gradients[&told] = told.grad.to_vector();
    });
  }
  // No gradient has changed since it was told.
  void check_complete() const {
    CHECK(gradients.size() == names.size());
    for (const auto& [leaf, gradient] : gradients) CHECK(leaf->grad.to_vector() == gradient);
  }
};

// Of targets [2, 3, 2, 2], for every loss, of fields and of rows of patches.
void check_forecast_loss(const Tensor& target, bool masked) {
  LossInputs inputs{.masked = masked, .row_weights = random_tensor({2}, 5), .channel_weights = random_tensor({3}, 6)};
  for (Tensor* weights : {&inputs.row_weights, &inputs.channel_weights})
    for (std::int64_t i = 0; i < weights->numel(); ++i)
      weights->data_as<double>()[i] = std::abs(weights->data_as<double>()[i]);
  for (const LossKind kind : {LossKind::relative_l2, LossKind::weighted_mse, LossKind::relative_l2_weighted})
    for (const std::int64_t patch : {0, 1, 2}) {
      inputs.kind = kind;
      inputs.patch = patch;
      const Shape shape = patch == 0 ? Shape{2, 3, 2, 2} : Shape{2 * 4 / (patch * patch), 3 * patch * patch};
      check_gradients([&](const auto& in) { return std::vector{forecast_loss(in[0], target, inputs)}; },
                      {random_tensor(shape, 1)});
    }
}

}  // namespace

TEST_CASE("gradients of every op equal finite differences") {
  SECTION("linear") {
    for (const Activation activation : {Activation::none, Activation::gelu_erf, Activation::gelu_tanh})
      check_gradients(
          [=](const auto& in) {
            return std::vector{linear(in[0], in[1], in[2], {.activation = activation, .out_dtype = DType::fp64})};
          },
          {random_tensor({5, 3}, 1), random_tensor({4, 3}, 2), random_tensor({4}, 3)});
  }
  SECTION("linear without bias") {
    check_gradients([](const auto& in) { return std::vector{linear(in[0], in[1], {}, kWide)}; },
                    {random_tensor({5, 3}, 1), random_tensor({4, 3}, 2)});
  }
  SECTION("mlp") {
    check_gradients(
        [](const auto& in) {
          return std::vector{
              mlp(in[0], in[1], in[2], in[3], in[4], {.activation = Activation::gelu_erf, .out_dtype = DType::fp64})};
        },
        {random_tensor({3, 4}, 1), random_tensor({7, 4}, 2), random_tensor({7}, 3), random_tensor({4, 7}, 4),
         random_tensor({4}, 5)});
  }
  SECTION("gelu") {
    check_gradients([](const auto& in) { return std::vector{gelu(in[0], Activation::gelu_erf)}; },
                    {random_tensor({9}, 1)});
  }
  SECTION("relu, leaky_relu and tanh") {
    for (Tensor (*const op)(const Tensor&) : {relu, leaky_relu, tanh})
      check_gradients([op](const auto& in) { return std::vector{op(in[0])}; }, {random_tensor({3, 3}, 1)});
  }
  SECTION("conv and conv_transpose") {
    for (const Pointwise activation : {Pointwise::none, Pointwise::relu, Pointwise::leaky_relu, Pointwise::tanh}) {
      const ConvOptions options{
          .stride = {2, 1}, .pad = {1, 0}, .pad_behind = {0, 1}, .activation = activation, .out_dtype = DType::fp64};
      check_gradients([&](const auto& in) { return std::vector{conv(in[0], in[1], in[2], options)}; },
                      {random_tensor({2, 4, 3, 2}, 1), random_tensor({3, 3, 2, 2}, 2), random_tensor({3}, 3)});
      check_gradients([&](const auto& in) { return std::vector{conv_transpose(in[0], in[1], in[2], options)}; },
                      {random_tensor({2, 3, 3, 2}, 1), random_tensor({2, 3, 2, 3}, 2), random_tensor({3}, 3)});
    }
  }
  SECTION("conv and conv_transpose in one and in three dimensions, without bias") {
    const ConvOptions options{.pad = {1}, .edge = {Edge::wrap}, .out_dtype = DType::fp64};
    check_gradients([&](const auto& in) { return std::vector{conv(in[0], in[1], {}, options)}; },
                    {random_tensor({2, 5, 2}, 1), random_tensor({3, 3, 2}, 2)});
    const ConvOptions halves{.stride = {2}, .pad = {1}, .out_dtype = DType::fp64};
    check_gradients([&](const auto& in) { return std::vector{conv(in[0], in[1], {}, halves)}; },
                    {random_tensor({1, 2, 4, 2, 2}, 1), random_tensor({1, 4, 4, 4, 2}, 2)});
    check_gradients([&](const auto& in) { return std::vector{conv_transpose(in[0], in[1], {}, halves)}; },
                    {random_tensor({1, 1, 2, 1, 2}, 1), random_tensor({2, 4, 4, 4, 1}, 2)});
  }
  SECTION("conv, an input that is read twice, and a weight that is computed") {
    const ConvOptions options{.pad = {1}, .out_dtype = DType::fp64};
    check_gradients(
        [&](const auto& in) {
          const Tensor y = conv(in[0], add(in[1], in[1]), {}, options);
          return std::vector{add(y, conv_transpose(in[0], in[1], {}, options))};
        },
        {random_tensor({1, 4, 2}, 1), random_tensor({2, 3, 2}, 2)});
  }
  SECTION("concat_channels, to_channels_last and to_channels_first") {
    check_gradients(
        [](const auto& in) {
          return std::vector{concat_channels({in[0], in[1], in[0]})};
        },
        {random_tensor({2, 3, 2}, 1), random_tensor({2, 3, 1}, 2)});
    for (const Shape& shape : {Shape{2, 3, 4}, Shape{2, 3, 2, 4}, Shape{2, 3, 2, 1, 4}}) {
      check_gradients([](const auto& in) { return std::vector{to_channels_last(in[0], DType::fp64)}; },
                      {random_tensor(shape, 1)});
      check_gradients([](const auto& in) { return std::vector{to_channels_first(in[0])}; }, {random_tensor(shape, 1)});
    }
  }
  SECTION("mean_loss") {
    for (const ErrorKind kind : {ErrorKind::squared, ErrorKind::absolute})
      check_gradients(
          [kind, target = tanh(random_tensor({2, 3, 4, 2}, 2))](const auto& in) {
            return std::vector{mean_loss(tanh(in[0]), target, {.kind = kind, .density_weight = 1e-5})};
          },
          {random_tensor({2, 3, 4, 2}, 1)});
  }
  SECTION("layernorm") {
    check_gradients([](const auto& in) { return std::vector{layernorm(in[0], in[1], in[2], 1e-6, DType::fp64)}; },
                    {random_tensor({3, 5}, 1), random_tensor({5}, 2), random_tensor({5}, 3)});
  }
  SECTION("layernorm without a bias, alone and after a branch") {
    check_gradients(
        [](const auto& in) {
          const LayernormResult r = layernorm_residual(in[0], in[1], in[2], {}, 1e-6);
          return std::vector{r.sum, r.y, layernorm(in[0], in[2], {}, 1e-6, DType::fp64)};
        },
        {random_tensor({4, 6}, 1), random_tensor({4, 6}, 2), random_tensor({6}, 3)});
  }
  SECTION("layernorm_stream, both outputs used, only the norm and only the stream") {
    const std::vector<Tensor> inputs{random_tensor({3, 5}, 1), random_tensor({5}, 2), random_tensor({5}, 3)};
    const auto normed = [](const auto& in) { return layernorm_stream(in[0], in[1], in[2], 1e-6, DType::fp64); };
    check_gradients(
        [&](const auto& in) {
          const LayernormResult r = normed(in);
          return std::vector{r.sum, r.y};
        },
        inputs);
    check_gradients([&](const auto& in) { return std::vector{normed(in).y}; }, inputs);
    const Tensor weight = random_tensor({5}, 2), bias = random_tensor({5}, 3);
    check_gradients(
        [&](const auto& in) { return std::vector{layernorm_stream(in[0], weight, bias, 1e-6, DType::fp64).sum}; },
        {random_tensor({3, 5}, 1)});
  }
  SECTION("layernorm_residual, both outputs used") {
    check_gradients(
        [](const auto& in) {
          const LayernormResult r = layernorm_residual(in[0], in[1], in[2], in[3], 1e-6);
          return std::vector{r.sum, r.y};
        },
        {random_tensor({3, 5}, 1), random_tensor({3, 5}, 2), random_tensor({5}, 3), random_tensor({5}, 4)});
  }
  SECTION("layernorm_residual, only the norm used") {
    check_gradients([](const auto& in) { return std::vector{layernorm_residual(in[0], in[1], in[2], in[3], 1e-6).y}; },
                    {random_tensor({3, 5}, 1), random_tensor({3, 5}, 2), random_tensor({5}, 3), random_tensor({5}, 4)});
  }
  SECTION("layernorm_residual, only the sum used, whose inputs' ops change their gradients in place") {
    const Tensor weight = random_tensor({5}, 3), bias = random_tensor({5}, 4);
    check_gradients(
        [&](const auto& in) {
          const Tensor x = dropout(in[0], 0.5f, {1, 2}), branch = dropout(in[1], 0.5f, {3, 4});
          return std::vector{layernorm_residual(x, branch, weight, bias, 1e-6).sum};
        },
        {random_tensor({3, 5}, 1), random_tensor({3, 5}, 2)});
  }
  SECTION("attention") {
    for (const float p : {0.f, 0.25f})
      check_gradients(
          [p](const auto& in) {
            return std::vector{attention(in[0], {.batch = 2, .heads = 2, .scale = 0.4, .dropout = p, .key = {7, 8}})};
          },
          {random_tensor({2 * 3, 3 * 16}, 1)});
  }
  SECTION("attention, its operands apart") {
    const AttentionOptions options{.batch = 2, .heads = 2, .scale = 0.4, .dropout = 0.25, .key = {7, 8}};
    check_gradients([&](const auto& in) { return std::vector{attention(in[0], in[1], in[2], options)}; },
                    {random_tensor({2 * 3, 16}, 1), random_tensor({2 * 5, 16}, 2), random_tensor({2 * 5, 16}, 3)});
  }
  SECTION("attention, causal") {
    const AttentionOptions options{.batch = 2, .heads = 2, .scale = 0.4, .causal = true};
    check_gradients([&](const auto& in) { return std::vector{attention(in[0], options)}; },
                    {random_tensor({2 * 5, 3 * 16}, 1)});
  }
  SECTION("attention, its keys and values columns of one tensor, its queries of a wider one") {
    AttentionOptions options{.batch = 2, .heads = 2, .scale = 0.4, .dropout = 0.25, .key = {7, 8}};
    options.window = {.samples = {1, 2}, .heads = {1, 4}, .queries = {2, 9}, .keys = {0, 5}};
    for (const bool causal : {false, true}) {
      options.causal = causal;
      check_gradients(
          [&](const auto& in) {
            return std::vector{attention({in[0], 8, 16}, {in[1], 16, 16}, {in[1], 0, 16}, options)};
          },
          {random_tensor({2 * 3, 32}, 1), random_tensor({2 * 5, 32}, 2)});
    }
  }
  SECTION("patchify and unpatchify") {
    for (const PatchOrder order : {PatchOrder::channels_first, PatchOrder::channels_last}) {
      check_gradients([=](const auto& in) { return std::vector{patchify(in[0], 2, order, DType::fp64)}; },
                      {random_tensor({2, 3, 4, 6}, 1)});
      check_gradients(
          [=](const auto& in) {
            return std::vector{unpatchify(in[0], {2, 3, 4, 6}, 2, order)};
          },
          {random_tensor({12, 12}, 1)});
    }
  }
  SECTION("pad_fields and crop_fields") {
    // Rows alone, columns alone, both; one period and more than one.
    const std::vector<std::pair<std::int64_t, std::int64_t>> grids{{5, 3}, {2, 4}, {4, 5}, {3, 11}};
    for (const Behind behind : {Behind::last_point, Behind::first_points})
      for (const auto& [rows, columns] : grids)
        check_gradients([=](const auto& in) { return std::vector{pad_fields(in[0], rows, columns, behind)}; },
                        {random_tensor({2, 2, 2, 3}, 1)});
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 3}, {2, 2}, {1, 1}})
      check_gradients([=](const auto& in) { return std::vector{crop_fields(in[0], rows, columns)}; },
                      {random_tensor({2, 2, 2, 3}, 1)});
  }
  SECTION("add, with one tensor twice") {
    check_gradients([](const auto& in) { return std::vector{add(add(in[0], in[1]), in[0])}; },
                    {random_tensor({6}, 1), random_tensor({6}, 2)});
  }
  SECTION("add, whose inputs' ops change their gradients in place") {
    check_gradients(
        [](const auto& in) {
          return std::vector{add(dropout(in[0], 0.5f, {1, 2}), dropout(in[1], 0.5f, {3, 4}))};
        },
        {random_tensor({33}, 1), random_tensor({33}, 2)});
  }
  SECTION("add_row") {
    check_gradients([](const auto& in) { return std::vector{add_row(in[0], in[1])}; },
                    {random_tensor({6, 2}, 1), random_tensor({3, 2}, 2)});
  }
  SECTION("add_row, with some of the rows") {
    check_gradients([](const auto& in) { return std::vector{add_row(in[0], in[1], 1, 3)}; },
                    {random_tensor({6, 2}, 1), random_tensor({1, 5, 2}, 2)});
  }
  SECTION("add_row, with ranges of the same rows that overlap") {
    check_gradients([](const auto& in) { return std::vector{add_row(add_row(in[0], in[1], 2, 3), in[1], 0, 3)}; },
                    {random_tensor({6, 2}, 1), random_tensor({5, 2}, 2)});
  }
  SECTION("add_leading_channels") {
    const Tensor fields = random_tensor({2, 3, 1, 2}, 9);
    check_gradients([&](const auto& in) { return std::vector{add_leading_channels(in[0], fields)}; },
                    {random_tensor({2, 2, 1, 2}, 1)});
    // To fields with more channels, to fields of which the same and another op read more, and to x itself.
    check_gradients([](const auto& in) { return std::vector{add_leading_channels(in[0], in[1], 1)}; },
                    {random_tensor({2, 2, 1, 2}, 1), random_tensor({2, 3, 1, 2}, 2)});
    check_gradients(
        [](const auto& in) {
          const Tensor first = add_leading_channels(in[0], in[1], 2);
          return std::vector{add_leading_channels(first, in[1], 1), join_planes({{in[1], 2, 1}, {in[1], 0, 2}})};
        },
        {random_tensor({2, 2, 1, 2}, 1), random_tensor({2, 3, 1, 2}, 2)});
    check_gradients([](const auto& in) { return std::vector{add_leading_channels(in[0], in[0], 1)}; },
                    {random_tensor({2, 2, 1, 2}, 1)});
  }
  SECTION("join_planes") {
    const Tensor given = random_tensor({2, 2, 1, 3}, 9);
    check_gradients(
        [&](const auto& in) {
          return std::vector{join_planes({{in[0], 1, 2}, {given, 0, 1}, {in[1], 0, 1}, {in[0], 0, 2}})};
        },
        {random_tensor({2, 4, 1, 3}, 1), random_tensor({2, 1, 1, 3}, 2)});
  }
  SECTION("replace_points") {
    Tensor flags = Tensor::empty({2, 1, 3}, DType::i32, Device{});
    flags.set_values({0, 1, 0, 1, 0, 7});
    const Tensor each = random_tensor({3, 2, 1, 3}, 8), one = random_tensor({2, 1, 3}, 9);
    check_gradients(
        [&](const auto& in) {
          return std::vector{replace_points(in[0], each, flags), in[0]};
        },
        {random_tensor({3, 2, 1, 3}, 1)});
    check_gradients([&](const auto& in) { return std::vector{replace_points(in[0], one, flags)}; },
                    {random_tensor({3, 2, 1, 3}, 1)});
  }
  SECTION("dropout and drop_path") {
    check_gradients([](const auto& in) { return std::vector{dropout(in[0], 0.3f, {1, 2})}; }, {random_tensor({33}, 1)});
    check_gradients(
        [](const auto& in) {
          return std::vector{drop_path(in[0], 0.5f, {1, 2}, {.tokens = 2})};
        },
        {random_tensor({8, 3}, 1)});
  }
  SECTION("dropout and drop_path of a block of the whole") {
    const RowWindow rows{.before = 1, .tokens = 3, .samples = {1, 2}, .band = {4, 9}};
    check_gradients(
        [&](const auto& in) {
          return std::vector{dropout(in[0], 0.3f, {1, 2}, {.cols = 5, .columns = {2, 8}, .rows = rows}),
                             drop_path(in[0], 0.5f, {3, 4}, rows)};
        },
        {random_tensor({7, 5}, 1)});
  }
  SECTION("forecast_loss") {
    check_forecast_loss(random_tensor({2, 3, 2, 2}, 4), false);
  }
  SECTION("forecast_loss with missing points, of the first channel in all the second sample") {
    check_forecast_loss(with_holes(random_tensor({2, 3, 2, 2}, 4), {1, 6, 7, 12, 13, 14, 15, 23}), true);
  }
  SECTION("cross_entropy, with a label that is ignored") {
    Tensor labels = Tensor::empty({4}, DType::i32, Device{});
    labels.set_values({2, 3, 0, 4});
    check_gradients([&](const auto& in) { return std::vector{cross_entropy(in[0], labels, 3)}; },
                    {random_tensor({4, 5}, 1)});
  }
  SECTION("cross_entropy, with columns that are padding") {
    Tensor labels = Tensor::empty({4}, DType::i32, Device{});
    labels.set_values({2, kIgnoredLabel, 0, 1});
    check_gradients([&](const auto& in) { return std::vector{cross_entropy(in[0], labels, kIgnoredLabel, 2)}; },
                    {random_tensor({4, 5}, 1)});
  }
  SECTION("embedding, whose table is also a product's weight; ids that come twice, and ids without a row") {
    Tensor ids = Tensor::empty({2, 3}, DType::i32, Device{});
    ids.set_values({4, 2, 4, 9, 3, 1});
    check_gradients(
        [&](const auto& in) {
          const Tensor x = embedding(ids, in[0], DType::fp64, 2);
          return std::vector{x, linear(x, in[0], {}, kWide)};
        },
        {random_tensor({4, 5}, 1)});
  }
  SECTION("recompute") {
    const Tensor weight = random_tensor({5, 5}, 3);
    check_gradients(
        [&](const auto& in) {
          return recompute(
              [&](const std::vector<Tensor>& x) {
                const Tensor y = gelu(linear(x[0], x[1], {}, kWide), Activation::gelu_erf);
                return std::vector{y, add(y, x[0])};
              },
              {add(in[0], in[0]), in[1]});
        },
        {random_tensor({2, 5}, 1), weight});
  }
}

TEST_CASE("rows that add_row leaves out get a gradient of zero, whatever the buffer held") {
  const Tensor x = random_tensor({4, 3}, 1), row = leaf_of({5, 3}, 2);
  const Tensor& grad = row.leaf()->grad;
  grad.slice(0, {15}).set_values(std::vector<double>(15, std::nan("")));
  const auto pass = [&](std::int64_t first) {
    Tape tape;
    Tensor y;
    {
      const TapeScope recording(tape);
      y = add_row(x, row, first, 2);
    }
    const std::vector<double> rows = row.to_vector(), added = y.to_vector(), before = x.to_vector();
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(added[i] == before[i] + rows[static_cast<std::size_t>(3 * first) + i % 6]);
    tape.backward(y);
  };
  pass(2);
  CHECK(grad.to_vector() == std::vector<double>{0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 0, 0, 0});
  pass(3);  // accumulates
  CHECK(grad.to_vector() == std::vector<double>{0, 0, 0, 0, 0, 0, 2, 2, 2, 4, 4, 4, 2, 2, 2});
  row.leaf()->touched = false;  // a new step
  pass(0);
  CHECK(grad.to_vector() == std::vector<double>{2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

namespace {

// Rows [first, first + count) of every plane of [B, C, H, W].
Tensor band_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  const std::int64_t planes = x.size(0) * x.size(1), plane = x.size(2) * x.size(3), n = count * x.size(3);
  const Tensor part = Tensor::empty({x.size(0), x.size(1), count, x.size(3)}, x.dtype(), x.device());
  copy_strided(part, {0, n}, x, {first * x.size(3), plane}, planes, n);
  return part;
}

struct LossAndGradient {
  double loss = 0;
  Tensor gradient;
};

LossAndGradient loss_and_gradient(const Tensor& pred, const Tensor& target, const LossInputs& inputs) {
  const Tensor leaf = make_leaf(pred, Tensor::empty(pred.shape(), DType::fp64, Device{}));
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    loss = forecast_loss(leaf, target, inputs);
  }
  tape.backward(loss);
  return {loss.item(), leaf.leaf()->grad};
}

}  // namespace

TEST_CASE("every band of a picture has the whole picture's loss, and its part of the gradient") {
  constexpr std::int64_t kHeight = 7;
  const Tensor pred = random_tensor({2, 3, kHeight, 5}, 1), whole = random_tensor({2, 3, kHeight, 5}, 2);
  // No point of a band's third row, and of some others in the second sample.
  const Tensor holed = with_holes(whole, {0, 3, 15, 16, 17, 18, 19, 50, 51, 52, 53, 54, 85, 86, 87, 88, 89, 111, 209});
  Tensor row_weights = Tensor::empty({kHeight}, DType::fp64, Device{});
  row_weights.set_values({0.1, 0.5, 1, 2, 1.5, 0.7, 0.2});
  Tensor channel_weights = Tensor::empty({3}, DType::fp64, Device{});
  channel_weights.set_values({1, 0.5, 3});
  const auto check = [&](LossKind kind, bool masked) {
    const Tensor& target = masked ? holed : whole;
    const auto [loss, gradient] = loss_and_gradient(
        pred, target, {.kind = kind, .masked = masked, .row_weights = row_weights, .channel_weights = channel_weights});
    // The hook of one band must know the sums of the others: the first pass collects them.
    const std::int64_t per_sample = masked ? 4 : 2;
    std::vector<double> added(static_cast<std::size_t>(2 * per_sample), 0.0);
    for (const bool collecting : {true, false})
      for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 1}, {4, 3}}) {
        INFO("loss " << static_cast<int>(kind) << ", rows " << first << " to " << first + count - 1);
        const SumOverRanks add_up = [&](const Tensor& sums) {
          CHECK(sums.dtype() == DType::fp64);
          CHECK(sums.shape() == Shape{2, per_sample});
          const std::vector<double> own = sums.to_vector();
          for (std::size_t i = 0; collecting && i < added.size(); ++i) added[i] += own[i];
          sums.slice(0, {2 * per_sample}).set_values(added);
        };
        const auto part = loss_and_gradient(band_of(pred, first, count), band_of(target, first, count),
                                            {.kind = kind,
                                             .masked = masked,
                                             .row_weights = row_weights.slice(first, {count}),
                                             .channel_weights = channel_weights,
                                             .whole_height = kHeight,
                                             .add_up = add_up});
        if (collecting) continue;
        CHECK(std::abs(part.loss - loss) <= 1e-14 * loss);
        const std::vector<double> expected = band_of(gradient, first, count).to_vector();
        const std::vector<double> got = part.gradient.to_vector();
        for (std::size_t i = 0; i < got.size(); ++i)
          CHECK(std::abs(got[i] - expected[i]) <= 1e-14 * std::abs(expected[i]));
      }
  };
  for (const LossKind kind : {LossKind::relative_l2, LossKind::weighted_mse, LossKind::relative_l2_weighted})
    for (const bool masked : {false, true}) check(kind, masked);
}

namespace {

// The gradients of x [8, 5] and w [12, 5], in bits, of a loss of x·wᵀ in rows of patches. `aside` is added to the rows.
std::vector<std::vector<double>> gradients_of_head(DType dtype, const Tensor& aside) {
  const auto leaf = [&](Shape shape, unsigned seed) {
    return make_leaf(random_tensor(shape, seed).to(dtype), Tensor::empty(shape, DType::fp32, Device{}));
  };
  const Tensor x = leaf({8, 5}, 1), w = leaf({12, 5}, 2), target = random_tensor({2, 3, 4, 4}, 3).to(DType::fp32);
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    Tensor rows = linear(x, w, {}, {.out_dtype = DType::fp32});
    if (aside.defined()) rows = add(rows, aside);
    loss = forecast_loss(rows, target, {.patch = 2});
  }
  tape.backward(loss);
  return {loss.to_vector(), x.leaf()->grad.to_vector(), w.leaf()->grad.to_vector()};
}

// The gradient of a bias of zeros [12] that a product with 16-bit operands adds, or an op behind it.
std::vector<double> gradient_of_bias(DType dtype, bool within) {
  const auto leaf = [](const Tensor& value) {
    return make_leaf(value, Tensor::empty(value.shape(), DType::fp32, Device{}));
  };
  const Tensor x = leaf(random_tensor({8, 5}, 1).to(dtype)), w = leaf(random_tensor({12, 5}, 2).to(dtype));
  const Tensor bias = leaf(Tensor::zeros(within ? Shape{12} : Shape{1, 12}, DType::fp32, Device{}));
  const Tensor target = random_tensor({2, 3, 4, 4}, 3).to(DType::fp32);
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    const LinearOptions wide{.out_dtype = DType::fp32};
    loss =
        forecast_loss(within ? linear(x, w, bias, wide) : add_row(linear(x, w, {}, wide), bias), target, {.patch = 2});
  }
  tape.backward(loss);
  return bias.leaf()->grad.to_vector();
}

// What arrives at an op that says that it reads its gradient in 16 bits, or does not, from the consumers of y [4, 12].
Tensor gradient_that_arrives(std::optional<DType> gradient_dtype, const std::function<Tensor(const Tensor&)>& loss_of) {
  const Tensor x = make_leaf(random_tensor({4, 12}, 1).to(DType::fp32), Tensor::empty({4, 12}, DType::fp32, Device{}));
  Tensor arrived;
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    Tensor y = x.detach();
    Tape::record(
        "probe", {&x}, {}, {&y}, [&](Gradients&, const std::vector<Tensor>& dy) { arrived = dy[0]; }, gradient_dtype);
    loss = loss_of(y);
  }
  tape.backward(loss);
  return arrived;
}

}  // namespace

TEST_CASE("a gradient in the 16 bits in which products read it gives the bits of one that they round") {
  for (const DType dtype : {DType::bf16, DType::fp16})
    CHECK(gradients_of_head(dtype, {}) == gradients_of_head(dtype, Tensor::zeros({8, 12}, DType::fp32, Device{})));
}

TEST_CASE("the gradient of a bias is summed before anything is rounded to 16 bits") {
  for (const DType dtype : {DType::bf16, DType::fp16})
    CHECK(gradient_of_bias(dtype, /*within=*/true) == gradient_of_bias(dtype, /*within=*/false));
}

TEST_CASE("a gradient arrives in 16 bits where it is read in them, and as it was without") {
  const Tensor target = random_tensor({2, 3, 2, 4}, 3).to(DType::fp32);
  const auto loss_of = [&](const Tensor& y) { return forecast_loss(y, target, {.patch = 2}); };
  const Tensor wide = gradient_that_arrives({}, loss_of);
  CHECK(wide.dtype() == DType::fp32);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const Tensor narrow = gradient_that_arrives(dtype, loss_of);
    CHECK(narrow.dtype() == dtype);
    CHECK(narrow.shape() == wide.shape());
    CHECK(narrow.to_vector() == wide.to(dtype).to_vector());
    CHECK(narrow.to_vector() != wide.to_vector());
  }
}

TEST_CASE("a gradient in 16 bits to which another is added is wide again") {
  const Tensor target = random_tensor({2, 3, 2, 4}, 3).to(DType::fp32);
  const Tensor weight = random_tensor({12, 12}, 4).to(DType::fp32);
  const auto loss_of_patches = [&](const Tensor& y) { return forecast_loss(y, target, {.patch = 2}); };
  // The gradient of a product takes a slot, that of an addition is given; the loss comes first, on the way back.
  for (const bool takes_slot : {true, false}) {
    const auto other = [&](const Tensor& y) {
      return takes_slot ? linear(y, weight, {}, {.out_dtype = DType::fp32}) : add(y, weight.slice(0, {4, 12}));
    };
    const auto loss_of_other = [&](const Tensor& y) {
      return forecast_loss(other(y), target, {.kind = LossKind::weighted_mse, .patch = 2});
    };
    const auto loss_of_both = [&](const Tensor& y) {
      const Tensor second = loss_of_other(y);
      return add(second, loss_of_patches(y));
    };
    const Tensor both = gradient_that_arrives(DType::bf16, loss_of_both);
    const std::vector<double> one = gradient_that_arrives(DType::bf16, loss_of_patches).to_vector(),
                              another = gradient_that_arrives({}, loss_of_other).to_vector(), sum = both.to_vector();
    CHECK(both.dtype() == DType::fp32);
    for (std::size_t i = 0; i < sum.size(); ++i) CHECK(std::abs(sum[i] - (one[i] + another[i])) <= 1e-6);
  }
}

TEST_CASE("attention of one tensor is that of its columns, and of copies of them, bit for bit") {
  const AttentionOptions options{.batch = 2, .heads = 2, .scale = 0.4, .dropout = 0.25, .key = {7, 8}};
  const Tensor values = random_tensor({6, 48}, 1);
  const auto run = [&](const std::vector<Tensor>& leaves, const auto& f) {
    Tape tape;
    Tensor y;
    {
      const TapeScope recording(tape);
      y = f();
    }
    tape.backward(y, random_tensor({6, 16}, 2));
    std::vector<std::vector<double>> results{y.to_vector()};
    for (const Tensor& leaf : leaves) results.push_back(leaf.leaf()->grad.to_vector());
    return results;
  };
  const auto fresh = [](const Tensor& x) {
    Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device());
    copy.copy_from(x);
    return make_leaf(copy, Tensor::empty(x.shape(), x.dtype(), x.device()));
  };
  const Tensor all = fresh(values);
  const auto fused = run({all}, [&] { return attention(all, options); });

  std::vector<Tensor> parts;
  for (std::int64_t part = 0; part < 3; ++part) {
    Tensor columns = Tensor::empty({6, 16}, DType::fp64, Device{});
    for (std::int64_t i = 0; i < 6 * 16; ++i)
      columns.data_as<double>()[i] = values.data_as<double>()[i / 16 * 48 + part * 16 + i % 16];
    parts.push_back(fresh(columns));
  }
  const auto apart = run(parts, [&] { return attention(parts[0], parts[1], parts[2], options); });
  CHECK(apart[0] == fused[0]);
  for (std::size_t part = 0; part < 3; ++part)
    for (std::size_t i = 0; i < 6 * 16; ++i) CHECK(apart[1 + part][i] == fused[1][i / 16 * 48 + part * 16 + i % 16]);
}

TEST_CASE("the stream of a mask is the sum of two numbers, of which a captured step changes one, in both passes") {
  const auto run = [](DropoutKey key) {
    const Tensor x = make_leaf(random_tensor({6, 48}, 1), Tensor::zeros({6, 48}, DType::fp64, Device{}));
    std::vector<std::vector<double>> results;
    for (const int op : {0, 1, 2}) {
      x.leaf()->touched = false;
      Tape tape;
      Tensor y;
      {
        const TapeScope recording(tape);
        y = op == 0   ? dropout(x, 0.3f, key)
            : op == 1 ? drop_path(x, 0.5f, key, {.tokens = 1})
                      : attention(x, {.batch = 2, .heads = 2, .scale = 0.4, .dropout = 0.25, .key = key});
      }
      tape.backward(y, random_tensor(y.shape(), 2));
      results.push_back(y.to_vector());
      results.push_back(x.leaf()->grad.to_vector());
    }
    return results;
  };
  const std::uint64_t offset = 6;
  const auto expected = run({7, 14}), first = run({7, 8}), found = run({7, 8, &offset});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(i);
    CHECK(found[i] == expected[i]);
    CHECK(found[i] != first[i]);
  }
}

TEST_CASE("attention refuses operands that do not fit") {
  const AttentionOptions options{.batch = 2, .heads = 2};
  const Tensor x = random_tensor({6, 48}, 1), y = random_tensor({10, 48}, 2);
  CHECK_THROWS_WITH(attention({x, 0, 16}, {y, 0, 16}, {x, 16, 16}, options), "attention: 10 keys and 6 values");
  CHECK_THROWS_WITH(attention({x, 0, 16}, {x, 8, 16}, {x, 24, 16}, options),
                    "attention: queries, keys and values must not share columns of a tensor [6, 48]");
  CHECK_THROWS_WITH(attention({x, 0, 16}, {y, 0, 8}, {y, 16, 8}, options),
                    "attention: 16 columns of queries in fp64 and 8 of keys or values in fp64");
  CHECK_THROWS_WITH(attention({x, 40, 16}, y, y, options), "attention: there are no 16 columns from 40 on in [6, 48]");
  CHECK_THROWS_WITH(attention({x, 0, 16}, {y, 0, 16}, {y, 16, 16}, {.batch = 4, .heads = 2}),
                    "attention: [6, 16] queries, keys or values do not divide into 4 samples of 2 heads");
  CHECK_THROWS_WITH(attention({x, 0, 16}, {y, 0, 16}, {y, 16, 16}, {.batch = 3, .heads = 2}),
                    "attention: [10, 16] queries, keys or values do not divide into 3 samples of 2 heads");
  CHECK_THROWS_WITH(attention({x, 0, 16}, {y, 0, 16}, {y, 16, 16}, {.batch = 2, .heads = 3}),
                    "attention: [6, 16] queries, keys or values do not divide into 2 samples of 3 heads");
  const Tensor single = Tensor::zeros({10, 48}, DType::fp32, Device{});
  CHECK_THROWS_WITH(attention({x, 0, 16}, {y, 0, 16}, {single, 16, 16}, options),
                    "attention: 16 columns of queries in fp64 and 16 of keys or values in fp32");
  CHECK_THROWS_WITH(attention(random_tensor({7, 48}, 1), options),
                    "attention: queries, keys and values [7, 48] do not divide into 2 samples of 2 heads");
}

TEST_CASE("cross_entropy names labels that do not fit") {
  const Tensor logits = random_tensor({4, 5}, 1);
  CHECK_THROWS_WITH(cross_entropy(logits, Tensor::empty({3}, DType::i32, Device{})),
                    "cross_entropy: labels [3] do not fit logits [4, 5]");
  CHECK_THROWS_WITH(cross_entropy(logits.view({20}), Tensor::empty({20}, DType::i32, Device{})),
                    "cross_entropy: the matrix of logits [20] has 1 dimension, not 2");
  CHECK_THROWS_WITH(cross_entropy(logits, Tensor::zeros({4}, DType::fp32, Device{})),
                    "cross_entropy: the labels are fp32, not i32");
}

TEST_CASE("embedding names what does not fit") {
  const Tensor table = random_tensor({4, 5}, 1);
  CHECK_THROWS_WITH(embedding(Tensor::zeros({3}, DType::fp32, Device{}), table, DType::fp64),
                    "embedding: the ids are fp32, not i32");
  CHECK_THROWS_WITH(embedding(Tensor::empty({3}, DType::i32, Device{}), table.view({20}), DType::fp64),
                    "embedding: the table [20] has 1 dimension, not 2");
  CHECK_THROWS_WITH(cross_entropy(table, Tensor::empty({4}, DType::i32, Device{}), kIgnoredLabel, 5),
                    "cross_entropy: 5 of 5 columns cannot be padding");
}

TEST_CASE("the worked example of docs/learn/2_a_gradient.md") {
  const auto tensor = [](Shape shape, const std::vector<double>& values) {
    Tensor t = Tensor::empty(std::move(shape), DType::fp64, Device{});
    t.set_values(values);
    return t;
  };
  const auto leaf = [&](const Shape& shape, const std::vector<double>& values) {
    return make_leaf(tensor(shape, values), Tensor::empty(shape, DType::fp64, Device{}));
  };
  const auto check = [](const Tensor& actual, const std::vector<double>& expected) {
    const std::vector<double> values = actual.to_vector();
    REQUIRE(values.size() == expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(values[i] - expected[i]) <= 0.5e-5);  // as printed
  };
  const Tensor x = leaf({2, 3}, {1, 0, -1, 0.5, 2, 1}), w = leaf({2, 3}, {0.5, -1, 0.25, 1, 0.5, -0.5});
  const Tensor b = leaf({2}, {0.1, -0.2}), dy = tensor({2, 2}, {1, 0.5, -1, 2});
  Tape tape;
  Tensor h, y;
  {
    const TapeScope recording(tape);
    h = linear(x, w, b, kWide);
    y = gelu(h, Activation::gelu_erf);
  }
  CHECK(tape.size() == 2);
  check(h, {0.35, 1.3, -1.4, 0.8});
  check(y, {0.22289, 1.17416, -0.11306, 0.63052});
  tape.backward(y, dy);
  check(dy, {0.76816, 0.56299, 0.12886, 2.03980});  // the buffer of the upstream gradient now holds dh
  check(x.leaf()->grad, {0.94707, -0.48667, -0.08945, 2.10423, 0.89104, -0.98768});
  check(w.leaf()->grad, {0.83260, 0.25772, -0.63930, 1.58289, 4.07959, 1.47681});
  check(b.leaf()->grad, {0.89703, 2.60279});
}

TEST_CASE("recompute gives no gradient to an input that its body does not use") {
  const Tensor used = make_leaf(random_tensor({4}, 1), Tensor::zeros({4}, DType::fp64, Device{}));
  const Tensor unused = make_leaf(random_tensor({4}, 2), Tensor::zeros({4}, DType::fp64, Device{}));
  Tape tape;
  std::vector<Tensor> outputs;
  {
    const TapeScope recording(tape);
    outputs = recompute([](const std::vector<Tensor>& x) { return std::vector{add(x[0], x[0])}; },
                        {add(used, used), add(unused, unused)});
  }
  tape.backward(outputs[0]);
  CHECK(used.leaf()->grad.to_vector() == std::vector<double>(4, 4.0));
  CHECK(!unused.leaf()->touched);
}

TEST_CASE("a leaf gathers the gradients of a step and of the steps after it") {
  Tensor leaf = make_leaf(random_tensor({4}, 1), Tensor::zeros({4}, DType::fp64, Device{}));
  leaf.leaf()->grad.set_values({9, 9, 9, 9});  // of an earlier step: overwritten
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    Tensor y;
    {
      const TapeScope recording(tape);
      y = add(leaf, leaf);
    }
    tape.backward(y);
    CHECK(leaf.leaf()->grad.to_vector() == std::vector<double>(4, 2.0 * pass));
  }
}

TEST_CASE("nothing is recorded without a tape, or from inputs that are not tracked") {
  const Tensor plain = random_tensor({4}, 1);
  const Tensor leaf = make_leaf(random_tensor({4}, 2), Tensor::zeros({4}, DType::fp64, Device{}));
  CHECK(!add(leaf, leaf).tracked());
  Tape tape;
  const TapeScope recording(tape);
  CHECK(!add(plain, plain).tracked());
  CHECK(tape.size() == 0);
  CHECK(add(plain, leaf).tracked());
  CHECK(tape.size() == 1);
}

TEST_CASE("shapes that do not fit are named") {
  const Tensor x = random_tensor({2, 3}, 1), w = random_tensor({4, 5}, 2);
  CHECK_THROWS_WITH(linear(x, w, {}, kWide),
                    testing::ContainsSubstring("[2, 3]") && testing::ContainsSubstring("[4, 5]"));
  CHECK_THROWS_WITH(x.view({4, 2}), testing::ContainsSubstring("[4, 2]"));
}

TEST_CASE("rows are what the last dimension is long, whatever the others are") {
  const Tensor weight = random_tensor({4}, 2), bias = random_tensor({4}, 3);
  const Tensor flat = random_tensor({6, 4}, 1), branch = random_tensor({6, 4}, 4);
  const Tensor y = layernorm(flat, weight, bias, 1e-6, DType::fp64);
  const LayernormResult sum = layernorm_residual(flat, branch, weight, bias, 1e-6);
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{3, 1, 2, 4}, Shape{1, 6, 4}}) {
    INFO(to_string(shape));
    const Tensor same = layernorm(flat.view(shape), weight, bias, 1e-6, DType::fp64);
    CHECK(same.shape() == shape);
    CHECK(same.to_vector() == y.to_vector());
    const LayernormResult same_sum = layernorm_residual(flat.view(shape), branch.view(shape), weight, bias, 1e-6);
    CHECK(same_sum.y.to_vector() == sum.y.to_vector());
    CHECK(same_sum.sum.to_vector() == sum.sum.to_vector());
    CHECK(add_row(flat.view(shape), weight).to_vector() == add_row(flat, weight).to_vector());
  }
}

TEST_CASE("every op refuses shapes and dtypes that do not fit, by name") {
  const auto wide = [](Shape shape) { return random_tensor(std::move(shape), 1); };
  const auto single = [](Shape shape) { return Tensor::zeros(std::move(shape), DType::fp32, Device{}); };
  const Tensor x = wide({4, 6});
  CHECK_THROWS_WITH(linear(x, wide({3, 6}), wide({4}), kWide), "linear: bias [4] does not fit weight [3, 6]");
  CHECK_THROWS_WITH(linear(x, wide({3, 6, 1}), {}, kWide), "linear: the weight [3, 6, 1] has 3 dimensions, not 2");
  CHECK_THROWS_WITH(linear(wide({4, 6, 1}), wide({3, 6}), {}, kWide),
                    "linear: the input [4, 6, 1] has 3 dimensions, not 2");
  CHECK_THROWS_WITH(linear(x, single({3, 6}), {}, kWide), "linear: input is fp64, weight is fp32");
  CHECK_NOTHROW(linear(x, wide({3, 6}), wide({3}), kWide));
  CHECK_THROWS_WITH(layernorm(x, wide({5}), wide({6}), 1e-6, DType::fp64),
                    "layernorm: input [4, 6] does not fit weight [5] and bias [6]");
  CHECK_THROWS_WITH(layernorm(x, wide({6}), wide({7}), 1e-6, DType::fp64),
                    "layernorm: input [4, 6] does not fit weight [6] and bias [7]");
  CHECK_THROWS_WITH(layernorm_residual(x, wide({4, 5}), wide({6}), wide({6}), 1e-6),
                    "layernorm: branch [4, 5] does not fit the stream [4, 6]");
  CHECK_THROWS_WITH(attention(wide({4, 7}), {.batch = 2, .heads = 1}),
                    "attention: queries, keys and values [4, 7] do not divide into 2 samples of 1 heads");
  CHECK_THROWS_WITH(attention(wide({4, 6}), {.batch = 2, .heads = 3}),
                    testing::ContainsSubstring("2 samples of 3 heads"));
  CHECK_THROWS_WITH(attention(wide({4, 6}), {.batch = 3, .heads = 1}),
                    testing::ContainsSubstring("3 samples of 1 heads"));
  CHECK_THROWS_WITH(patchify(wide({1, 2, 6}), 2, PatchOrder::channels_first, DType::fp64),
                    "patchify: the batch of images [1, 2, 6] has 3 dimensions, not 4");
  for (const Shape& image : {Shape{1, 2, 5, 4}, Shape{1, 2, 4, 5}})
    CHECK_THROWS_WITH(patchify(wide(image), 2, PatchOrder::channels_first, DType::fp64),
                      "patchify: images " + to_string(image) + " do not divide into patches of 2");
  CHECK_THROWS_WITH(patchify(wide({1, 1, 2, 2}), 0, PatchOrder::channels_first, DType::fp64),
                    testing::ContainsSubstring("patches of 0"));
  CHECK_NOTHROW(patchify(wide({1, 1, 3, 2}), 1, PatchOrder::channels_first, DType::fp64));
  CHECK_THROWS_WITH(unpatchify(wide({4, 4}), {1, 1, 4, 5}, 1, PatchOrder::channels_last),
                    "unpatchify: tokens [4, 4] do not make images [1, 1, 4, 5]");
  CHECK_THROWS_WITH(add(x, wide({4, 5})), "add: [4, 6] and [4, 5] differ");
  CHECK_THROWS_WITH(add_row(x, wide({5, 6})), "add_row: [4, 6] is no repetition of [5, 6]");
  CHECK_THROWS_WITH(add_row(x, wide({0, 6})), "add_row: [4, 6] is no repetition of [0, 6]");
  CHECK_NOTHROW(add_row(x, wide({4, 6})));
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{-1, 2}, {0, 0}, {2, 2}, {3, 1}})
    CHECK_THROWS_WITH(add_row(x, wide({1, 3, 6}), first, count), "add_row: rows " + std::to_string(first) + " to " +
                                                                     std::to_string(first + count - 1) +
                                                                     " lie outside [1, 3, 6]");
  CHECK_THROWS_WITH(add_row(x, wide({7, 6}), 2, 3), "add_row: [4, 6] is no repetition of 3 rows of [7, 6]");
  CHECK_NOTHROW(add_row(x, wide({7, 6}), 5, 2));
  const Tensor fields = wide({2, 3, 2, 4});
  for (const Shape& other : {Shape{1, 2, 2, 4}, Shape{2, 4, 2, 4}, Shape{2, 1, 3, 4}, Shape{2, 1, 2, 5}})
    CHECK_THROWS_WITH(add_leading_channels(wide(other), fields),
                      "add_leading_channels: [2, 3, 2, 4] has no leading channels " + to_string(other));
  CHECK_NOTHROW(add_leading_channels(wide({2, 3, 2, 4}), fields));
  CHECK_THROWS_WITH(forecast_loss(fields, wide({2, 3, 2, 5}), {}),
                    "forecast_loss: forecast [2, 3, 2, 4] and target [2, 3, 2, 5] differ");
  CHECK_THROWS_WITH(forecast_loss(x, x, {}), "forecast_loss: the forecast [4, 6] has 2 dimensions, not 4");
  CHECK_THROWS_WITH(forecast_loss(fields, single({2, 3, 2, 4}), {}), "forecast_loss: the target is fp32, not fp64");
  CHECK_THROWS_WITH(forecast_loss(wide({4, 6}), wide({2, 3, 2, 4}), {.patch = 2}),
                    "forecast_loss: forecast [4, 6] are not the patches of 2 x 2 of target [2, 3, 2, 4]");
  CHECK_THROWS_WITH(forecast_loss(wide({4, 12}), wide({2, 3, 2, 4}), {.patch = -2}),
                    "forecast_loss: forecast [4, 12] are not the patches of -2 x -2 of target [2, 3, 2, 4]");
  CHECK_THROWS_WITH(forecast_loss(wide({4, 27}), wide({2, 3, 2, 4}), {.patch = 3}),
                    "forecast_loss: forecast [4, 27] are not the patches of 3 x 3 of target [2, 3, 2, 4]");
  CHECK_NOTHROW(forecast_loss(wide({4, 12}), wide({2, 3, 2, 4}), {.patch = 2}));
  const auto loss_of = [&](const LossInputs& inputs) { return forecast_loss(fields, wide({2, 3, 2, 4}), inputs); };
  CHECK_THROWS_WITH(loss_of({.row_weights = wide({3})}),
                    "forecast_loss: row weights [3] do not fit the fields [2, 3, 2, 4]");
  CHECK_THROWS_WITH(loss_of({.channel_weights = wide({2})}),
                    "forecast_loss: channel weights [2] do not fit the fields [2, 3, 2, 4]");
  CHECK_THROWS_WITH(loss_of({.row_weights = single({2})}), "forecast_loss: the row weights are fp32, not fp64");
  CHECK_THROWS_WITH(loss_of({.whole_height = 3}),
                    "forecast_loss: 2 rows are no picture of 3 rows, and nothing adds up the sums of its bands");
  CHECK_THROWS_WITH(loss_of({.whole_height = 1, .add_up = [](const Tensor&) {}}),
                    "forecast_loss: 2 rows are no picture of 1 rows");
  CHECK_NOTHROW(loss_of({.whole_height = 2}));
  CHECK_THROWS_WITH(Tape().backward(x), "backward() from a tensor that no recorded op has made");
}

TEST_CASE("join_planes and replace_points refuse what does not fit") {
  const Tensor x = random_tensor({2, 3, 1, 2}, 1), flags = Tensor::empty({3, 1, 2}, DType::i32, Device{});
  CHECK_THROWS_WITH(join_planes({}), "join_planes: there are no tensors");
  CHECK_THROWS_WITH(join_planes({{x, 1, 3}}), "join_planes: [2, 3, 1, 2] has no channels 1 to 3");
  CHECK_THROWS_WITH(join_planes({{x, 0, 1}, {random_tensor({2, 3, 1, 3}, 2), 0, 1}}),
                    "join_planes: [2, 3, 1, 2] of fp64 and [2, 3, 1, 3] of fp64 differ in more than their channels");
  CHECK_THROWS_WITH(replace_points(x, random_tensor({2, 3, 1, 3}, 2), flags),
                    "replace_points: values [2, 3, 1, 3] of fp64 are not for [2, 3, 1, 2] of fp64");
  CHECK_THROWS_WITH(replace_points(x, x, random_tensor({3, 1, 2}, 2)),
                    "replace_points: flags [3, 1, 2] of fp64 are not for fields [2, 3, 1, 2]");
}

TEST_CASE("the tape's report adds up what the nodes keep alive") {
  const Tensor leaf = make_leaf(random_tensor({1024, 128}, 1), Tensor::zeros({1024, 128}, DType::fp64, Device{}));
  Tape tape;
  const TapeScope recording(tape);
  const Tensor y = gelu(gelu(leaf, Activation::gelu_erf), Activation::gelu_erf);
  CHECK_THAT(tape.report(), testing::ContainsSubstring("2.00 MiB"));
}

TEST_CASE("the tape's report counts once what two nodes keep alive") {
  const Tensor leaf = make_leaf(random_tensor({1024, 128}, 1), Tensor::zeros({1024, 128}, DType::fp64, Device{}));
  Tape tape;
  const TapeScope recording(tape);
  const Tensor one = gelu(leaf, Activation::gelu_erf), other = gelu(leaf, Activation::gelu_tanh);
  CHECK_THAT(tape.report(), testing::ContainsSubstring("all                           1.00 MiB"));
}

TEST_CASE("each node's activations are given back during the backward pass, before the next node runs") {
  constexpr std::int64_t kElements = 1 << 17;
  constexpr std::size_t kBytes = kElements * sizeof(double), kOps = 8;
  const Tensor leaf = make_leaf(random_tensor({kElements}, 1), Tensor::zeros({kElements}, DType::fp64, Device{}));
  const std::size_t before = memory_bytes();
  std::size_t at_the_first_op = 0;  // which is the last whose backward runs
  Tape tape;
  Tensor y = leaf.detach();
  {
    const TapeScope recording(tape);
    Tape::record("probe", {&leaf}, {}, {&y}, [&](Gradients& gradients, const std::vector<Tensor>& dy) {
      at_the_first_op = memory_bytes();
      gradients.give(leaf, dy[0]);
    });
    for (std::size_t i = 0; i < kOps; ++i) y = gelu(y, Activation::gelu_erf);
  }
  CHECK(memory_bytes() >= before + kOps * kBytes);
  tape.backward(y);
  CHECK(tape.size() == 0);
  CHECK(at_the_first_op <= before + 3 * kBytes);  // y, its gradient, and the gradient on its way
  y = {};
  CHECK(memory_bytes() == before);
}

TEST_CASE("a leaf is told when the last node that has it among its inputs has run, and once") {
  const Tensor early = leaf_of({4}, 1), late = leaf_of({4}, 2), twice = leaf_of({4}, 3), unused = leaf_of({4}, 4);
  Tape tape;
  Watch watch(tape, {{early, "early"}, {late, "late"}, {twice, "twice"}, {unused, "unused"}});
  Tensor y;
  {
    const TapeScope recording(tape);
    y = add(twice, early);
    y = add(y, early);
    const Tensor side = gelu(late, Activation::gelu_erf);
    y = add(y, side);
    y = add(y, twice);
    add(unused, unused);  // leads nowhere
  }
  tape.backward(y);
  CHECK(watch.names == std::vector<std::string>{"late", "twice", "early"});
  watch.check_complete();
}

TEST_CASE("a node that no gradient reaches counts as a use of its leaves, and tells of none by itself") {
  const Tensor shared = leaf_of({4}, 1), other = leaf_of({4}, 2), lost = leaf_of({4}, 3);
  Tape tape;
  Watch watch(tape, {{shared, "shared"}, {other, "other"}, {lost, "lost"}});
  Tensor y;
  {
    const TapeScope recording(tape);
    add(shared, lost);  // skipped in the backward pass, after `shared` has all it gets
    y = add(other, shared);
  }
  tape.backward(y);
  CHECK(watch.names == std::vector<std::string>{"other", "shared"});
  watch.check_complete();
  CHECK(!lost.leaf()->touched);
}

TEST_CASE("a leaf that only the pass before has touched is not told again") {
  const Tensor always = leaf_of({4}, 1), first = leaf_of({4}, 2);
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    Watch watch(tape, {{always, "always"}, {first, "first"}});
    Tensor y;
    {
      const TapeScope recording(tape);
      const Tensor side = add(first, always);
      y = pass == 0 ? add(always, side) : add(always, always);
    }
    tape.backward(y);
    CHECK(watch.names ==
          (pass == 0 ? std::vector<std::string>{"first", "always"} : std::vector<std::string>{"always"}));
    watch.check_complete();
  }
}

TEST_CASE("a leaf that is itself an output is told") {
  const Tensor leaf = leaf_of({4}, 1), input = leaf_of({4}, 2);
  Tape tape;
  Watch watch(tape, {{leaf, "leaf"}, {input, "input"}});
  Tensor y;
  {
    const TapeScope recording(tape);
    y = add(leaf, input);
  }
  SECTION("and used besides") {
    tape.backward({leaf, y}, {random_tensor({4}, 3), random_tensor({4}, 4)});
    CHECK(watch.names == std::vector<std::string>{"leaf", "input"});
  }
  SECTION("and nothing else") {
    tape.backward({leaf}, {random_tensor({4}, 3)});
    CHECK(watch.names == std::vector<std::string>{"leaf"});
  }
  watch.check_complete();
}

TEST_CASE("recomputed blocks tell the same leaves, each complete, as the network that keeps its activations") {
  // Two blocks; `shared` is used by both and after them, `last` by the second alone, `before` in front of them.
  const std::vector<std::pair<Tensor, std::string>> leaves = {{leaf_of({6, 5}, 1), "before"},
                                                              {leaf_of({5, 5}, 2), "first"},
                                                              {leaf_of({5, 5}, 3), "last"},
                                                              {leaf_of({5, 5}, 4), "shared"},
                                                              {leaf_of({5, 5}, 5), "unused"}};
  const auto get = [&](std::size_t i) { return leaves[i].first; };
  const auto block = [](const Tensor& x, const Tensor& own, const Tensor& shared) {
    return gelu(linear(linear(x, own, {}, kWide), shared, {}, kWide), Activation::gelu_erf);
  };
  std::vector<std::vector<double>> gradients[2];
  for (const bool again : {false, true}) {
    for (const auto& [leaf, name] : leaves) leaf.leaf()->touched = false;
    Tape tape;
    Watch watch(tape, leaves);
    Tensor y;
    {
      const TapeScope recording(tape);
      y = add(get(0), get(0));
      for (const std::size_t own : {1, 2}) {
        const auto body = [&, own](const std::vector<Tensor>& in) {
          linear(in[0], get(4), {}, kWide);  // a result that nobody uses
          return std::vector{block(in[0], get(own), get(3))};
        };
        y = again ? recompute(body, {y})[0] : body({y})[0];
      }
      y = linear(y, get(3), {}, kWide);
    }
    tape.backward(y, random_tensor({6, 5}, 9));
    // Within a recomputed block the order is that in which its body reads; from block to block it is the same.
    CHECK(watch.names == (again ? std::vector<std::string>{"last", "first", "shared", "before"}
                                : std::vector<std::string>{"last", "shared", "first", "before"}));
    watch.check_complete();
    for (std::size_t i = 0; i < 4; ++i) gradients[again].push_back(get(i).leaf()->grad.to_vector());
  }
  CHECK(gradients[0] == gradients[1]);
}

TEST_CASE("recompute within recompute, and of a body that hands a leaf through, tells every leaf once") {
  const Tensor x = leaf_of({4}, 1), inner = leaf_of({4}, 2), through = leaf_of({4}, 3);
  Tape tape;
  Watch watch(tape, {{x, "x"}, {inner, "inner"}, {through, "through"}});
  std::vector<Tensor> y;
  {
    const TapeScope recording(tape);
    const auto nested = [&](const std::vector<Tensor>& in) {
      const auto body = [&](const std::vector<Tensor>& deep) { return std::vector{add(deep[0], inner)}; };
      return std::vector{recompute(body, in)[0], through};
    };
    y = recompute(nested, {gelu(x, Activation::gelu_erf)});
    CHECK(tape.size() == 2);
  }
  tape.backward({y[0], y[1]}, {random_tensor({4}, 5), random_tensor({4}, 6)});
  CHECK(watch.names == std::vector<std::string>{"inner", "through", "x"});
  watch.check_complete();
}

TEST_CASE("recompute records nothing where neither inputs nor what the body reads are tracked") {
  const Tensor plain = random_tensor({4}, 1), leaf = leaf_of({4}, 2);
  Tape tape;
  const TapeScope recording(tape);
  CHECK(!recompute([](const auto& in) { return std::vector{add(in[0], in[0])}; }, {plain})[0].tracked());
  CHECK(tape.size() == 0);
  CHECK(recompute([&](const auto& in) { return std::vector{add(in[0], leaf)}; }, {plain})[0].tracked());
  CHECK(tape.size() == 1);
}

TEST_CASE("recompute refuses a body that reads a recorded tensor besides its inputs") {
  const Tensor leaf = leaf_of({4}, 1);
  Tape tape;
  const TapeScope recording(tape);
  const Tensor x = add(leaf, leaf), hidden = add(leaf, leaf);
  CHECK_THROWS_WITH(recompute([&](const auto& in) { return std::vector{add(in[0], hidden)}; }, {x}),
                    testing::ContainsSubstring("not among its inputs"));
}

// Who catches the error and goes on must not add to what half a pass has left.
TEST_CASE("a backward pass that ends in an error leaves nothing of it in the leaves, and the tape is empty") {
  const Tensor x = leaf_of({4}, 1);
  bool fails = true;
  Tape tape;
  const auto loss = [&] {
    const TapeScope recording(tape);
    Tensor failing = random_tensor({4}, 3);
    Tape::record("failing", {&x}, {}, {&failing}, [&](Gradients& gradients, const std::vector<Tensor>& dy) {
      if (fails) throw_error("half way");
      gradients.give(x, dy[0]);
    });
    return add(failing, gelu(x, Activation::gelu_erf));  // gelu's gradient comes first
  };
  CHECK_THROWS_WITH(tape.backward(loss()), "half way");
  CHECK(tape.size() == 0);
  CHECK_FALSE(x.leaf()->touched);
  fails = false;
  tape.backward(loss());
  const std::vector<double> after_error = x.leaf()->grad.to_vector();
  x.leaf()->touched = false;
  tape.backward(loss());
  CHECK(after_error == x.leaf()->grad.to_vector());
}

TEST_CASE("memory is counted under its purpose and given back") {
  const std::size_t before = memory_bytes();
  {
    const MemoryScope scope("test");
    const Tensor a = Tensor::empty({1 << 20}, DType::fp32, Device{});
    CHECK(memory_bytes() >= before + (std::size_t{4} << 20));
    CHECK_THAT(memory_report(), testing::ContainsSubstring("test"));
  }
  CHECK(memory_bytes() == before);
}

}  // namespace isobar
