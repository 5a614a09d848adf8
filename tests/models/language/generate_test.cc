// The choice of the next token, and text that does not depend on anything but its prompt and the seed.
#include "models/language/generate.h"

#include <cmath>
#include <limits>
#include <memory>

#include "models/gpt/recipe.h"
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
  check_near(frequencies(logits, {.top_p = 0.69}), {0, 4.0 / 7, 0, 3.0 / 7});
  check_near(frequencies(logits, {.top_p = 0.71}), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  check_near(frequencies(logits, {.top_p = 0}), {0, 1, 0, 0});
  check_near(frequencies(logits, {.greedy = true}), {0, 1, 0, 0});
  CHECK(next_token(std::vector<double>{1, 2, 2}, {.greedy = true}, 0, 0) == 1);  // the first of a tie
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

TEST_CASE("generate: a seed writes one text, whatever other prompts there are, and never a padded token") {
  const std::unique_ptr<LanguageModel> model = tiny_model();
  const auto text = [&](std::uint64_t seed, std::int64_t number) {
    return continue_text(*model, {1, 2}, number, {.max_tokens = 40, .seed = seed}, -1);
  };
  const std::vector<std::int32_t> first = text(1, 0);
  CHECK(first.size() == 42);  // longer than what the model sees
  for (const std::int32_t id : first) CHECK(id < 7);
  CHECK(text(1, 0) == first);
  CHECK(text(2, 0) != first);
  CHECK(text(1, 1) != first);
  const std::vector<std::int32_t> greedy = continue_text(*model, {1, 2}, 0, {.max_tokens = 8, .greedy = true}, -1);
  CHECK(greedy == continue_text(*model, {1, 2}, 5, {.max_tokens = 8, .greedy = true, .seed = 9}, -1));
  // It ends behind the end of a document.
  const std::vector<std::int32_t> ended = continue_text(*model, {1, 2}, 0, {.max_tokens = 40, .seed = 1}, first[4]);
  CHECK(ended.size() <= 5);
  CHECK(ended.back() == first[4]);
  CHECK(testing::error_of([&] { continue_text(*model, {}, 0, {}, -1); }) == "a prompt needs at least one token");
  CHECK(testing::error_of([&] {
          continue_text(*model, {1, 2, 3, 4, 5, 6}, 0, {}, -1);
        }) == "a prompt of 6 tokens is longer than the 5 that the model was trained on");
}

}  // namespace isobar
