// The choice of the next token, and text that does not depend on anything but its prompt and the seed.
#include "models/language/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>

#include "kernels/common/rng.h"
#include "models/gpt/recipe.h"
#include "models/key_value_cache.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// How often each token is drawn, of many draws.
std::vector<double> frequencies(const std::vector<double>& logits, const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::vector<double> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) counts[static_cast<std::size_t>(next_token(logits, options, 0, i))] += 1.0 / kDraws;
  return counts;
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 0.015);
}

std::unique_ptr<LanguageModel> tiny_model() {
  const auto network = std::make_shared<GptRecipe>(
      GptOptions{.embed_dim = 16, .depth = 1, .num_heads = 2, .positions = 5, .init_std = 0.3, .vocab_multiple = 8});
  return std::make_unique<LanguageModel>(network, ComputeOptions{}, TextInfo{.vocabulary = 7, .seq_length = 5},
                                         Device{});
}

}  // namespace

TEST_CASE("generate: tokens are drawn by their probabilities, of those that top_k and top_p keep") {
  const std::vector<double> logits{std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  check_near(frequencies(logits, {}), {0.1, 0.4, 0.2, 0.3});
  check_near(frequencies(logits, {.temperature = 0.5}), {0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
  check_near(frequencies(logits, {.top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7});
  check_near(frequencies(logits, {.top_k = 9}), {0.1, 0.4, 0.2, 0.3});
  check_near(frequencies({1, 2, 2, 2}, {.top_k = 2}), {0, 0.5, 0.5, 0});  // the first ones of a tie
  check_near(frequencies(logits, {.top_p = 0.69}), {0, 4.0 / 7, 0, 3.0 / 7});
  check_near(frequencies(logits, {.top_p = 0.71}), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  check_near(frequencies(logits, {.top_p = 0}), {0, 1, 0, 0});
  check_near(frequencies(logits, {.greedy = true}), {0, 1, 0, 0});
  CHECK(next_token(std::vector<double>{1, 2, 2}, {.greedy = true}, 0, 0) == 1);  // the first of a tie
}

TEST_CASE("generate: a token is drawn by 53 bits of its prompt and its position") {
  const std::vector<double> even(1 << 20);  // of as many tokens, in their order
  for (std::int64_t prompt = 0; prompt < 2; ++prompt)
    for (std::int64_t position = 0; position < 5; ++position) {
      const auto word = [&](std::int64_t i) {
        return random_bits(9, static_cast<std::uint64_t>(prompt), static_cast<std::uint64_t>(i));
      };
      // Two words each, the first one above the second one.
      CHECK(next_token(even, {.seed = 9}, prompt, position) == static_cast<std::int32_t>(word(2 * position) >> 12));
    }
}

TEST_CASE("generate: logits that are no numbers are refused") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const auto refusal = [](const std::vector<double>& logits) {
    return testing::error_of([&] { next_token(logits, {}, 0, 3); });
  };
  CHECK(refusal({1, nan}) == "a logit of token 3 is nan");
  CHECK(refusal({1, infinity}) == "a logit of token 3 is inf");
  CHECK(refusal({-infinity, -infinity}) == "no logit of token 3 is finite");
  CHECK(next_token(std::vector<double>{-infinity, 1}, {}, 0, 0) == 1);
}

namespace {

using Ids = std::vector<std::int32_t>;

// A text of the model, one token after another, each a whole pass over what the model sees.
Ids uncached(const LanguageModel& model, Ids text, std::int64_t number, const SamplingOptions& options) {
  const auto window = static_cast<std::size_t>(model.info().seq_length);
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const Ids seen(text.end() - static_cast<std::ptrdiff_t>(std::min(window, text.size())), text.end());
    Tensor ids = Tensor::empty({1, std::ssize(seen)}, DType::i32, Device{});
    std::ranges::copy(seen, ids.data_as<std::int32_t>());
    const Tensor logits = model.logits(ids);
    text.push_back(
        next_token(logits.slice((std::ssize(seen) - 1) * logits.size(1), {model.info().vocabulary}).to_vector(),
                   options, number, i));
  }
  return text;
}

std::vector<Ids> some_prompts(int count, int longest, std::int32_t vocabulary) {
  std::vector<Ids> prompts;
  for (int i = 0; i < count; ++i) {
    Ids prompt;
    for (int t = 0; t <= i * 7 % longest; ++t) prompt.push_back((i * 5 + t * 3) % vocabulary);
    prompts.push_back(prompt);
  }
  return prompts;
}

std::unique_ptr<LanguageModel> model_of(ArithmeticType dtype, AmpMode amp, Device device = {}) {
  const auto network = std::make_shared<GptRecipe>(GptOptions{.embed_dim = 32,
                                                              .depth = 3,
                                                              .num_heads = 4,
                                                              .positions = 24,
                                                              .embedding_dropout = 0.5,
                                                              .init_std = 0.5,
                                                              .vocab_multiple = 8});
  ComputeOptions compute;
  compute.dtype = dtype;
  compute.amp_mode = amp;
  return std::make_unique<LanguageModel>(network, compute, TextInfo{.vocabulary = 19, .seq_length = 20}, device);
}

}  // namespace

TEST_CASE("generate: over a cache the texts are those of whole passes, within the window and beyond it") {
  const auto model = model_of(ArithmeticType::fp64, AmpMode::none);
  const std::vector<Ids> prompts = some_prompts(11, 20, 19);  // more than are written at once, of 1 to 20 tokens
  for (const SamplingOptions& options :
       {SamplingOptions{.max_tokens = 30, .seed = 5}, SamplingOptions{.max_tokens = 12, .greedy = true},
        SamplingOptions{.max_tokens = 1, .seed = 2}}) {
    const std::vector<Ids> texts = continue_texts(*model, prompts, options, -1);
    REQUIRE(texts.size() == prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      INFO("prompt " << i);
      CHECK(texts[i] == uncached(*model, prompts[i], static_cast<std::int64_t>(i), options));
    }
  }
}

TEST_CASE("generate: logits over a cache are those of whole passes, in every precision") {
  for (const auto& [dtype, amp, bound] :
       {std::tuple(ArithmeticType::fp64, AmpMode::none, 1e-12), std::tuple(ArithmeticType::fp32, AmpMode::none, 1e-4),
        std::tuple(ArithmeticType::fp32, AmpMode::bf16, 0.5)}) {
    const auto model = model_of(dtype, amp);
    const Ids text = some_prompts(20, 20, 19)[17];
    REQUIRE(text.size() == 20);
    const auto ids = [&](std::int64_t first, std::int64_t count, const Shape& shape) {
      Tensor part = Tensor::empty(shape, DType::i32, Device{});
      std::copy_n(text.begin() + first, count, part.data_as<std::int32_t>());
      return part;
    };
    const std::vector<double> whole = model->logits(ids(0, 20, {1, 20})).to_vector();
    KeyValueCache cache(1, 20, Device{});
    cache.begin(0);
    const auto check_row = [&](const Tensor& logits, std::int64_t row) {
      REQUIRE(logits.size(0) == 1);
      const std::vector<double> found = logits.to_vector();
      for (std::size_t c = 0; c < 19; ++c)
        CHECK(std::abs(found[c] - whole[static_cast<std::size_t>(row) * found.size() + c]) < bound);
    };
    check_row(model->logits(ids(0, 7, {1, 7}), Pass::continuing(cache)), 6);
    for (std::int32_t t = 7; t < 20; ++t) {
      cache.begin_step({t});
      check_row(model->logits(ids(t, 1, {1, 1}), Pass::continuing(cache)), t);
    }
  }
}

TEST_CASE("generate: a text has the same tokens whatever is written beside it") {
  for (const AmpMode amp : {AmpMode::none, AmpMode::bf16}) {
    const auto model = model_of(ArithmeticType::fp32, amp);
    const std::vector<Ids> prompts = some_prompts(10, 9, 19);
    const SamplingOptions options{.max_tokens = 11, .seed = 3};
    const std::vector<Ids> together = continue_texts(*model, prompts, options, -1);
    for (const std::size_t count : {1, 2, 3, 7}) {
      const std::vector<Ids> fewer =
          continue_texts(*model, {prompts.begin(), prompts.begin() + std::ptrdiff_t(count)}, options, -1);
      for (std::size_t i = 0; i < count; ++i) CHECK(fewer[i] == together[i]);
    }
  }
}

TEST_CASE("generate: rows of logits have the same bits in a step of any number of texts") {
  const auto model = model_of(ArithmeticType::fp32, AmpMode::none);
  const std::vector<Ids> prompts = some_prompts(8, 9, 19);
  const auto step = [&](std::size_t first, std::size_t count) {
    KeyValueCache cache(static_cast<std::int64_t>(count), 20, Device{});
    std::vector<std::int32_t> positions;
    Tensor ids = Tensor::empty({static_cast<std::int64_t>(count), 1}, DType::i32, Device{});
    for (std::size_t i = 0; i < count; ++i) {
      const Ids& prompt = prompts[first + i];
      cache.begin(static_cast<std::int64_t>(i));
      Tensor all = Tensor::empty({1, std::ssize(prompt)}, DType::i32, Device{});
      std::ranges::copy(prompt, all.data_as<std::int32_t>());
      model->logits(all, Pass::continuing(cache));
      positions.push_back(static_cast<std::int32_t>(prompt.size()));
      ids.data_as<std::int32_t>()[i] = static_cast<std::int32_t>(first + i);
    }
    cache.begin_step(positions);
    return model->logits(ids, Pass::continuing(cache)).to_vector();
  };
  const std::vector<double> all = step(0, 8);
  const std::size_t columns = all.size() / 8;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::vector<double> one = step(i, 1);
    CHECK(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(i * columns)));
  }
}

TEST_CASE("generate: a seed writes one text, and never a padded token, and ends behind a document") {
  const std::unique_ptr<LanguageModel> model = tiny_model();
  const auto texts = [&](std::uint64_t seed, std::int32_t eod = -1) {
    return continue_texts(*model, {{1, 2}, {1, 2}}, {.max_tokens = 40, .seed = seed}, eod);
  };
  const std::vector<Ids> first = texts(1);
  CHECK(first[0].size() == 42);  // longer than what the model sees
  for (const std::int32_t id : first[0]) CHECK(id < 7);
  CHECK(texts(1) == first);
  CHECK(texts(2)[0] != first[0]);
  CHECK(first[1] != first[0]);
  const auto greedy = [&](std::uint64_t seed) {
    return continue_texts(*model, {{1, 2}, {3}, {1, 2}}, {.max_tokens = 8, .greedy = true, .seed = seed}, -1);
  };
  CHECK(greedy(0)[0] == greedy(9)[2]);
  const Ids ended = texts(1, first[0][4])[0];
  CHECK(ended.size() <= 5);
  CHECK(ended.back() == first[0][4]);
  CHECK(continue_texts(*model, {}, {}, -1).empty());
  CHECK(testing::error_of([&] { continue_texts(*model, {{1}, {}}, {}, -1); }) == "a prompt needs at least one token");
  CHECK(testing::error_of([&] {
          continue_texts(*model, {{1, 2, 3, 4, 5, 6}}, {}, -1);
        }) == "a prompt of 6 tokens is longer than the 5 that the model was trained on");
}

TEST_CASE("generate: what is no token of the tokenizer is never drawn, and changes no draw") {
  // The same weights: rows beyond the vocabulary are padding that counts in the one, and tokens in the other.
  const auto model = [](std::int64_t vocabulary, VocabPadding padding) {
    const auto network = std::make_shared<GptRecipe>(GptOptions{.embed_dim = 16,
                                                                .depth = 1,
                                                                .num_heads = 2,
                                                                .positions = 5,
                                                                .init_std = 0.3,
                                                                .vocab_multiple = 8,
                                                                .vocab_padding = padding});
    return std::make_unique<LanguageModel>(network, ComputeOptions{},
                                           TextInfo{.vocabulary = vocabulary, .seq_length = 5}, Device{});
  };
  const auto trained = model(5, VocabPadding::live), exported = model(8, VocabPadding::masked);
  REQUIRE(trained->parameters().weights().to_vector() == exported->parameters().weights().to_vector());
  const std::vector<Ids> prompts{{1, 2}, {3}, {4, 0, 1}};
  for (const SamplingOptions& options : {SamplingOptions{.max_tokens = 40, .seed = 3},
                                         SamplingOptions{.max_tokens = 40, .top_k = 4, .top_p = 0.9, .seed = 4},
                                         SamplingOptions{.max_tokens = 20, .greedy = true}}) {
    const std::vector<Ids> texts = continue_texts(*trained, prompts, options, -1, 5);
    CHECK(continue_texts(*exported, prompts, options, -1, 5) == texts);
    for (const Ids& text : texts)
      for (const std::int32_t id : text) CHECK(id < 5);
  }
  CHECK(testing::error_of([&] { continue_texts(*trained, prompts, {}, -1, 6); }) ==
        "the tokenizer has 6 tokens, and the model knows 5");
  CHECK(testing::error_of([&] { continue_texts(*trained, prompts, {}, -1, -1); }) ==
        "the tokenizer has -1 tokens, and the model knows 5");
  CHECK(continue_texts(*trained, prompts, {.max_tokens = 0}, -1) == prompts);
  for (const Ids& text : continue_texts(*trained, prompts, {.max_tokens = 40, .seed = 3}, -1, 2))
    for (std::size_t i = text.size() - 40; i < text.size(); ++i) CHECK(text[i] < 2);
}

TEST_CASE("key-value cache: what does not fit is refused") {
  KeyValueCache cache(2, 3, Device{});
  for (const auto& [texts, capacity] : {std::pair(0, 4), std::pair(4, 0)})
    CHECK(testing::error_of([&] { KeyValueCache(texts, capacity, Device{}); }) ==
          "a cache of " + std::to_string(texts) + " texts of " + std::to_string(capacity) + " tokens is none");
  CHECK(testing::error_of([&] { cache.begin(2); }) == "text 2 of 2 begins");
  CHECK(testing::error_of([&] { cache.begin(-1); }) == "text -1 of 2 begins");
  CHECK(testing::error_of([&] { cache.begin_step({1}); }) == "1 positions of 2 texts");
  CHECK(testing::error_of([&] { cache.begin_step({1, 3}); }) == "a token at position 3 has no room in a cache of 3");
  const auto model = tiny_model();
  cache.begin(0);
  Tensor ids = Tensor::empty({1, 4}, DType::i32, Device{});
  ids.set_values({1, 2, 3, 4});
  CHECK(testing::error_of([&] { model->logits(ids, Pass::continuing(cache)); }) ==
        "a text of 4 tokens has no room in a cache of 3");
  Tensor two = Tensor::empty({2, 2}, DType::i32, Device{});
  two.set_values({1, 2, 3, 4});
  KeyValueCache roomy(2, 8, Device{});
  roomy.begin(0);
  CHECK(testing::error_of([&] { model->logits(two, Pass::continuing(roomy)); }) ==
        "a text is begun alone, not with 1 others");
}

}  // namespace isobar
