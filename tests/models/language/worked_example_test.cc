// The numbers of docs/learn/9_a_language_model.md.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "apps/train/config.h"
#include "apps/train/config_file.h"
#include "data/text/byte_pairs.h"
#include "engine/ops.h"
#include "engine/tape.h"
#include "kernels/attention/attention.h"
#include "models/language/generate.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

const std::vector<double> kFourLogits{2, 1, 0, -1};

void check_near(const std::vector<double>& values, const std::vector<double>& expected, double margin) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("number " << i << ": " << values[i]);
    CHECK(std::abs(values[i] - expected[i]) < margin);
  }
}

// How often each of the four tokens is drawn.
std::vector<double> drawn(const SamplingOptions& options) {
  constexpr int kDraws = 40000;
  std::vector<double> counts(4, 0);
  for (int i = 0; i < kDraws; ++i) counts[static_cast<std::size_t>(next_token(kFourLogits, options, i, 0))] += 1;
  for (double& count : counts) count /= kDraws;
  return counts;
}

}  // namespace

TEST_CASE("the worked example of docs/learn/9_a_language_model.md: rules that make one token of a word") {
  enum : std::int32_t { blank, w, i, n, t, e, r, in, er, blank_w, ter, blank_win, blank_winter, inter };
  const std::vector<std::int32_t> letters{blank, w, i, n, t, e, r};
  const std::vector<BytePairs::Rule> rules{{i, n, in},
                                           {e, r, er},
                                           {blank, w, blank_w},
                                           {t, er, ter},
                                           {blank_w, in, blank_win},
                                           {blank_win, ter, blank_winter}};
  std::vector<std::int32_t> symbols = letters;
  BytePairs(rules).merge(symbols, 0);
  CHECK(symbols == std::vector<std::int32_t>{blank_winter});
  // Of the rules up to one of the page's lines.
  const std::vector<std::vector<std::int32_t>> lines{
      {blank, w, in, t, e, r}, {blank, w, in, t, er}, {blank_w, in, t, er}, {blank_w, in, ter}, {blank_win, ter}};
  for (std::size_t line = 0; line < lines.size(); ++line) {
    symbols = letters;
    BytePairs(std::span(rules).first(line + 1)).merge(symbols, 0);
    CHECK(symbols == lines[line]);
  }
  std::vector<BytePairs::Rule> others = rules;
  others.insert(others.begin() + 4, {in, ter, inter});  // the first exercise
  symbols = letters;
  BytePairs(others).merge(symbols, 0);
  CHECK(symbols == std::vector<std::int32_t>{blank_w, inter});
}

TEST_CASE("the worked example of docs/learn/9_a_language_model.md: probabilities, losses and their gradient") {
  Tensor logits = Tensor::empty({1, 4}, DType::fp64, Device{});
  logits.set_values(kFourLogits);
  const std::vector<double> losses{0.4402, 1.4402, 2.4402, 3.4402}, p{0.6439, 0.2369, 0.0871, 0.0321};
  for (std::int32_t target = 0; target < 4; ++target) {
    Tensor label = Tensor::empty({1}, DType::i32, Device{});
    label.set_values({static_cast<double>(target)});
    const Tensor leaf = make_leaf(logits, Tensor::zeros({1, 4}, DType::fp64, Device{}));
    Tape tape;
    const TapeScope on(tape);
    const Tensor loss = cross_entropy(leaf, label);
    tape.backward(loss);
    CHECK(std::abs(loss.item() - losses[static_cast<std::size_t>(target)]) < 5e-5);
    std::vector<double> expected = p;
    expected[static_cast<std::size_t>(target)] -= 1;
    check_near(leaf.leaf()->grad.to_vector(), expected, 5e-5);
  }
  const double more = std::exp(1) * 0.2369 / (1 + (std::exp(1) - 1) * 0.2369);
  CHECK(std::abs(more - 0.4576) < 1e-4);
  CHECK(std::abs(-std::log(more) - 0.7817) < 2e-4);
}

// Scores are given as queries, keys and values are rows of the unit matrix.
TEST_CASE("the worked example of docs/learn/9_a_language_model.md: the triangle, and documents") {
  const auto rows = [](const std::vector<std::vector<double>>& three) {
    Tensor x = Tensor::empty({3, 8}, DType::fp64, Device{});
    std::vector<double> values(24, 0);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t c = 0; c < 3; ++c) values[8 * i + c] = three[i][c];
    x.set_values(values);
    return x;
  };
  const Tensor unit = rows({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}});
  Tensor values = Tensor::empty({3, 8}, DType::fp64, Device{});
  values.copy_from(unit);
  const Tensor o =
      attention(rows({{1, 0, 2}, {0, 1, 1}, {2, 1, 0}}), unit, values, {.batch = 1, .heads = 1, .causal = true});
  const std::vector<double> all = o.to_vector();
  check_near({all[0], all[1], all[2]}, {1, 0, 0}, 5e-4);
  check_near({all[8], all[9], all[10]}, {0.269, 0.731, 0}, 5e-4);
  check_near({all[16], all[17], all[18]}, {0.665, 0.245, 0.090}, 5e-4);

  const std::vector<std::int32_t> begins{0, 0, 0, 3, 3};
  AttentionFwdArgs packed{.shape = {1, 1, 5, 5, 8}, .causal = true, .dropout = {}, .keys = {begins.data()}};
  CHECK(attention_pairs(packed) == 15);
  packed.keys.share = attention_share(packed);
  CHECK(std::abs(attention_pairs(packed) - 9) < 1e-12);
}

TEST_CASE("the worked example of docs/learn/9_a_language_model.md: what is drawn") {
  check_near(drawn({.temperature = 1}), {0.644, 0.237, 0.087, 0.032}, 8e-3);
  check_near(drawn({.temperature = 0.5}), {0.865, 0.117, 0.016, 0.002}, 8e-3);
  check_near(drawn({.temperature = 2}), {0.455, 0.276, 0.167, 0.102}, 8e-3);
  for (const SamplingOptions& options : {SamplingOptions{.top_k = 2}, SamplingOptions{.top_p = 0.8}}) {
    const std::vector<double> two = drawn(options);
    check_near(two, {0.731, 0.269, 0, 0}, 8e-3);
    CHECK(two[2] + two[3] == 0);
  }
  CHECK(drawn({.greedy = true})[0] == 1);
}

TEST_CASE("the worked example of docs/learn/9_a_language_model.md: the parameters of the config shakespeare") {
  ConfigEntries entries = load_config("shakespeare", {testing::source_path("configs")}).entries;
  for (const char* assignment : {"vocab_size=65", "positions=64"}) set_from_assignment(entries, assignment);
  RunConfig config = read_config(entries);
  config.check();
  const auto task = config.recipe->on_shapes()->make_task(config.compute, Device{DeviceKind::meta});
  CHECK(task->parameters().count() == 809856);
}

}  // namespace isobar
