// The layers that transformers are made of, and the network as stages. tests/models/golden_test.cc holds their numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "engine/tape.h"
#include "models/vit/vit.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

constexpr Context kTraining{.training = true, .masks = {7, 1 << 16}};

VitConfig small(std::int64_t depth) {
  return {.trunk = {.height = 4,
                    .width = 6,
                    .patch = 2,
                    .in_channels = 3,
                    .embed = 16,
                    .depth = depth,
                    .heads = 2,
                    .dropout = 0.25},
          .out_channels = 2};
}

Tensor waves(Shape shape, double phase = 0) {
  Tensor t = Tensor::empty(std::move(shape), DType::fp64, Device{});
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data_as<double>()[i] = std::sin(static_cast<double>(i) + phase);
  return t;
}

}  // namespace

TEST_CASE("weights and biases of patches start as PyTorch's Conv2d, within one bound") {
  Parameters parameters;
  const Vit vit(small(1), parameters);
  parameters.allocate(DType::fp64, Device{}, 1);
  const double bound = 1 / std::sqrt(3.0 * 2 * 2);  // of its inputs
  for (const NamedParameter& p : parameters.named()) {
    if (!p.name.starts_with("patch_embed.proj.")) continue;
    INFO(p.name);
    double largest = 0, sum = 0;
    const std::vector<double> values = parameters.weight(p).to_vector();
    for (const double value : values) {
      largest = std::max(largest, std::abs(value));
      sum += value * value;
    }
    CHECK(largest <= bound);
    CHECK(sum / static_cast<double>(values.size()) > bound * bound / 3 / 3);  // uniform: bound² / 3
  }
}

TEST_CASE("the network lists its parameters in this order, which is that of the flat buffers") {
  Parameters parameters;
  const Vit vit(small(1), parameters);
  parameters.allocate(DType::fp64, Device{}, 1);
  std::vector<std::string> names;
  for (const NamedParameter& p : parameters.named()) names.push_back(p.name);
  const std::string b = "blocks.0.", a = b + "attn.", m = b + "mlp.";
  CHECK(names == std::vector<std::string>{"pos_embed",
                                          "patch_embed.proj.weight",
                                          "patch_embed.proj.bias",
                                          b + "norm1.weight",
                                          b + "norm1.bias",
                                          a + "q.weight",
                                          a + "k.weight",
                                          a + "v.weight",
                                          a + "q.bias",
                                          a + "k.bias",
                                          a + "v.bias",
                                          a + "proj.weight",
                                          a + "proj.bias",
                                          b + "norm2.weight",
                                          b + "norm2.bias",
                                          m + "fc1.weight",
                                          m + "fc1.bias",
                                          m + "fc2.weight",
                                          m + "fc2.bias",
                                          "norm.weight",
                                          "norm.bias",
                                          "head.weight"});
}

TEST_CASE("the stages run one by one give the network's output, masks included") {
  Parameters parameters;
  const Vit vit(small(3), parameters);
  parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor image = waves({2, 3, 4, 6});
  REQUIRE(vit.stages().size() == 6);
  std::vector<Tensor> state{image};
  for (const Stage& stage : vit.stages()) state = stage.forward(state, kTraining);
  REQUIRE(state.size() == 1);
  CHECK(state[0].to_vector() == vit.patches(image, kTraining).to_vector());
  const std::vector<double> whole = vit.forward(image, kTraining).to_vector();
  CHECK(unpatchify(state[0], {2, vit.config().out_channels, 4, 6}, vit.config().trunk.patch, PatchOrder::channels_last)
            .to_vector() == whole);
  CHECK(vit.forward(image, {.training = false, .masks = kTraining.masks}).to_vector() != whole);
  CHECK(vit.forward(image, kTraining.masks_from(1)).to_vector() != whole);
}

TEST_CASE("the stages that recompute keep their inputs only, and these are the blocks") {
  VitConfig config = small(3);
  config.trunk.recompute = true;
  Parameters parameters;
  const Vit vit(config, parameters);
  parameters.allocate(DType::fp64, Device{}, 1);
  std::vector<bool> recomputed;
  for (const Stage& stage : vit.stages()) recomputed.push_back(stage.recompute);
  CHECK(recomputed == std::vector<bool>{false, true, true, true, false, false});
  Tape tape;
  const TapeScope recording(tape);
  vit.forward(waves({2, 3, 4, 6}), kTraining);
  const std::string report = tape.report();
  std::size_t nodes = 0;
  for (std::size_t at = report.find("recompute"); at != std::string::npos; at = report.find("recompute", at + 1))
    ++nodes;
  CHECK(nodes == 3);
  CHECK(report.find("attention") == std::string::npos);
}

TEST_CASE("the backward pass tells every parameter once, complete, the last block's first, recomputed or not") {
  std::vector<double> gradients[2];
  for (const bool again : {false, true}) {
    VitConfig config = small(3);
    config.trunk.recompute = again;
    Parameters parameters;
    const Vit vit(config, parameters);
    parameters.allocate(DType::fp64, Device{}, 1);
    const auto name_of_leaf = [&](const Leaf& leaf) {
      for (const NamedParameter& p : parameters.named())
        if (parameters.grad(p).data() == leaf.grad.data()) return p.name;  // of stacked ones the first
      return std::string("no parameter");
    };
    std::map<std::string, std::vector<double>> told;
    std::vector<std::string> order;
    Tape tape;
    tape.on_ready([&](const Leaf& leaf) {
      order.push_back(name_of_leaf(leaf));
      told[order.back()] = leaf.grad.to_vector();
    });
    Tensor y;
    {
      const TapeScope recording(tape);
      y = vit.forward(waves({2, 3, 4, 6}), kTraining);
    }
    parameters.begin_step();
    tape.backward(y, waves(y.shape(), 1));

    CHECK(order.size() == 6 + 3 * 12);  // 12 leaves a block: q, k and v are stacked
    CHECK(told.size() == order.size());
    CHECK(order.front() == "head.weight");
    CHECK(order.back() == "patch_embed.proj.bias");
    const auto block_of = [](const std::string& name) { return name.rfind("blocks.", 0) == 0 ? name[7] : '-'; };
    std::string blocks;
    for (const std::string& name : order)
      if (blocks.empty() || blocks.back() != block_of(name)) blocks += block_of(name);
    CHECK(blocks == "-210-");
    for (const auto& [name, gradient] : told) {
      INFO(name);
      for (const NamedParameter& p : parameters.named())
        if (p.name == name) {
          const Shape all{static_cast<std::int64_t>(gradient.size())};
          CHECK(parameters.grads().slice(p.offset, all).to_vector() == gradient);
        }
    }
    gradients[again] = parameters.grads().to_vector();
  }
  CHECK(gradients[0] == gradients[1]);
}

TEST_CASE("a block's masks follow from its context, and other contexts give others") {
  Parameters parameters;
  const TransformerOptions options{.width = 16, .heads = 2, .hidden = 24, .dropout = 0.5};
  const TransformerBlock block(parameters, "block", options);
  parameters.allocate(DType::fp64, Device{}, 1);
  const Residual in{waves({6, 16}), waves({6, 16}, 1)};
  const auto output = [&](std::uint64_t first) {
    const Residual out = block.forward(in, 2, kTraining.masks_from(first));
    return std::vector{out.x.to_vector(), out.branch.to_vector()};
  };
  CHECK(output(0) == output(0));
  for (std::uint64_t shift = 1; shift < 2 * TransformerBlock::kMasks; ++shift) CHECK(output(shift) != output(0));
}

namespace {

// Rows of a matrix that `rows` names, in their order.
Tensor rows_of(const Tensor& x, const std::vector<std::int64_t>& rows) {
  Tensor some = Tensor::empty({static_cast<std::int64_t>(rows.size()), x.size(1)}, x.dtype(), x.device());
  for (std::size_t i = 0; i < rows.size(); ++i)
    some.slice(static_cast<std::int64_t>(i) * x.size(1), {x.size(1)})
        .copy_from(x.slice(rows[i] * x.size(1), {x.size(1)}));
  return some;
}
double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  REQUIRE(x.size() == y.size());
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

}  // namespace

TEST_CASE("a rank's samples have the masks that they have in the whole batch") {
  Parameters parameters;
  VitConfig config = small(3);
  const Vit vit(config, parameters);
  parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor images = waves({5, 3, 4, 6}), whole = vit.forward(images, kTraining);
  Context context = kTraining;
  for (const std::int64_t rank : {0, 1}) {
    const std::int64_t count = rank == 0 ? 3 : 2;  // samples 0, 2, 4; samples 1, 3
    std::vector<std::int64_t> samples;
    for (std::int64_t b = 0; b < count; ++b) samples.push_back(rank + 2 * b);
    context.block.samples = {rank, 2};
    const Tensor mine = rows_of(images.view({5, 72}), samples).view({count, 3, 4, 6});
    CHECK(distance(vit.forward(mine, context), rows_of(whole.view({5, -1}), samples)) < 1e-14);
    CHECK(distance(vit.forward(mine, kTraining), rows_of(whole.view({5, -1}), samples)) > (rank == 0 ? 1e-3 : 1e-2));
  }
}

TEST_CASE("bands of tokens, rows between the branches and hidden channels have the masks of the whole") {
  constexpr std::int64_t kBatch = 3, kTokens = 7, kWidth = 16, kHidden = 24;
  Parameters parameters;
  const Mlp mlp(parameters, "mlp", {.width = kWidth, .hidden = kHidden, .dropout = 0.25});
  parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor x = waves({kBatch * kTokens, kWidth}), whole = mlp.forward(x, kBatch, kTraining);
  Context context = kTraining;
  context.block.tokens = {2, kTokens};  // tokens 2 to 5
  std::vector<std::int64_t> rows;
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t t = 2; t < 6; ++t) rows.push_back(b * kTokens + t);
  CHECK(distance(mlp.forward(rows_of(x, rows), kBatch, context), rows_of(whole, rows)) < 1e-14);

  // Rows 3 to 9 of the band, the others being another rank's between the branches.
  context.block.first_own = 3;
  context.block.sample_rows = 4;
  const std::vector<std::int64_t> own(rows.begin() + 3, rows.begin() + 10);
  const Tensor ones = [] {
    Tensor t = Tensor::zeros({7, kWidth}, DType::fp64, Device{});
    t.set_values(std::vector<double>(7 * kWidth, 1));
    return t;
  }();
  Tensor all = Tensor::zeros(x.shape(), DType::fp64, Device{});
  all.set_values(std::vector<double>(static_cast<std::size_t>(x.numel()), 1));
  const DropoutKey key{3, 4};
  const PassBlock& block = context.block;
  CHECK(dropout(ones, 0.5f, key, block.elements(ones, kBatch, PassBlock::Rows::own)).to_vector() ==
        rows_of(dropout(all, 0.5f, key), own).to_vector());
  CHECK(drop_path(ones, 0.5f, key, block.rows(ones, kBatch, PassBlock::Rows::own)).to_vector() ==
        rows_of(drop_path(all, 0.5f, key, {.tokens = kTokens}), own).to_vector());

  // Hidden channels 5 to 20 of all rows of the band.
  context.block.hidden = {5, kWidth + 9};
  const Tensor part = rows_of(all, rows);
  Tensor hidden = Tensor::zeros({kBatch * kTokens, kWidth + 9}, DType::fp64, Device{});
  hidden.set_values(std::vector<double>(static_cast<std::size_t>(hidden.numel()), 1));
  const std::vector<double> want = rows_of(dropout(hidden, 0.5f, key), rows).to_vector();
  const std::vector<double> got =
      dropout(part, 0.5f, key, block.elements(part, kBatch, PassBlock::Rows::all, block.hidden)).to_vector();
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == want[i / kWidth * (kWidth + 9) + 5 + i % kWidth]);
}

TEST_CASE("hidden channels of an MLP that is cut have the masks of the whole, and so have heads") {
  const auto options = [](std::int64_t hidden) {
    return MlpOptions{.width = 16, .hidden = hidden, .activation = Activation::none, .dropout = 0.25};
  };
  Parameters parameters;
  const Mlp mlp(parameters, "mlp", options(24));
  parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor x = waves({21, 16}), whole = mlp.forward(x, 3, kTraining);
  // y is the same mask of a sum over all hidden channels (biases start at 0).
  Tensor sum = Tensor::zeros({21, 16}, DType::fp64, Device{});
  for (const auto& [first, count] : std::vector<std::array<std::int64_t, 2>>{{0, 10}, {10, 14}}) {
    Parameters part_parameters;
    const Mlp part(part_parameters, "mlp", options(count));
    part_parameters.allocate(DType::fp64, Device{}, 1);
    const auto weight = [](const Parameters& of, std::size_t i) { return of.weight(of.named()[i]).data_as<double>(); };
    REQUIRE(parameters.named()[0].name == "mlp.fc1.weight");
    REQUIRE(parameters.named()[2].name == "mlp.fc2.weight");
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t c = 0; c < 16; ++c) {
        weight(part_parameters, 0)[j * 16 + c] = weight(parameters, 0)[(first + j) * 16 + c];
        weight(part_parameters, 2)[c * count + j] = weight(parameters, 2)[c * 24 + first + j];
      }
    Context context = kTraining;
    context.block.hidden = {first, 24};
    sum = add(sum, part.forward(x, 3, context));
  }
  CHECK(distance(sum, whole) < 1e-14);

  Parameters attention_parameters;
  const Attention attention(attention_parameters, "attn", {.width = 16, .heads = 2, .dropout = 0.25});
  attention_parameters.allocate(DType::fp64, Device{}, 1);
  Context context = kTraining;
  const std::vector<double> first_heads = attention.forward(x, 3, context).to_vector();
  context.block.heads = {0, 2};
  CHECK(attention.forward(x, 3, context).to_vector() == first_heads);
  context.block.heads = {2, 4};
  CHECK(attention.forward(x, 3, context).to_vector() != first_heads);
}

TEST_CASE("drop path leaves out whole branches of a sample, in training only") {
  Parameters parameters;
  const TransformerOptions options{.width = 16, .heads = 2, .hidden = 24, .drop_path = 0.5};
  const TransformerBlock block(parameters, "block", options);
  parameters.allocate(DType::fp64, Device{}, 1);
  constexpr std::int64_t kBatch = 16, kTokens = 3, kSample = kTokens * 16;
  const Residual in{waves({kBatch * kTokens, 16}), {}};
  const auto dropped = [&](const Context& context) {
    const std::vector<double> branch = block.forward(in, kBatch, context).branch.to_vector();
    int zero = 0, partly = 0;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      int zeros = 0;
      for (std::int64_t i = 0; i < kSample; ++i) zeros += branch[static_cast<std::size_t>(b * kSample + i)] == 0;
      zero += zeros == kSample;
      partly += zeros > 0 && zeros < kSample;
    }
    CHECK(partly == 0);
    return zero;
  };
  CHECK(dropped({}) == 0);
  const int samples = dropped(kTraining);
  CHECK(samples > 2);
  CHECK(samples < 14);
}

#if ISOBAR_HAS_EMULATOR
TEST_CASE("attention's options say whether a GPU may round to TF32") {
  const auto output = [](DeviceKind kind, bool tf32) {
    Parameters parameters;
    const Attention layer(parameters, "attn", {.width = 16, .heads = 2, .tf32 = tf32});
    parameters.allocate(DType::fp32, Device{.kind = kind}, 1);
    Tensor x = Tensor::empty({6, 16}, DType::fp32, Device{.kind = kind});
    x.set_values(waves({6, 16}).to_vector());
    return layer.forward(x, 2, {}).to_vector();
  };
  // The other products of both devices are the CPU's.
  CHECK(output(DeviceKind::cpu, true) == output(DeviceKind::cpu, false));
  CHECK(output(DeviceKind::emulator, true) != output(DeviceKind::emulator, false));
}
#endif

TEST_CASE("attention refuses channels that its heads do not divide") {
  Parameters parameters;
  CHECK_THROWS_WITH(Attention(parameters, "attn", {.width = 16, .heads = 3}),
                    testing::ContainsSubstring("16 channels do not divide into 3 heads"));
}

}  // namespace isobar
