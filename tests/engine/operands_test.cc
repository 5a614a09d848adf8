// Ops refuse operands that do not fit before they compute anything from them, and tensors what would leave the graph in
// silence.
#include "engine/ops/operands.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "engine/conv_ops.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "engine/tape.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

constexpr Device kHost{}, kOther{DeviceKind::emulator};

Tensor zeros(Shape shape, Device device = kHost, DType dtype = DType::fp32) {
  return Tensor::zeros(std::move(shape), dtype, device);
}
Tensor labels(Device device) {
  Tensor classes = Tensor::empty({4}, DType::i32, kHost);
  classes.set_values({0, 1, 2, 0});
  return classes.to(device);
}

// An op with each of its operands on a device of its own.
struct OpCall {
  const char* op;
  int operands;
  std::function<void(const std::vector<Device>& on)> make;
};

std::vector<OpCall> calls() {
  const AttentionOptions attention_options{.batch = 1, .heads = 1};
  return {
      {"linear", 3,
       [](const auto& on) {
         linear(zeros({4, 8}, on[0]), zeros({6, 8}, on[1]), zeros({6}, on[2]), {});
       }},
      {"linear", 5,  // as a part of mlp
       [](const auto& on) {
         mlp(zeros({4, 8}, on[0]), zeros({6, 8}, on[1]), zeros({6}, on[2]), zeros({8, 6}, on[3]), zeros({8}, on[4]),
             {});
       }},
      {"layernorm", 3,
       [](const auto& on) {
         layernorm(zeros({4, 8}, on[0]), zeros({8}, on[1]), zeros({8}, on[2]), 1e-5, DType::fp32);
       }},
      {"layernorm", 4,
       [](const auto& on) {
         layernorm_residual(zeros({4, 8}, on[0]), zeros({4, 8}, on[1]), zeros({8}, on[2]), zeros({8}, on[3]), 1e-5);
       }},
      {"attention", 3,
       [=](const auto& on) {
         attention(zeros({4, 8}, on[0]), zeros({4, 8}, on[1]), zeros({4, 8}, on[2]), attention_options);
       }},
      {"add", 2,
       [](const auto& on) {
         add(zeros({4, 8}, on[0]), zeros({4, 8}, on[1]));
       }},
      {"add_row", 2,
       [](const auto& on) {
         add_row(zeros({4, 8}, on[0]), zeros({8}, on[1]));
       }},
      {"add_row", 2,
       [](const auto& on) {
         add_row(zeros({4, 8}, on[0]), zeros({6, 8}, on[1]), 1, 2);
       }},
      {"add_leading_channels", 2,
       [](const auto& on) {
         add_leading_channels(zeros({2, 1, 2, 2}, on[0]), zeros({2, 3, 2, 2}, on[1]));
       }},
      {"join_planes", 3,
       [](const auto& on) {
         join_planes({{zeros({2, 1, 2, 2}, on[0]), 0, 1},
                      {zeros({2, 3, 2, 2}, on[1]), 1, 2},
                      {zeros({2, 3, 2, 2}, on[2]), 0, 1}});
       }},
      {"replace_points", 3,
       [](const auto& on) {
         replace_points(zeros({2, 1, 2, 2}, on[0]), zeros({1, 2, 2}, on[1]),
                        Tensor::empty({1, 2, 2}, DType::i32, on[2]));
       }},
      {"forecast_loss", 2,
       [](const auto& on) {
         forecast_loss(zeros({1, 2, 2, 2}, on[0]), zeros({1, 2, 2, 2}, on[1]), {});
       }},
      {"forecast_loss", 4,
       [](const auto& on) {
         forecast_loss(zeros({1, 2, 2, 2}, on[0]), zeros({1, 2, 2, 2}, on[1]),
                       {.row_weights = zeros({2}, on[2]), .channel_weights = zeros({2}, on[3])});
       }},
      {"conv", 3,
       [](const auto& on) {
         conv(zeros({1, 4, 2}, on[0]), zeros({3, 3, 2}, on[1]), zeros({3}, on[2]), {});
       }},
      {"conv_transpose", 3,
       [](const auto& on) {
         conv_transpose(zeros({1, 4, 2}, on[0]), zeros({2, 3, 3}, on[1]), zeros({3}, on[2]), {});
       }},
      {"concat_channels", 3,
       [](const auto& on) {
         concat_channels({zeros({1, 4, 2}, on[0]), zeros({1, 4, 3}, on[1]), zeros({1, 4, 1}, on[2])});
       }},
      {"mean_loss", 2,
       [](const auto& on) {
         mean_loss(zeros({1, 4, 2}, on[0]), zeros({1, 4, 2}, on[1]), {});
       }},
      {"error_sums", 2,
       [](const auto& on) {
         error_sums(zeros({1, 4, 2}, on[0]), zeros({1, 4, 3}, on[1]), ErrorKind::absolute, true);
       }},
      {"turn", 2,
       [](const auto& on) {
         turn(zeros({4, 3, 2, 2, 2}, on[0]), labels(on[1]), 0, DType::fp32);
       }},
      {"embedding", 2,
       [](const auto& on) {
         embedding(labels(on[0]), zeros({3, 2}, on[1]), DType::fp32);
       }},
      {"cross_entropy", 2,
       [](const auto& on) {
         cross_entropy(zeros({4, 3}, on[0]), labels(on[1]));
       }},
      {"class_predictions", 2,
       [](const auto& on) {
         class_predictions(zeros({4, 3}, on[0]), labels(on[1]));
       }},
  };
}

std::string refusal(const std::function<void()>& call) {
  return testing::error_of(call, "accepted");
}

TEST_CASE("operands: every op refuses each of its operands on another device, and names it") {
  if (!ISOBAR_HAS_EMULATOR) return;
  for (const OpCall& call : calls()) {
    const auto operands = static_cast<std::size_t>(call.operands);
    INFO(call.op << " of " << operands);
    CHECK(refusal([&] { call.make(std::vector<Device>(operands, kHost)); }) == "accepted");
    CHECK(refusal([&] { call.make(std::vector<Device>(operands, kOther)); }) == "accepted");
    for (std::size_t i = 0; i < operands; ++i) {
      INFO("operand " << i);
      std::vector<Device> on(operands, kHost);
      on[i] = kOther;
      const std::string sentence = refusal([&] { call.make(on); });
      CHECK(sentence.starts_with(std::string(call.op) + ": the "));
      CHECK_THAT(sentence, ContainsSubstring(" is on ") && ContainsSubstring("emulator") && ContainsSubstring("cpu"));
    }
  }
}

TEST_CASE("operands: dimensions are asked for before sizes, and what is not there is named") {
  const Tensor none, row = zeros({8}), matrix = zeros({4, 8}), cube = zeros({2, 2, 2});
  CHECK(refusal([&] { linear(cube, matrix, {}, {}); }) == "linear: the input [2, 2, 2] has 3 dimensions, not 2");
  CHECK(refusal([&] { linear(matrix, row, {}, {}); }) == "linear: the weight [8] has 1 dimension, not 2");
  CHECK(refusal([&] { linear(matrix, none, {}, {}); }) == "linear: the weight is not there");
  CHECK(refusal([&] { gelu(none, Activation::gelu_erf); }) == "gelu: the input is not there");
  CHECK(refusal([&] { patchify(cube, 2, PatchOrder::channels_first, DType::fp32); }) ==
        "patchify: the batch of images [2, 2, 2] has 3 dimensions, not 4");
  CHECK(refusal([&] { pad_fields(cube, 4, 4, Behind::last_point); }) ==
        "pad_fields: the batch of fields [2, 2, 2] has 3 dimensions, not 4");
  CHECK(refusal([&] {
          pad_fields(zeros({1, 1, 2, 3}), 1, 3, Behind::last_point);
        }) == "pad_fields: [1, 1, 2, 3] cannot be lengthened to 1 rows and 3 columns");
  CHECK(refusal([&] {
          pad_fields(zeros({1, 1, 0, 3}), 2, 3, Behind::last_point);
        }) == "pad_fields: [1, 1, 0, 3] cannot be lengthened to 2 rows and 3 columns");
  CHECK(refusal([&] {
          crop_fields(zeros({1, 1, 2, 3}), 2, 4);
        }) == "crop_fields: [1, 1, 2, 3] has no first 2 rows and 4 columns");
  CHECK(refusal([&] { add_leading_channels(matrix, matrix); }) ==
        "add_leading_channels: the input [4, 8] has 2 dimensions, not 4");
  CHECK(refusal([&] { cross_entropy(row, labels(kHost)); }) ==
        "cross_entropy: the matrix of logits [8] has 1 dimension, not 2");
  CHECK_THAT(refusal([&] { attention(row, AttentionOptions{.batch = 1, .heads = 1}); }),
             ContainsSubstring("[8] has 1 dimension, not 2"));
}

// What was a division by zero, and ended the program.
TEST_CASE("operands: options that were not set, and empty tensors, are errors") {
  const Tensor matrix = zeros({4, 24});
  CHECK_THAT(refusal([&] { attention(matrix, {}); }), ContainsSubstring("do not divide into 0 samples of 0 heads"));
  CHECK_THAT(refusal([&] { attention(matrix, {.batch = 2}); }), ContainsSubstring("2 samples of 0 heads"));
  CHECK_THAT(refusal([&] { attention(matrix, {.heads = 2}); }), ContainsSubstring("0 samples of 2 heads"));
  CHECK_THAT(refusal([&] {
               layernorm(zeros({4, 0}), zeros({0}), zeros({0}), 1e-5, DType::fp32);
             }),
             ContainsSubstring("layernorm: the rows of [4, 0] are empty"));
  CHECK_THAT(refusal([&] {
               add_leading_channels(zeros({0, 1, 2, 2}), zeros({0, 1, 2, 2}));
             }),
             ContainsSubstring("holds no sample"));
  for (const float rate : {-0.5F, 1.0F, 2.0F, std::nanf("")}) {
    INFO(rate);
    CHECK_THAT(refusal([&] { dropout(matrix, rate, {}); }), ContainsSubstring("is none in [0, 1)"));
    CHECK_THAT(refusal([&] { drop_path(matrix, rate, {}, {}); }), ContainsSubstring("is none in [0, 1)"));
  }
  CHECK_THAT(refusal([&] { layernorm(matrix, zeros({24}, kHost, DType::bf16), zeros({24}), 1e-5, DType::fp32); }),
             ContainsSubstring("layernorm: weight and bias are bf16 and fp32, not fp32"));
}

TEST_CASE("operands: a convolution names both shapes, and what does not fit") {
  const Tensor x = zeros({2, 5, 4, 3}), weight = zeros({6, 3, 3, 3}), bias = zeros({6});
  const auto of = [&](const ConvOptions& options) { return refusal([&] { conv(x, weight, bias, options); }); };
  CHECK(of({}) == "accepted");
  CHECK(of({.stride = {1, 0}}) ==
        "conv: weight [6, 3, 3, 3] on input [2, 5, 4, 3], axis 1 has a stride of 0 and paddings of 0 and 0");
  CHECK(of({.stride = {1, 2, 1}}) == "conv: stride has 3 entries for 2 axes");
  CHECK(refusal([&] {
          conv(zeros({2, 5, 2, 3}), weight, bias, {});
        }) == "conv: axis 1 of input [2, 5, 2, 3] and weight [6, 3, 3, 3], padded by 0 and 0, gives no output");
  CHECK(refusal([&] {
          conv_transpose(x, zeros({3, 1, 1, 6}), bias, {.pad = {0, 2}});
        }) ==
        "conv_transpose: axis 1 of input [2, 5, 4, 3] and weight [3, 1, 1, 6], padded by 2 and 2, gives no output");
  CHECK(refusal([&] {
          conv(zeros({2, 5, 4, 4}), weight, bias, {});
        }) == "conv: input [2, 5, 4, 4] does not fit weight [6, 3, 3, 3]");
  CHECK(refusal([&] { conv_transpose(x, weight, bias, {}); }) ==
        "conv_transpose: input [2, 5, 4, 3] does not fit weight [6, 3, 3, 3]");
  CHECK(refusal([&] { conv(x, weight, zeros({3}), {}); }) == "conv: bias [3] of fp32 does not fit weight [6, 3, 3, 3]");
  CHECK(refusal([&] {
          conv(x, zeros({6, 3, 3, 3}, kHost, DType::bf16), bias, {});
        }) == "conv: input is fp32, weight is bf16");
  CHECK(refusal([&] {
          conv(zeros({5, 3}), weight, bias, {});
        }) == "conv: the input [5, 3] has 2 dimensions, not 3 to 5");
  CHECK(refusal([&] { conv(x, zeros({6, 3, 3}), bias, {}); }) == "conv: the weight [6, 3, 3] has 3 dimensions, not 4");
  CHECK(refusal([&] {
          concat_channels({x, zeros({2, 5, 5, 3})});
        }) == "concat_channels: [2, 5, 4, 3] of fp32 and [2, 5, 5, 3] of fp32 differ in more than their channels");
  CHECK(refusal([&] {
          mean_loss(x, zeros({2, 5, 4, 2}), {});
        }) == "mean_loss: prediction [2, 5, 4, 3] and target [2, 5, 4, 2] differ");
  CHECK(refusal([&] {
          error_sums(x, zeros({2, 4, 5, 3}), ErrorKind::squared, false);
        }) == "error_sums: prediction [2, 5, 4, 3] and target [2, 4, 5, 3] have other points");
  CHECK(refusal([&] {
          error_sums(x, zeros({2, 5, 3, 3}), ErrorKind::squared, false);
        }) == "error_sums: prediction [2, 5, 4, 3] and target [2, 5, 3, 3] have other points");
  CHECK(refusal([&] {
          mean_loss(x, zeros({2, 5, 4, 3}, kHost, DType::bf16), {});
        }) == "mean_loss: the target is bf16, not fp32");
  const Tensor volumes = zeros({2, 3, 4, 4, 4});
  CHECK(refusal([&] { turn(volumes, Tensor::empty({3}, DType::i32, kHost), -1, DType::fp32); }) ==
        "turn: 3 turns for 2 volumes");
  CHECK(refusal([&] {
          turn(zeros({2, 3, 4, 4, 4}, kHost, DType::bf16), {}, -1, DType::fp32);
        }) == "turn: the volumes are bf16, not fp32");
  CHECK(refusal([&] { turn(volumes, {}, 1, DType::fp32); }) == "turn: channels 1 to 3 are no vector of 3 channels");
  CHECK(refusal([&] { concat_channels({}); }) == "concat_channels: there are no tensors");
  CHECK(refusal([&] {
          to_channels_last(zeros({5, 3}), DType::fp32);
        }) == "to_channels_last: the input [5, 3] has 2 dimensions, not 3 to 5");
}

TEST_CASE("operands: limits of attention are whole numbers, one a query, that do not decrease within a sample") {
  const Tensor qkv = zeros({6, 24});
  const auto of = [&](const KeyIntervals& keys) {
    return refusal([&] { attention(qkv, {.batch = 2, .heads = 1, .keys = keys}); });
  };
  const auto limits = [](const std::vector<double>& values) {
    Tensor x = Tensor::empty({2, static_cast<std::int64_t>(values.size()) / 2}, DType::i32, kHost);
    x.set_values(values);
    return x;
  };
  const Tensor begins = limits({0, 0, 2, 0, 1, 1}), ends = limits({3, 3, 3, 1, 2, 3});  // a new sample begins anew
  CHECK(of({.begin = begins, .end = ends}) == "accepted");
  CHECK(of({.begin = limits({0, 0, 2, 0, 1, 0})}) ==
        "attention: the begin of the keys decreases from 1 to 0 at query 1 of sample 1");
  CHECK(of({.end = limits({3, 2, 3, 1, 2, 3})}) ==
        "attention: the end of the keys decreases from 3 to 2 at query 0 of sample 0");
  CHECK(of({.begin = limits({0, 0, 0, 0})}) ==
        "attention: the begin of the keys [2, 2] in i32 is no i32 for each of 6 queries");
  CHECK(of({.end = zeros({2, 3})}) == "attention: the end of the keys [2, 3] in fp32 is no i32 for each of 6 queries");
}

TEST_CASE("operands: what a cache, a table and a norm cannot take is named") {
  const Tensor qkv = zeros({2, 24}), cache = zeros({2, 5, 8});
  const auto positions = [](std::int64_t count) {
    Tensor x = Tensor::empty({count}, DType::i32, kHost);
    x.set_values(std::vector<double>(static_cast<std::size_t>(count)));
    return x;
  };
  const auto cached = [&](const Tensor& kept, const Tensor& values, const Tensor& at, std::int64_t heads) {
    return refusal([&] { attention_cached(qkv, kept, values, at, {.heads = heads}); });
  };
  CHECK(cached(cache, cache, positions(2), 1) == "accepted");
  const std::string misfit = "attention_cached: [2, 24] of 1 heads do not fit a cache ";
  CHECK(cached(zeros({2, 5, 16}), zeros({2, 5, 16}), positions(2), 1) == misfit + "[2, 5, 16]");
  CHECK(cached(zeros({3, 5, 8}), zeros({3, 5, 8}), positions(2), 1) == misfit + "[3, 5, 8]");
  CHECK(cached(cache, zeros({2, 4, 8}), positions(2), 1) == misfit + "[2, 5, 8]");
  CHECK(cached(cache, cache, positions(3), 1) == misfit + "[2, 5, 8]");
  CHECK(cached(cache, cache, zeros({2}), 1) == misfit + "[2, 5, 8]");
  CHECK(cached(cache, zeros({2, 5, 8}, kHost, DType::bf16), positions(2), 1) == misfit + "[2, 5, 8]");
  CHECK(cached(cache, cache, positions(2), 3) == "attention_cached: [2, 24] of 3 heads do not fit a cache [2, 5, 8]");

  // A table whose gradient is kept in other numbers than those that add it up.
  const Tensor table = make_leaf(zeros({3, 2}), zeros({3, 2}, kHost, DType::fp64));
  Tape tape;
  Tensor y;
  {
    const TapeScope recording(tape);
    y = embedding(labels(kHost), table, DType::fp32);
  }
  CHECK(refusal([&] { tape.backward(y); }) == "embedding: the gradient of fp32 cannot be added up in a table of fp64");

  // One of a norm's two parameters has a gradient already.
  const Tensor x = make_leaf(zeros({4, 8}), zeros({4, 8}));
  const Tensor weight = make_leaf(zeros({8}), zeros({8})), bias = make_leaf(zeros({8}), zeros({8}));
  weight.leaf()->touched = true;
  {
    const TapeScope recording(tape);
    y = layernorm(x, weight, bias, 1e-5, DType::fp32);
  }
  CHECK(refusal([&] { tape.backward(y); }) == "layernorm: weight and bias must be parameters together");
}

TEST_CASE("tensor: a dimension that it does not have is an error, and so is what is not there") {
  const Tensor matrix = zeros({6, 24}), scalar = zeros({});
  CHECK(matrix.size(0) == 6);
  CHECK(matrix.size(1) == 24);
  CHECK(matrix.size(-1) == 24);
  CHECK(matrix.size(-2) == 6);
  for (const int axis : {2, -3, 100})
    CHECK_THAT(refusal([&] { matrix.size(axis); }), ContainsSubstring("of shape [6, 24] has no dimension "));
  CHECK_THAT(refusal([&] { scalar.size(-1); }), ContainsSubstring("has no dimension -1"));
  CHECK_THAT(refusal([] { Tensor().device(); }), ContainsSubstring("has no device"));
  CHECK_THAT(refusal([] { Tensor().data(); }), ContainsSubstring("has no data"));
}

TEST_CASE("tensor: what would leave the graph in silence is refused, and detach() says that it is meant") {
  const Tensor leaf = make_leaf(zeros({4, 2}), zeros({4, 2}));
  CHECK(leaf.view({8}).tracked());
  CHECK_THAT(refusal([&] { leaf.slice(0, {2}); }), ContainsSubstring("a slice of a tracked tensor [4, 2]"));
  CHECK_THAT(refusal([&] { leaf.to(DType::bf16); }), ContainsSubstring("a copy in another dtype of a tracked tensor"));
  if (ISOBAR_HAS_EMULATOR)
    CHECK_THAT(refusal([&] { leaf.to(kOther); }), ContainsSubstring("a copy on another device of a tracked tensor"));
  CHECK(leaf.to(DType::fp32).tracked());  // itself
  CHECK(leaf.to(kHost).tracked());
  const Tensor apart = leaf.detach();
  CHECK_FALSE(apart.slice(0, {2}).tracked());
  CHECK(apart.slice(2, {2}).data() == leaf.data_as<float>() + 2);
  CHECK_FALSE(apart.to(DType::bf16).tracked());
}

}  // namespace
}  // namespace isobar
