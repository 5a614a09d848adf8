// The layers that transformers are made of, and the network as stages. tests/models/golden_test.cc holds their numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "engine/field_ops.h"
#include "engine/tape.h"
#include "models/layers/conv.h"
#include "models/vit/vit.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

const Pass kTraining = Pass::training({7, 1 << 16});
const ComputeOptions kCompute;

VitConfig small(std::int64_t depth) {
  return {.height = 4,
          .width = 6,
          .patch = 2,
          .in_channels = 3,
          .embed = 16,
          .depth = depth,
          .heads = 2,
          .dropout = 0.25,
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
  const Vit vit(small(1), {parameters, kCompute});
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

TEST_CASE("weights and biases of convolutions start as PyTorch's, transposed ones too, within one bound") {
  Parameters parameters;
  const ConvSpec spec{.in = 2, .out = 50, .kernel = {3, 3}};
  const Conv conv({parameters, kCompute}, "conv", spec);
  const ConvTranspose up({parameters, kCompute}, "up", spec);
  parameters.allocate(DType::fp64, Device{}, 1);
  for (const NamedParameter& p : parameters.named()) {
    INFO(p.name);
    const double bound =
        1 / std::sqrt((p.name.starts_with("conv.") ? 2.0 : 50.0) * 9);  // of the weight's second extent
    double largest = 0;
    for (const double value : parameters.weight(p).to_vector()) largest = std::max(largest, std::abs(value));
    CHECK(largest <= bound);
    CHECK(largest > 0.8 * bound);
  }
}

TEST_CASE("fp64 runs on the CPU only") {
  const ComputeOptions fp64{.dtype = ArithmeticType::fp64};
  Parameters parameters;
  const Vit vit(small(1), {parameters, fp64});
  CHECK_THROWS_WITH(fp64.allocate(parameters, meta_like(DeviceKind::cuda), {}),
                    "dtype: fp64 runs on the CPU only (--device cpu)");
  CHECK_NOTHROW(fp64.allocate(parameters, Device{}, {}));
  CHECK(parameters.dtype() == DType::fp64);
}

TEST_CASE("the network lists its parameters in this order, which is that of the flat buffers") {
  Parameters parameters;
  const Vit vit(small(1), {parameters, kCompute});
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
  const Vit vit(small(3), {parameters, kCompute});
  parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor image = waves({2, 3, 4, 6});
  REQUIRE(vit.stages().size() == 6);
  Tensors state{image};
  for (std::size_t i = 0; i < vit.stages().size(); ++i)
    state = vit.stages()[i].forward(state, kTraining.over(2).stage(static_cast<std::int64_t>(i)));
  REQUIRE(state.size() == 1);
  CHECK(state[0].to_vector() == vit.in_patches(image, kTraining).to_vector());
  const std::vector<double> whole = vit(image, kTraining).to_vector();
  CHECK(unpatchify(state[0], {2, vit.config().out_channels, 4, 6}, vit.config().patch, PatchOrder::channels_last)
            .to_vector() == whole);
  CHECK(vit(image, {}).to_vector() != whole);
  CHECK(vit(image, Pass::training({7, (1 << 16) + 1})).to_vector() != whole);
}

TEST_CASE("the stages that recompute keep their inputs only, and these are the blocks") {
  const ComputeOptions compute{.recompute = true};
  Parameters parameters;
  const Vit vit(small(3), {parameters, compute});
  parameters.allocate(DType::fp64, Device{}, 1);
  std::vector<bool> recomputed;
  for (const Stage& stage : vit.stages()) recomputed.push_back(stage.recompute);
  CHECK(recomputed == std::vector<bool>{false, true, true, true, false, false});
  Tape tape;
  const TapeScope recording(tape);
  vit(waves({2, 3, 4, 6}), kTraining);
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
    const ComputeOptions compute{.recompute = again};
    Parameters parameters;
    const Vit vit(small(3), {parameters, compute});
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
      y = vit(waves({2, 3, 4, 6}), kTraining);
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

TEST_CASE("a block's masks follow from its pass, and other passes give others") {
  Parameters parameters;
  const TransformerBlock block({parameters, kCompute}, "block",
                               {.width = 16, .heads = 2, .hidden = 24, .dropout = 0.5});
  parameters.allocate(DType::fp64, Device{}, 1);
  const Residual in{waves({6, 16}), waves({6, 16}, 1)};
  const auto output = [&](std::uint64_t first) {
    Pass pass = Pass::training({7, (1 << 16) + first}).over(2);
    const Residual out = block(in, pass);
    return std::vector{out.x.to_vector(), out.branch.to_vector()};
  };
  CHECK(output(0) == output(0));
  for (std::uint64_t shift = 1; shift < 2 * Pass::kMasksOfStage; ++shift) CHECK(output(shift) != output(0));
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
  const Vit vit(small(3), {parameters, kCompute});
  parameters.allocate(DType::fp64, Device{}, 1);
  const Tensor images = waves({5, 3, 4, 6}), whole = vit(images, kTraining);
  for (const std::int64_t rank : {0, 1}) {
    const std::int64_t count = rank == 0 ? 3 : 2;  // samples 0, 2, 4; samples 1, 3
    std::vector<std::int64_t> samples;
    for (std::int64_t b = 0; b < count; ++b) samples.push_back(rank + 2 * b);
    const Pass pass = Pass::training({7, 1 << 16}, {rank, 2});
    const Tensor mine = rows_of(images.view({5, 72}), samples).view({count, 3, 4, 6});
    CHECK(distance(vit(mine, pass), rows_of(whole.view({5, -1}), samples)) < 1e-14);
    CHECK(distance(vit(mine, kTraining), rows_of(whole.view({5, -1}), samples)) > (rank == 0 ? 1e-3 : 1e-2));
  }
}

TEST_CASE("what a rank drops of the stream, and within a branch, is what one rank drops of the whole") {
  constexpr std::int64_t kBatch = 3, kTokens = 14, kWidth = 6, kColumns = 10;
  const auto ones = [](std::int64_t rows, std::int64_t columns) {
    Tensor t = Tensor::empty({rows, columns}, DType::fp64, Device{});
    t.set_values(std::vector<double>(static_cast<std::size_t>(rows * columns), 1));
    return t;
  };
  Parameters none;
  const ComputeOptions compute;
  struct Dropped {
    Tensor rows, paths, within;
  };
  // Of `samples` samples of the rank, the rows that it has of the stream, and the columns [first, end) within a branch.
  const auto dropped = [&](const Parallel& parallel, std::int64_t samples, SampleWindow window, Part columns) {
    const ResidualStream stream(Build{none, compute, parallel, kTokens, 2});
    const std::int64_t within = samples * stream.tokens();
    const std::int64_t rows = parallel.sequence ? parallel.over_tp(within).size() : within;
    Pass pass = Pass::training({7, 1 << 16}, window).over(samples);
    const Tensor a = stream.drop(ones(rows, kWidth), 0.5, pass), b = stream.drop_path(ones(rows, kWidth), 0.5, pass);
    return Dropped{a, b, stream.drop_within(ones(within, columns.size()), 0.5, pass, {columns.begin, kColumns})};
  };
  const Dropped whole = dropped(Parallel::alone(), 2 * kBatch, {}, {0, kColumns});
  const MeshSizes sizes{.dp = 2, .tp = 2, .cp = 3};
  for (std::int64_t rank = 0; rank < 12; ++rank) {
    Parallel parallel = Parallel::imagined(rank, sizes, "tp-cp-dp");
    parallel.sequence = true;
    INFO("rank " << rank);
    const std::int64_t tp = rank % 2, cp = rank / 2 % 3, dp = rank / 6;
    // 14 tokens in pairs over three ranks: 6, 4, 4.
    const std::int64_t count = cp == 0 ? 6 : 4,
                       first = std::array<std::int64_t, 3>{0, 6, 10}[static_cast<std::size_t>(cp)];
    std::vector<std::int64_t> within;
    for (std::int64_t b = 0; b < kBatch; ++b)
      for (std::int64_t t = 0; t < count; ++t) within.push_back((dp + 2 * b) * kTokens + first + t);
    const auto half = static_cast<std::ptrdiff_t>(within.size() / 2);
    const std::vector<std::int64_t> rows =
        tp == 0 ? std::vector(within.begin(), within.begin() + half) : std::vector(within.begin() + half, within.end());
    const Part columns = tp == 0 ? Part{0, 4} : Part{4, 10};
    const Dropped mine = dropped(parallel, kBatch, {dp, 2}, columns);
    CHECK(mine.rows.to_vector() == rows_of(whole.rows, rows).to_vector());
    CHECK(mine.paths.to_vector() == rows_of(whole.paths, rows).to_vector());
    const std::vector<double> got = mine.within.to_vector(), want = rows_of(whole.within, within).to_vector();
    const auto width = static_cast<std::size_t>(columns.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(got[i] == want[i / width * kColumns + static_cast<std::size_t>(columns.begin) + i % width]);
  }
}

TEST_CASE("the worked example of docs/learn/5_the_transformer.md") {
  Parameters parameters;
  const TransformerBlock block({parameters, kCompute}, "block", {.width = 8, .heads = 1, .hidden = 8});
  const LayerNorm last({parameters, kCompute}, "last", 8, 1e-6);  // of the next block: it adds the second branch
  parameters.allocate(DType::fp64, Device{}, 1);
  for (const NamedParameter& p : parameters.named()) {
    if (p.shape.size() != 2) continue;  // norms start as ones and zeros, biases as zeros
    std::vector<double> identity(64, 0.0);
    for (std::size_t i = 0; i < 8; ++i) identity[9 * i] = 1;
    parameters.weight(p).set_values(identity);
  }
  Tensor x = Tensor::empty({2, 8}, DType::fp64, Device{});
  x.set_values({1, 3, 1, 3, 1, 3, 1, 3, 0, 2, 2, 0, 0, 2, 2, 0});
  Pass pass = Pass().over(1);
  const Residual out = block({x, {}}, pass);
  const std::vector<double> between = out.x.to_vector(), after = last(out).sum.to_vector();
  const double want_between[2][4] = {{0, 4, 0.1116, 3.8884}, {-1, 3, 2.8884, -0.8884}};
  const double want_after[2][4] = {{-0.1562, 4.8721, -0.0494, 4.6983}, {-1.1562, 3.8721, 3.6983, -1.0494}};
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(std::abs(between[i] - want_between[i / 8][i % 4]) < 6e-5);
    CHECK(std::abs(after[i] - want_after[i / 8][i % 4]) < 6e-5);
  }
}

TEST_CASE("masks of a pass: a stage has its own, in the order of drawing, and they come again") {
  const Pass pass = Pass::training({7, 1 << 16});
  const auto streams = [](Pass mine, int count) {
    std::vector<std::uint64_t> drawn;
    for (int i = 0; i < count; ++i) drawn.push_back(mine.next_mask().stream - (1 << 16));
    return drawn;
  };
  CHECK(streams(pass.stage(0), 3) == std::vector<std::uint64_t>{0, 1, 2});
  CHECK(streams(pass.stage(2), 3) == std::vector<std::uint64_t>{16, 17, 18});
  CHECK(streams(pass.stage(2), 3) == streams(pass.stage(2), 3));
  CHECK(streams(pass.stage(1), 8).back() == 15);
  CHECK_THROWS_WITH(streams(pass.stage(1), 9), "a stage draws more than 8 random masks: cut it in two");
  CHECK_THROWS_WITH(pass.samples(), testing::ContainsSubstring("does not know how many samples it has"));
  CHECK(pass.over(3).stage(1).samples() == 3);
  CHECK(pass.rate(0.25) == 0.25f);
  CHECK(Pass().rate(0.25) == 0);
}

TEST_CASE("drop path leaves out whole branches of a sample, in training only") {
  Parameters parameters;
  const TransformerBlock block({parameters, kCompute}, "block",
                               {.width = 16, .heads = 2, .hidden = 24, .drop_path = 0.5});
  parameters.allocate(DType::fp64, Device{}, 1);
  constexpr std::int64_t kBatch = 16, kTokens = 3, kSample = kTokens * 16;
  const Residual in{waves({kBatch * kTokens, 16}), {}};
  const auto dropped = [&](const Pass& kind) {
    Pass pass = kind.over(kBatch);
    const std::vector<double> branch = block(in, pass).branch.to_vector();
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
  CHECK(dropped(Pass()) == 0);
  const int samples = dropped(kTraining);
  CHECK(samples > 2);
  CHECK(samples < 14);
}

#if ISOBAR_HAS_EMULATOR
TEST_CASE("attention's options say whether a GPU may round to TF32") {
  const auto output = [](DeviceKind kind, bool tf32) {
    Parameters parameters;
    const ComputeOptions compute{.tf32 = tf32};
    const Attention layer({parameters, compute}, "attn", {.width = 16, .heads = 2});
    parameters.allocate(DType::fp32, Device{.kind = kind}, 1);
    Tensor x = Tensor::empty({6, 16}, DType::fp32, Device{.kind = kind});
    x.set_values(waves({6, 16}).to_vector());
    Pass pass = Pass().over(2);
    return layer(x, pass).to_vector();
  };
  // The other products of both devices are the CPU's.
  CHECK(output(DeviceKind::cpu, true) == output(DeviceKind::cpu, false));
  CHECK(output(DeviceKind::emulator, true) != output(DeviceKind::emulator, false));
}
#endif

TEST_CASE("attention refuses channels that its heads do not divide") {
  Parameters parameters;
  CHECK_THROWS_WITH(Attention({parameters, kCompute}, "attn", {.width = 16, .heads = 3}),
                    testing::ContainsSubstring("16 channels do not divide into 3 heads"));
}

}  // namespace isobar
