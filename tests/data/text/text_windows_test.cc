// Windows of a text: which tokens a sample has, in training and for judging, and how a text is cut in two.
#include "data/text/text_windows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "data/batch.h"
#include "kernels/cross_entropy.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

std::shared_ptr<const TokenText> counted(std::int64_t tokens) {
  TokenText text{.name = "a text", .ids = std::vector<std::int32_t>(static_cast<std::size_t>(tokens))};
  std::iota(text.ids.begin(), text.ids.end(), 0);
  return std::make_shared<const TokenText>(std::move(text));
}

std::vector<std::int32_t> tokens_of(const TrainingWindows& set, const SampleKey& key, std::int64_t length) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length + 1));
  void* const to[] = {tokens.data()};
  set.read(key, to);
  return tokens;
}

}  // namespace

TEST_CASE("text windows: an epoch of training has windows of T + 1 tokens, each beginning where another ends") {
  constexpr std::int64_t kLength = 5;
  const TrainingWindows set(counted(48), kLength);
  CHECK(set.samples() == 8);  // (48 - 5) / 5
  CHECK(set.layout()[0].shape == Shape{kLength + 1});
  std::set<std::int32_t> offsets;
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
    const std::int32_t offset = tokens_of(set, {.sample = 0, .epoch = epoch, .seed = 3}, kLength)[0];
    offsets.insert(offset);
    for (std::int64_t sample = 0; sample < set.samples(); ++sample) {
      const SampleKey key{.sample = sample, .epoch = epoch, .seed = 3};
      const std::vector<std::int32_t> tokens = tokens_of(set, key, kLength);
      CHECK(tokens == tokens_of(set, key, kLength));
      for (std::size_t i = 0; i < tokens.size(); ++i)
        REQUIRE(tokens[i] == offset + sample * kLength + static_cast<std::int64_t>(i));
    }
  }
  CHECK(offsets == std::set<std::int32_t>{0, 1, 2, 3, 4});  // so that in time a token has every place in a window
  offsets.clear();
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    offsets.insert(tokens_of(set, {.sample = 0, .epoch = 0, .seed = seed}, kLength)[0]);
  CHECK(offsets.size() > 1);  // of every run its own
  CHECK(testing::error_of([&] { tokens_of(set, {.sample = 8}, kLength); }) == "a text: window 8 of 8 is asked for");
  CHECK(testing::error_of([&] { tokens_of(set, {.sample = -1}, kLength); }) == "a text: window -1 of 8 is asked for");
  std::vector<std::int32_t> some(kLength + 1);
  void* const two[] = {some.data(), some.data()};
  CHECK(testing::error_of([&] { set.read({.sample = 0}, two); }) ==
        "a text: a sample has 1 tensors, but 2 buffers are given");
  CHECK(testing::error_of([&] {
          WholeTextWindows(counted(9), kLength).read({.sample = 0}, std::span(two).first(1));
        }) == "a text: a sample has 2 tensors, but 1 buffers are given");
  CHECK(TrainingWindows(counted(14), 5).samples() == 1);
  CHECK(TrainingWindows(counted(15), 5).samples() == 2);
  CHECK(TrainingWindows(counted(10), 5).samples() == 1);
  CHECK(testing::error_of([] { TrainingWindows(counted(9), 5); }) ==
        "a text: a text of 9 tokens is too short to train on windows of 5; it needs twice as many");
}

TEST_CASE("text windows: for judging every token but the first is a target once") {
  for (const std::int64_t tokens : {2, 5, 6, 7, 11, 12, 48}) {
    constexpr std::int64_t kLength = 5;
    const WholeTextWindows set(counted(tokens), kLength);
    std::vector<std::int32_t> seen;
    for (std::int64_t sample = 0; sample < set.samples(); ++sample) {
      const Batch batch = read_batch(set, std::vector<std::int64_t>{sample});
      const std::vector<double> ids = tensor_of(batch, "tokens").to_vector();
      const std::vector<double> targets = tensor_of(batch, "target").to_vector();
      CHECK(std::ranges::count(targets, kIgnoredLabel) < kLength);  // no window of nothing
      for (std::size_t i = 0; i < targets.size(); ++i) {
        CHECK(ids[i] >= 0);
        if (targets[i] == kIgnoredLabel) continue;
        CHECK(targets[i] == ids[i + 1]);
        CHECK(targets[i] == ids[i] + 1);
        seen.push_back(static_cast<std::int32_t>(targets[i]));
      }
    }
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokens - 1));
    std::iota(all.begin(), all.end(), 1);
    CHECK(seen == all);
  }
  CHECK(WholeTextWindows(counted(12), 5, 2).samples() == 2);  // of three
  CHECK(WholeTextWindows(counted(12), 5, 4).samples() == 3);
  CHECK(testing::error_of([] { read_batch(WholeTextWindows(counted(12), 5, 2), std::vector<std::int64_t>{2}); }) ==
        "a text: window 2 of 2 is asked for");
  CHECK(testing::error_of([] { WholeTextWindows(counted(1), 5); }) ==
        "a text: a text of 1 tokens is too short: no token follows another");
}

TEST_CASE("text windows: a text is cut between characters, and the part before is rounded down") {
  const auto cut = [](std::string_view text, double fraction) {
    const auto [first, rest] = cut_text(text, fraction);
    return std::string(first) + "|" + std::string(rest);
  };
  CHECK(cut("0123456789", 0.1) == "012345678|9");
  CHECK(cut("0123456789a", 0.1) == "012345678|9a");
  CHECK(cut("äöüß", 0.5) == "äö|üß");
  CHECK(cut("abc", 0) == "abc|");
  CHECK(cut("abc", 1) == "|abc");
  CHECK(cut("", 0.5) == "|");
  CHECK(cut("abc", 0.5) == "a|bc");
  CHECK(cut("0123456789", 0.9) == "0|123456789");  // 1 - 0.9 is a little less than 0.1
}

}  // namespace isobar
