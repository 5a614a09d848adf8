// Samples of text: the index arrays of Megatron, their closed form beside its walk, splits, blends, masks, mock data.
#include "data/text/sample_index.h"

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "data/random_order.h"
#include "data/text/blend.h"
#include "data/text/mock_documents.h"
#include "data/text/text_data.h"
#include "data/text/token_samples.h"
#include "data/text/token_writer.h"
#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

using Lengths = std::vector<std::int32_t>;

SampleIndex index_of(const Lengths& lengths, std::int64_t seq_length, std::int64_t samples, std::uint32_t seed = 1234) {
  return SampleIndex({.name = "these",
                      .lengths = lengths,
                      .first = 0,
                      .last = std::ssize(lengths),
                      .seq_length = seq_length,
                      .samples = samples,
                      .seed = seed});
}

template <class Number>
std::vector<std::int64_t> numbers(std::span<const Number> span) {
  return {span.begin(), span.end()};
}

std::vector<SamplePlace> places(const SampleIndex& index) {
  std::vector<SamplePlace> all;
  for (std::int64_t i = 0; i <= index.samples(); ++i) all.push_back(index.place(i));
  return all;
}

// The walk over all documents that Megatron makes.
std::vector<SamplePlace> places_by_walking(const SampleIndex& index, const Lengths& lengths, std::int64_t seq_length) {
  std::vector<SamplePlace> all{{}};
  SamplePlace at;
  for (std::int64_t i = 0; i < index.samples(); ++i) {
    std::int64_t left = seq_length + 1;
    while (left != 0) {
      const std::int64_t length =
          lengths[static_cast<std::size_t>(index.documents()[static_cast<std::size_t>(at.position)])] - at.offset;
      left -= length;
      if (left <= 0) {
        at.offset += left + length - 1;
        left = 0;
      } else {
        at = {.position = at.position + 1, .offset = 0};
      }
    }
    all.push_back(at);
  }
  return all;
}

// Documents whose tokens tell where they stand: 100·document + place, and an end.
class CountedDocuments : public TokenDocuments {
 public:
  explicit CountedDocuments(Lengths lengths, std::int32_t eod = -1) : lengths_(std::move(lengths)), eod_(eod) {}
  std::string name() const override { return "counted"; }
  std::span<const std::int32_t> lengths() const override { return lengths_; }
  void read(std::int64_t document, std::int64_t first, std::span<std::int32_t> to) const override {
    const std::int32_t length = lengths_.at(static_cast<std::size_t>(document));
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto place = static_cast<std::int32_t>(first + static_cast<std::int64_t>(i));
      REQUIRE(place < length);
      to[i] = eod_ >= 0 && place == length - 1 ? eod_ : 100 * static_cast<std::int32_t>(document) + place;
    }
  }

 private:
  Lengths lengths_;
  std::int32_t eod_;
};

// The tensors of a sample by their names.
std::map<std::string, std::vector<std::int32_t>> sample_of(const Dataset& data, std::int64_t sample) {
  std::vector<std::vector<std::int32_t>> tensors;
  std::vector<void*> to;
  for (const TensorSpec& spec : data.layout()) {
    REQUIRE(spec.dtype == DType::i32);
    tensors.emplace_back(static_cast<std::size_t>(spec.shape[0]), -7);
  }
  for (auto& tensor : tensors) to.push_back(tensor.data());
  data.read({.sample = sample}, to);
  std::map<std::string, std::vector<std::int32_t>> named;
  for (std::size_t i = 0; i < tensors.size(); ++i) named[data.layout()[i].name] = tensors[i];
  return named;
}

const Lengths kSix{5, 3, 7, 2, 9, 4};

// A token file of documents of ten tokens each, their number.
std::string write_tens(const std::string& prefix, int documents, const std::string& fingerprint) {
  TokenWriter writer(prefix, TokenType::u16, ExistingFile::refused);
  for (int d = 0; d < documents; ++d) {
    writer.add_sequence(Lengths(10, d));
    writer.end_document();
  }
  writer.finish({.tokenizer = "bytes", .fingerprint = fingerprint});
  return prefix;
}

}  // namespace

TEST_CASE("numpy orders: RandomState.shuffle and default_rng().integers") {
  std::vector<std::int32_t> ten(10);
  std::iota(ten.begin(), ten.end(), 0);
  NumpyRandomState random(1234);
  random.shuffle(std::span(ten));
  CHECK(ten == Lengths{7, 2, 9, 1, 0, 8, 4, 5, 6, 3});
  std::vector<std::uint32_t> none, one{5};
  random.shuffle(std::span(none));
  random.shuffle(std::span(one));  // nothing is drawn
  CHECK(one[0] == 5);
  NumpyGenerator generator(0);
  Lengths drawn;
  for (int i = 0; i < 10; ++i) drawn.push_back(generator.integer(1, 4096));
  CHECK(drawn == Lengths{3484, 2609, 2094, 1105, 1261, 168, 309, 68, 718, 3331});
  CHECK(generator.integer(3, 4) == 3);
  // Of a range that does not divide 2^32 nearly evenly, a third of the draws are rejected.
  NumpyGenerator rejecting(7);
  drawn.clear();
  for (int i = 0; i < 8; ++i) drawn.push_back(rejecting.integer(std::numeric_limits<std::int32_t>::min(), 1 << 30));
  CHECK(drawn == Lengths{896268264, -133910210, 56414191, -284673271, 351174855, 537894257, -1422040512, -1968603917});
  CHECK_THROWS_WITH(generator.integer(3, 3), "there is no number from 3 to below 3");
}

TEST_CASE("sample index: Megatron's arrays for one epoch, two apart, two together") {
  const SampleIndex one = index_of(kSix, 4, 7);
  CHECK(one.epochs() == 1);
  CHECK(one.tokens_per_epoch() == 30);
  CHECK_FALSE(one.is_last_epoch_apart());
  CHECK(numbers(one.documents()) == std::vector<std::int64_t>{2, 1, 5, 0, 4, 3});
  CHECK(places(one) == std::vector<SamplePlace>{{0, 0}, {0, 4}, {1, 1}, {2, 2}, {3, 2}, {4, 1}, {4, 5}, {5, 0}});
  CHECK(numbers(one.shuffle()) == std::vector<std::int64_t>{5, 0, 3, 4, 2, 6, 1});

  const SampleIndex apart = index_of(kSix, 4, 9);
  CHECK(apart.epochs() == 2);
  CHECK(apart.is_last_epoch_apart());
  CHECK(numbers(apart.documents()) == std::vector<std::int64_t>{2, 1, 5, 0, 4, 3, 0, 4, 3, 2, 5, 1});
  CHECK(numbers(apart.shuffle()) == std::vector<std::int64_t>{1, 0, 3, 2, 5, 4, 6, 9, 10, 12, 8, 11, 13, 7});

  const SampleIndex together = index_of(kSix, 4, 12);
  CHECK(together.epochs() == 2);
  CHECK_FALSE(together.is_last_epoch_apart());
  CHECK(numbers(together.documents()) == std::vector<std::int64_t>{1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3});
  CHECK(numbers(together.shuffle()) == std::vector<std::int64_t>{7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 6, 10, 13, 12});
}

TEST_CASE("sample index: the last sample needs one token more than its inputs") {
  CHECK(index_of(kSix, 5, 5).epochs() == 1);  // 26 of 30 tokens
  CHECK(index_of(kSix, 5, 6).epochs() == 2);  // 31
}

TEST_CASE("sample index: its closed form gives the places of Megatron's walk, empty documents included") {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    Lengths lengths(1 + random() % 300);
    for (std::int32_t& length : lengths) length = random() % 3 == 0 ? 0 : static_cast<std::int32_t>(random() % 40);
    lengths[random() % lengths.size()] = 50;
    const auto seq_length = static_cast<std::int64_t>(1 + random() % 60);
    const SampleIndex index = index_of(lengths, seq_length, static_cast<std::int64_t>(1 + random() % 300), random());
    INFO("round " << round << ": " << lengths.size() << " documents, " << index.samples() << " samples");
    REQUIRE(places(index) == places_by_walking(index, lengths, seq_length));
  }
}

TEST_CASE("sample index: a million documents take no longer than their number") {
  Lengths lengths(1'000'000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int32_t>(i * 7919 % 1024);
  const auto begin = std::chrono::steady_clock::now();
  const SampleIndex index = index_of(lengths, 2048, 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));  // 0.1 s; O(n²) would take an hour
  CHECK(index.samples() == (index.tokens_per_epoch() - 1) / 2048);
  const SamplePlace last = index.place(index.samples());
  CHECK(last.position > 990'000);
}

TEST_CASE("sample index: sets that give no samples are refused with the numbers") {
  const auto with = [](SampleIndexOptions options) {
    options.name = "these";
    options.lengths = kSix;
    return SampleIndex(options);
  };
  CHECK_THROWS_WITH(with({.first = 2, .last = 2, .seq_length = 4}), "these: documents 2 to 2 of 6 are no documents");
  CHECK_THROWS_WITH(with({.first = 0, .last = 7, .seq_length = 4}), "these: documents 0 to 7 of 6 are no documents");
  CHECK_THROWS_WITH(with({.first = 0, .last = 6, .seq_length = 0}), "these: a sample of 0 tokens is asked for");
  CHECK_THROWS_WITH(with({.first = 0, .last = 6, .seq_length = 30}),
                    "these: 6 documents hold 30 tokens, fewer than a sample of 30 + 1");
  CHECK(with({.first = 0, .last = 6, .seq_length = 29}).samples() == 1);
  CHECK_THROWS_WITH(with({.first = 0, .last = 6, .seq_length = 4, .samples = -1}),
                    "these: -1 samples are out of reach");
  CHECK_THROWS_WITH(with({.first = 0, .last = 6, .seq_length = 1 << 20, .samples = 1 << 30}),
                    ContainsSubstring("these: 1073741824 samples of 1048576 tokens take "));
  const Lengths empty(3, 0);
  CHECK_THROWS_WITH(index_of(empty, 4, 1), "these: documents 0 to 3 hold no tokens");
}

TEST_CASE("split: both rules of rounding, and what is no split") {
  using Bounds = std::vector<std::int64_t>;
  const auto legacy = [](const char* split, std::int64_t n) { return split_documents(split, n, SplitRule::legacy); };
  const auto core = [](const char* split, std::int64_t n) { return split_documents(split, n, SplitRule::core); };
  CHECK(legacy("949,50,1", 12345) == Bounds{0, 11716, 12333, 12345});
  CHECK(core("949,50,1", 12345) == Bounds{0, 11715, 12333, 12345});
  CHECK(legacy("1,1,1", 1000) == Bounds{0, 334, 667, 1000});
  CHECK(core("1,1,1", 1000) == Bounds{0, 333, 667, 1000});
  CHECK(legacy("949,50,1", 777) == Bounds{0, 737, 776, 777});
  CHECK(legacy("1,1,1", 20) == Bounds{0, 6, 13, 20});
  CHECK(legacy("969,30,1", 25) == Bounds{0, 24, 25, 25});
  // A half is rounded to even, as Python does: 2.5 to 2 and 3.5 to 4.
  CHECK(core("1,1,0", 5) == Bounds{0, 2, 5, 5});
  CHECK(core("1,1,0", 7) == Bounds{0, 4, 7, 7});
  CHECK(legacy("1,1,0", 5) == Bounds{0, 3, 5, 5});  // 2, 4 and 4, moved by what is left over
  CHECK(legacy("1,1,0", 7) == Bounds{0, 3, 7, 7});
  for (const auto& rule : {SplitRule::legacy, SplitRule::core}) {
    CHECK(split_documents("949,50,1", 7222, rule) == Bounds{0, 6854, 7215, 7222});
    CHECK(split_documents("949/50/1", 7222, rule) == Bounds{0, 6854, 7215, 7222});
    CHECK(split_documents("1", 7, rule) == Bounds{0, 7, 7, 7});
    CHECK(split_documents("0,1", 7, rule) == Bounds{0, 0, 7, 7});
    CHECK(split_documents(" 0.5, 0.5,0", 4, rule) == Bounds{0, 2, 4, 4});
    CHECK(split_documents("969, 30, 1", 0, rule) == Bounds{0, 0, 0, 0});
    for (const char* bad : {"", ",", "1,", "1,2,3,4", "a", "1;2", "-1,2", "inf,1", "nan", "1,,2"}) {
      INFO("split: " << bad);
      CHECK_THROWS_WITH(split_documents(bad, 10, rule),
                        concat("split \"", bad, "\" is not a list of up to three shares, as in 949,50,1"));
    }
    CHECK_THROWS_WITH(split_documents("0,0,0", 10, rule), "split \"0,0,0\" gives nothing to any set");
  }
  CHECK(split_rule("core") == SplitRule::core);
  CHECK_THROWS_WITH(split_rule("new"), "rule \"new\" does not exist; expected legacy or core");
}

TEST_CASE("token samples: the tokens of the index's places, one more than the length") {
  const auto documents = std::make_shared<CountedDocuments>(kSix);
  const TokenSamples data(documents, {.first = 0, .last = 6, .seq_length = 4, .samples = 7});
  CHECK(data.samples() == 7);
  REQUIRE(data.layout().size() == 1);
  CHECK(data.layout()[0].shape == Shape{5});
  // Documents in the order 2 1 5 0 4 3; entry 0 is sample 5, which begins at token 1 of document 4.
  CHECK(sample_of(data, 0)["tokens"] == Lengths{401, 402, 403, 404, 405});
  CHECK(sample_of(data, 1)["tokens"] == Lengths{200, 201, 202, 203, 204});
  CHECK(sample_of(data, 6)["tokens"] == Lengths{204, 205, 206, 100, 101});
  CHECK(sample_of(data, 2)["tokens"] == Lengths{502, 503, 0, 1, 2});
  CHECK_THROWS_WITH(sample_of(data, 7), "counted: sample 7 of 7 is asked for");
  CHECK_THROWS_WITH(sample_of(data, -1), "counted: sample -1 of 7 is asked for");
  CHECK(TokenSamples(documents, {.first = 0, .last = 6, .seq_length = 4}).samples() == 7);
  CHECK(TokenSamples(documents, {.first = 0, .last = 6, .seq_length = 4, .samples = 3}).samples() == 3);
}

TEST_CASE("token samples: documents begin behind their ends in positions, masks and targets") {
  constexpr std::int32_t kEod = 9;
  const auto documents = std::make_shared<CountedDocuments>(Lengths{3, 1, 8}, kEod);
  const TokenSamplesOptions all{.first = 0,
                                .last = 3,
                                .seq_length = 11,
                                .samples = 1,
                                .seed = 3,
                                .reset_position_ids = true,
                                .reset_attention_mask = true,
                                .eod_mask_loss = true,
                                .eod = kEod};
  const TokenSamples data(documents, all);
  auto sample = sample_of(data, 0);
  const Lengths tokens = sample["tokens"];
  REQUIRE(tokens.size() == 12);
  REQUIRE(std::ranges::count(tokens, kEod) == 3);
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < 11; ++i) {
    INFO("place " << i);
    CHECK(sample["key_begin"][i] == begin);
    CHECK(sample["position"][i] == static_cast<std::int32_t>(i) - begin);
    CHECK(sample["target"][i] == (tokens[i] == kEod ? kIgnoredLabel : tokens[i + 1]));
    if (tokens[i] == kEod) begin = static_cast<std::int32_t>(i) + 1;
  }
  CHECK(begin > 0);
  CHECK(std::ranges::count(sample["target"], kEod) >= 1);  // the end of a document is a target
  const auto names = [&](TokenSamplesOptions options) {
    std::vector<std::string> found;
    for (const TensorSpec& spec : TokenSamples(documents, options).layout()) found.push_back(spec.name);
    return found;
  };
  TokenSamplesOptions some = all;
  some.reset_position_ids = some.eod_mask_loss = false;
  CHECK(names(some) == std::vector<std::string>{"tokens", "key_begin"});
  CHECK(sample_of(TokenSamples(documents, some), 0)["key_begin"] == sample["key_begin"]);
  some.eod = -1;
  some.reset_attention_mask = false;
  CHECK(names(some) == std::vector<std::string>{"tokens"});
  for (bool TokenSamplesOptions::*needs_ends :
       {&TokenSamplesOptions::reset_position_ids, &TokenSamplesOptions::reset_attention_mask,
        &TokenSamplesOptions::eod_mask_loss}) {
    TokenSamplesOptions one = some;
    one.*needs_ends = true;
    CHECK_THROWS_WITH(TokenSamples(documents, one),
                      "counted: reset_position_ids, reset_attention_mask and eod_mask_loss need a token that ends a "
                      "document");
  }
}

TEST_CASE("samples of tokens: the share of a causal sample's pairs that documents leave") {
  constexpr std::int32_t kEod = 99;
  // Every sample of 4 has two whole documents of 2: twice 1 + 2 of 1 + 2 + 3 + 4 pairs.
  const auto pairs_of = [&](const Lengths& lengths, std::int64_t length, bool resets) {
    const TokenSamplesOptions options{.last = std::ssize(lengths),
                                      .seq_length = length,
                                      .reset_attention_mask = resets,
                                      .eod_mask_loss = true,
                                      .eod = kEod};
    return share_of_pairs_seen(TokenSamples(std::make_shared<CountedDocuments>(lengths, kEod), options));
  };
  CHECK(pairs_of(Lengths(21, 2), 4, true) == 0.6);
  CHECK(pairs_of(Lengths(21, 2), 4, false) == 1);
  CHECK(pairs_of(Lengths(9, 1), 4, true) == 0.4);
  CHECK(pairs_of({41}, 4, true) == 1);
  // Of more samples than are read, evenly spaced ones.
  const Lengths many(4001, 2);
  const TokenSamples all(std::make_shared<CountedDocuments>(many, kEod),
                         {.last = 4001, .seq_length = 5, .reset_attention_mask = true, .eod = kEod});
  // Of 5 tokens, 2 + 2 + 1 or 1 + 2 + 2: 3 + 3 + 1 of 15 pairs.
  CHECK(share_of_pairs_seen(all, 7) == testing::Approx(7.0 / 15).epsilon(1e-12));
}

TEST_CASE("blend: the greedy rule, and each sample's number within its set") {
  const auto set = [](std::int32_t tag, std::int64_t samples) {
    Lengths lengths(static_cast<std::size_t>(tag) + 1, 0);
    lengths.back() = 5000;
    return std::make_unique<TokenSamples>(
        std::make_shared<CountedDocuments>(lengths),
        TokenSamplesOptions{.first = tag, .last = tag + 1, .seq_length = 1, .samples = samples});
  };
  std::vector<std::unique_ptr<Dataset>> parts;
  for (std::int32_t tag = 0; tag < 3; ++tag) parts.push_back(set(tag, tag == 1 ? 4990 : 2700));
  const std::vector<double> weights{.25, .5, .25};
  const BlendedSamples blend(std::move(parts), weights, 9970);
  std::vector<std::int64_t> counts(3), first;
  for (std::int64_t i = 0; i < blend.samples(); ++i) {
    std::int64_t best = 0;
    const auto behind = [&](std::int64_t d) {
      return weights[static_cast<std::size_t>(d)] * std::max<double>(static_cast<double>(i), 1) -
             static_cast<double>(counts[static_cast<std::size_t>(d)]);
    };
    for (std::int64_t d = 1; d < 3; ++d)
      if (behind(d) > behind(best)) best = d;
    const BlendedSamples::Place place = blend.place(i);
    REQUIRE(place.part == best);
    REQUIRE(place.sample == counts[static_cast<std::size_t>(best)]++);
    if (first.size() < 8) first.push_back(best);
  }
  CHECK(first == std::vector<std::int64_t>{1, 0, 2, 1, 0, 1, 2, 1});  // ties to the lowest
  auto one = set(1, 10);
  CHECK(sample_of(blend, 3) == sample_of(*one, 1));

  const auto too_small = [&] {
    std::vector<std::unique_ptr<Dataset>> few;
    few.push_back(set(0, 5));
    few.push_back(set(1, 4));
    return BlendedSamples(std::move(few), {.5, .5}, 10);
  };
  CHECK_THROWS_WITH(too_small(), "counted has 4 samples, but the blend of 10 samples takes 5 of it");
  CHECK(blend.name() == "counted, counted, counted");
  CHECK(blend.has_own_order());
  for (const std::int64_t sample : {std::int64_t{-1}, std::int64_t{9970}})
    CHECK_THROWS_WITH(blend.read({.sample = sample}, {}),
                      "counted, counted, counted: sample " + std::to_string(sample) + " of 9970 is asked for");
  const auto blended = [&](std::int64_t seq_length, const std::vector<double>& shares) {
    std::vector<std::unique_ptr<Dataset>> two;
    two.push_back(set(0, 5));
    two.push_back(std::make_unique<TokenSamples>(
        std::make_shared<CountedDocuments>(Lengths{99}),
        TokenSamplesOptions{.first = 0, .last = 1, .seq_length = seq_length, .samples = 5}));
    return BlendedSamples(std::move(two), shares, 4).samples();
  };
  CHECK(blended(1, {.5, .5}) == 4);
  CHECK_THROWS_WITH(blended(2, {.5, .5}), "counted and counted have samples of different tensors");
  CHECK_THROWS_WITH(blended(1, {1}), "2 sets have 1 weights");
}

TEST_CASE("blend: lists with and without weights") {
  CHECK(parse_blend({"a", "b"}).paths == std::vector<std::string>{"a", "b"});
  CHECK(parse_blend({"a", "b"}).weights.empty());
  const Blend weighted = parse_blend({"1", "a", "3", "b"});
  CHECK(weighted.paths == std::vector<std::string>{"a", "b"});
  CHECK(weighted.weights == std::vector<double>{.25, .75});
  CHECK_THROWS_WITH(parse_blend({}), "no data is named");
  CHECK_THROWS_WITH(parse_blend({"0", "a"}), "weight 0 of a is not above 0");
  CHECK_THROWS_WITH(parse_blend({"1", "a", "-2", "b"}), "weight -2 of b is not above 0");
  for (const auto& words : std::vector<std::vector<std::string>>{{"1", "a", "b"}, {"a", "1"}, {"1"}, {"1", "a", "2"}})
    CHECK_THROWS_WITH(parse_blend(words), ContainsSubstring("are neither paths alone nor a weight before each path"));
  CHECK(samples_of_part(1000, 1.0 / 3, false) == 335);
  CHECK(samples_of_part(1000, 1.0 / 3, true) == 336);
}

// For every number of samples: the order is that of its largest number, whole, and another one beyond it.
TEST_CASE("sample index: as many samples as keep the order") {
  const Lengths lengths{5, 3, 7, 2, 9, 4, 1, 6};  // 37 tokens
  const auto index_of = [&](std::int64_t samples, std::int64_t length) {
    return SampleIndex({.lengths = lengths, .last = std::ssize(lengths), .seq_length = length, .samples = samples});
  };
  const auto order_of = [](const SampleIndex& index, std::int64_t samples) {
    std::vector<SamplePlace> places;
    for (std::int64_t k = 0; k < samples; ++k)
      places.push_back(index.place(index.shuffle()[static_cast<std::size_t>(k)]));
    return places;
  };
  int apart = 0, raised = 0;
  for (const std::int64_t length : {1, 3, 4, 7, 20})
    for (std::int64_t samples = 1; samples <= 120; ++samples) {
      INFO(length << " tokens, " << samples << " samples");
      const SampleIndex index = index_of(samples, length);
      const std::int64_t most = index.most_samples();
      REQUIRE(most >= samples);
      const SampleIndex longest = index_of(most, length);
      CHECK(longest.most_samples() == most);
      CHECK(order_of(longest, samples) == order_of(index, samples));
      const SampleIndex beyond = index_of(most + 1, length);
      CHECK((beyond.epochs() != index.epochs() || beyond.is_last_epoch_apart() != index.is_last_epoch_apart()));
      apart += index.is_last_epoch_apart() ? 1 : 0;
      raised += most > samples ? 1 : 0;
    }
  CHECK(apart > 50);
  CHECK(raised > 200);
}

TEST_CASE("mock data: the lengths and tokens of Megatron's") {
  const MockDocuments mock(50256, 50257);
  CHECK(mock.lengths().size() == 100000);
  CHECK(std::accumulate(mock.lengths().begin(), mock.lengths().end(), std::int64_t{0}) == 204637097);
  CHECK(mock.lengths()[7] == 68);
  Lengths tokens(68), end(2);
  mock.read(7, 0, tokens);
  CHECK(tokens[0] == 1);
  CHECK(tokens[66] == 67);
  CHECK(tokens[67] == 50256);
  mock.read(7, 66, end);
  CHECK(end == Lengths{67, 50256});
  CHECK_THROWS_WITH(mock.read(7, 67, end), "mock data: document 7 has 68 tokens");
  CHECK_THROWS_WITH(MockDocuments(256, 258), "mock data has tokens up to 4094, but the vocabulary has only 258");
  CHECK_THROWS_WITH(MockDocuments(-1, 50257), ContainsSubstring("mock data needs a token that ends a document; -1"));
}

TEST_CASE("text data: the sets of a split, of paths of their own, of a blend, and made up") {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, int documents, const std::string& fingerprint) {
    return write_tens(folder / name, documents, fingerprint);
  };
  const std::string a = write("a", 100, "1"), b = write("b", 50, "1"), other = write("other", 5, "2");
  TextDataOptions options{
      .data_path = {a}, .split = "80,10,10", .seq_length = 9, .samples = {60, 8, 0}, .fingerprint = "1"};
  const auto sets = [&] { return open_text_data(options).sets; };
  CHECK(sets()[0]->samples() == 60);
  CHECK(sets()[1]->samples() == 8);
  CHECK(sets()[2] == nullptr);
  for (std::int64_t i = 0; i < 8; ++i)
    CHECK(std::ranges::all_of(Lengths(sample_of(*sets()[1], i)["tokens"]), [](auto t) { return t >= 80 && t < 90; }));
  options.split = "99,1,0";
  options.samples = {1, 1, 5};
  CHECK_THROWS_WITH(sets(),
                    a + ": test has no documents, but 5 samples are taken of it: of 100 documents, split 99,1,0 "
                        "gives 99 to train, 1 to valid and 0 to test");
  options.samples = {30, 0, 0};
  options.data_path = {a, b};
  options.split = "1,0,0";
  CHECK(sets()[0]->samples() == 30);
  options.samples = {111 + 55 + 1, 0, 0};
  CHECK_THROWS_WITH(sets(), ContainsSubstring("train: 167 samples are taken of a blend without weights of " + a + ", " +
                                              b + ", which has only 166 in one epoch; give weights"));
  options.data_path = {"3", a, "1", b};
  CHECK(sets()[0]->samples() == 167);  // more than one epoch
  // 126 samples of a, which has 111 an epoch, and 42 of the 55 of b, with the reserve of half a percent. b is the first
  // to run out: .25 * 218 * 1.005 = 54.8.
  CHECK(open_text_data(options).order == "1 epoch and one apart, 1 epoch");
  const std::int64_t most = open_text_data(options).most_samples;
  const std::uint64_t same = open_text_data(options).trained_on;
  CHECK(most == 218);
  options.samples[0] = most;
  CHECK(open_text_data(options).order == "1 epoch and one apart, 1 epoch");
  CHECK(open_text_data(options).trained_on == same);
  options.samples[0] = most + 1;
  CHECK(open_text_data(options).order != "1 epoch and one apart, 1 epoch");
  options.samples[0] = 167;
  options.data_path = {a, other};
  CHECK_THROWS_WITH(sets(), other + " was made by another tokenizer: its bytes 2, the run's 1; config key tokenizer " +
                                "and the files that it needs select the run's");
  options.data_path = {};
  CHECK_THROWS_WITH(sets(), "text needs one of: data_path, paths of each set, mock data; 0 are given");
  options.paths = {{{a}, {b}, {}}};
  options.samples = {5, 6, 0};
  CHECK(sets()[1]->samples() == 6);
  CHECK(sets()[1]->name() == b);
  options.samples = {5, 6, 1};
  CHECK_THROWS_WITH(sets(), "test has no data, but 1 samples are taken of it");
  options.samples = {kAllSamples, -2, 0};
  CHECK_THROWS_WITH(sets(), "-2 samples are asked for");
  options.samples = {kAllSamples, kAllSamples, 0};
  CHECK(sets()[0]->samples() == 111);
  CHECK(sets()[1]->samples() == 55);
  options.samples[2] = kAllSamples;
  CHECK_THROWS_WITH(sets(), "test has no data, but all samples are taken of it");
  options.paths = {};

  // A share without a whole sample is no test set where one may be lacking, and an error elsewhere.
  options.data_path = {a};
  options.split = "98,1,1";
  options.samples = {5, 1, 1};
  options.seq_length = 10;
  options.may_lack_test = true;
  const TextData lacking = open_text_data(options);
  CHECK(lacking.sets[2] == nullptr);
  CHECK(lacking.notes == std::vector<std::string>{"there is no test set: split 98,1,1 gives it no whole sample"});
  options.seq_length = 9;
  CHECK(sets()[2] != nullptr);
  options.data_path = {"1", a, "1", write("few", 50, "1")};  // one of them has no test documents
  options.samples = {5, 0, 1};
  CHECK(sets()[2] == nullptr);
  const std::string unknown = write("unknown", 20, "");
  options.paths = {{{unknown}, {a}, {}}};
  options.data_path = {};
  options.samples = {5, 5, 0};
  CHECK(open_text_data(options).notes ==
        std::vector<std::string>{unknown + " does not tell its tokenizer: it is taken for the run's"});
  options.paths = {};
  options.may_lack_test = false;
  options.is_mock = true;
  options.vocabulary = 50257;
  options.eod = 50256;
  options.samples = {10, 10, 10};
  options.seq_length = 1024;
  CHECK(sets()[2]->name() == "mock data");
  const std::uint64_t whole = open_text_data(options).trained_on;
  options.seq_length = 1025;
  CHECK(open_text_data(options).trained_on != whole);
  // From numpy.random: lengths of default_rng(0), documents 0 to 33,333 and then samples shuffled by RandomState(1234).
  options.vocabulary = 4096;
  options.eod = 4095;
  options.seq_length = 16;
  const TextData made_up = open_text_data(options);
  const auto tokens_of = [&](std::int64_t sample) { return Lengths(sample_of(*made_up.sets[0], sample)["tokens"]); };
  CHECK(tokens_of(0) ==
        Lengths{1361, 1362, 1363, 1364, 1365, 1366, 1367, 1368, 1369, 1370, 1371, 1372, 1373, 1374, 1375, 1376, 1377});
  CHECK(tokens_of(6) == Lengths{2239, 4095, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  options.data_path = {a};
  CHECK_THROWS_WITH(sets(), ContainsSubstring("2 are given"));
}

TEST_CASE("text data: all that decides the training samples decides their checksum, and nothing else does") {
  const testing::TemporaryFolder folder;
  constexpr std::int32_t kEod = 9;
  constexpr int kDocuments = 1000;  // of six tokens; 4096 tokens are looked at from either end
  const auto write = [&](const std::string& name, std::int32_t first, std::int32_t last) {
    TokenWriter writer(folder / name, TokenType::u16, ExistingFile::refused);
    for (int d = 0; d < kDocuments; ++d) {
      writer.add_sequence(Lengths{d == 0 ? first : 1, 2, 3, 4, d == kDocuments - 1 ? last : 5, kEod});
      writer.end_document();
    }
    writer.finish({});
    return (folder / name).string();
  };
  const std::string a = write("a", 1, 5), first = write("first", 8, 5), last = write("last", 1, 8);
  const TextDataOptions usual{.data_path = {a}, .split = "1,0,0", .seq_length = 4, .samples = {5, 0, 0}, .eod = kEod};
  const TextData made = open_text_data(usual);
  const auto changed = [&](const std::function<void(TextDataOptions&)>& change) {
    TextDataOptions options = usual;
    change(options);
    return open_text_data(options);
  };
  const std::vector<std::pair<std::string, std::function<void(TextDataOptions&)>>> others{
      {"seed", [](auto& o) { o.seed = 1; }},
      {"length", [](auto& o) { o.seq_length = 3; }},
      {"rule", [](auto& o) { o.rule = SplitRule::core; }},
      {"position", [](auto& o) { o.reset_position_ids = true; }},
      {"mask", [](auto& o) { o.reset_attention_mask = true; }},
      {"loss", [](auto& o) { o.eod_mask_loss = true; }},
      {"split", [](auto& o) { o.split = "9,1,0"; }},
      {"first token", [&](auto& o) { o.data_path = {first}; }},
      {"last token", [&](auto& o) { o.data_path = {last}; }},
      {"one weight",
       [&](auto& o) {
         o.data_path = {"1", a, "1", first};
       }},
      {"another weight",
       [&](auto& o) {
         o.data_path = {"2", a, "1", first};
       }},
  };
  std::map<std::uint64_t, std::string> seen{{made.trained_on, "as usual"}};
  for (const auto& [what, change] : others) {
    const TextData other = changed(change);
    const auto [before, is_new] = seen.emplace(other.trained_on, what);
    INFO(what << " and " << before->second);
    CHECK(is_new);
    CHECK(other.trained_on_counted != made.trained_on_counted);
  }
  const TextData copy = changed([&](auto& o) { o.data_path = {write("copy", 1, 5)}; });
  CHECK(copy.trained_on == made.trained_on);  // wherever the file lies
  CHECK(copy.trained_on_counted == made.trained_on_counted);
  const TextData fewer = changed([](auto& o) { o.samples[0] = 4; });
  CHECK(fewer.trained_on == made.trained_on);
  CHECK(fewer.trained_on_counted != made.trained_on_counted);
  CHECK(changed([](auto& o) { o.vocabulary = 20; }).trained_on == made.trained_on);
}

TEST_CASE("blend: more sets than a sample can tell apart are refused") {
  constexpr std::size_t kSets = 65536;
  CHECK_THROWS_WITH(BlendedSamples(std::vector<std::unique_ptr<Dataset>>(kSets), std::vector<double>(kSets), 1),
                    "65536 sets are too many to blend");
}

TEST_CASE("sample index: more epochs than can be shuffled are refused with the numbers") {
  const Lengths lengths{1, 0, 1};
  CHECK_THROWS_WITH(index_of(lengths, 1 << 20, 1 << 14),
                    "these: 16384 samples of 1048576 tokens take 8589934593 epochs of 3 documents, more than can be "
                    "shuffled");
}

TEST_CASE("sample index: the largest numbers that it takes, and those just beyond") {
  const auto with = [](SampleIndexOptions options) {
    options.name = "these";
    options.lengths = kSix;
    return SampleIndex(options);
  };
  constexpr std::int64_t kLength = 1 << 30, kSamples = (std::int64_t{1} << 32) - 2;
  CHECK_THROWS_WITH(with({.last = 6, .seq_length = kLength, .samples = 1}),
                    "these: a sample of 1073741824 tokens is asked for");
  CHECK_THROWS_WITH(with({.last = 6, .seq_length = kLength - 1}),
                    "these: 6 documents hold 30 tokens, fewer than a sample of 1073741823 + 1");
  CHECK_THROWS_WITH(with({.last = 6, .seq_length = 12, .samples = kSamples}),
                    "these: 4294967294 samples are out of reach");
  CHECK_THROWS_WITH(with({.last = 6, .seq_length = 12, .samples = kSamples - 1}),
                    "these: 4294967293 samples of 12 tokens take 1717986918 epochs of 6 documents, more than can be "
                    "shuffled");
  CHECK_THROWS_WITH(with({.first = -1, .last = 6, .seq_length = 4}), "these: documents -1 to 6 of 6 are no documents");
  CHECK_THROWS_WITH(with({.first = 5, .last = 3, .seq_length = 4}), "these: documents 5 to 3 of 6 are no documents");
  const Lengths huge{std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::max(), 1};
  CHECK_THROWS_WITH(index_of(huge, 1, 0), "these: 4294967294 samples are more than can be shuffled");
  CHECK_THROWS_WITH(parse_blend({"inf", "a"}), "weight inf of a is not above 0");
}

TEST_CASE("samples of tokens: of more samples than are asked for, those at even distances are looked at") {
  class Noted : public Dataset {
   public:
    explicit Noted(std::int64_t samples) : samples_(samples) {}
    std::string name() const override { return "noted"; }
    std::int64_t samples() const override { return samples_; }
    std::vector<TensorSpec> layout() const override {
      return {{"tokens", {3}, DType::i32}, {"key_begin", {2}, DType::i32}};
    }
    void read(const SampleKey& key, std::span<void* const> to) const override {
      seen.push_back(key.sample);
      auto* const begins = static_cast<std::int32_t*>(to[1]);
      begins[0] = 0;
      begins[1] = key.sample % 2 == 1 ? 1 : 0;  // of odd samples the second token sees itself alone
    }
    mutable std::vector<std::int64_t> seen;

   private:
    std::int64_t samples_;
  };
  const Noted ten(10), many(1000);
  CHECK(share_of_pairs_seen(ten, 4) == testing::Approx(10.0 / 12).epsilon(1e-12));  // 3 + 3 + 2 + 2 of 4 times 3
  CHECK(ten.seen == std::vector<std::int64_t>{0, 2, 5, 7});
  ten.seen.clear();
  CHECK(share_of_pairs_seen(ten, 20) == testing::Approx(25.0 / 30).epsilon(1e-12));
  CHECK(ten.seen == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  share_of_pairs_seen(many);
  CHECK(many.seen.size() == 256);
  CHECK(many.seen[255] == 996);
}

TEST_CASE("text data: epochs are named by their number, and an incomplete one apart") {
  const testing::TemporaryFolder folder;
  const std::string a = write_tens(folder / "a", 100, "1");  // of 111 samples of 9 tokens an epoch; 88 are 0.8 of it
  const auto order = [&](std::int64_t samples) {
    const TextData data =
        open_text_data({.data_path = {a}, .split = "1,0,0", .seq_length = 9, .samples = {samples, 0, 0}});
    return data.order + ", " + std::to_string(data.most_samples);
  };
  CHECK(order(111) == "1 epoch, 111");
  CHECK(order(112) == "1 epoch and one apart, 198");  // 111 + 87
  CHECK(order(198) == "1 epoch and one apart, 198");
  CHECK(order(199) == "2 epochs, 222");
  CHECK(order(223) == "2 epochs and one apart, 309");
  CHECK(order(310) == "3 epochs, 333");
  CHECK(order(kAllSamples) == "1 epoch, 111");
}

TEST_CASE("text data: the order, and how many samples have it, are those of the training set of a blend") {
  const testing::TemporaryFolder folder;
  const std::string a = write_tens(folder / "a", 100, "1"), b = write_tens(folder / "b", 50, "1");
  TextDataOptions options{.data_path = {a, b}, .split = "80,20,0", .seq_length = 9, .fingerprint = "1"};
  const auto opened = [&](std::int64_t train, std::int64_t valid) {
    options.samples = {train, valid, 0};
    return open_text_data(options);
  };
  // Of 80 and of 40 documents 88 and 44 samples, of 20 and of 10 documents 22 and 11.
  CHECK(opened(132, 0).most_samples == 132);
  CHECK(opened(30, 20).most_samples == 132);
  CHECK(opened(30, 20).order == "1 epoch, 1 epoch");
  CHECK(opened(132, 33).sets[0]->samples() == 132);
  CHECK(opened(132, 33).sets[1]->samples() == 33);
  CHECK(opened(kAllSamples, kAllSamples).sets[0]->samples() == 132);
  CHECK(opened(kAllSamples, kAllSamples).sets[1]->samples() == 33);
  CHECK_THROWS_WITH(opened(133, 0), "train: 133 samples are taken of a blend without weights of " + a + ", " + b +
                                        ", which has only 132 in one epoch; give weights");
  CHECK_THROWS_WITH(opened(132, 34), "valid: 34 samples are taken of a blend without weights of " + a + ", " + b +
                                         ", which has only 33 in one epoch; give weights");
  const TextData by_size = opened(30, 0);  // two thirds of a and a third of b
  std::vector<std::int64_t> parts;
  for (std::int64_t i = 0; i < 6; ++i)
    parts.push_back(dynamic_cast<const BlendedSamples&>(*by_size.sets[0]).place(i).part);
  CHECK(parts == std::vector<std::int64_t>{0, 1, 0, 0, 1, 0});
  options.data_path = {"3", a, "1", b};
  const TextData alone = opened(100, 0), beside = opened(100, 500);
  CHECK(beside.order == alone.order);
  CHECK(beside.most_samples == alone.most_samples);
  CHECK(beside.trained_on == alone.trained_on);
  CHECK(beside.trained_on_counted == alone.trained_on_counted);
  // Samples of a set are those of its own documents, and another seed has another order of them.
  options.data_path = {a};
  const auto tokens_of_valid = [&](std::uint32_t seed) {
    options.seed = seed;
    const TextData data = opened(1, kAllSamples);
    std::vector<Lengths> tokens;
    for (std::int64_t i = 0; i < data.sets[1]->samples(); ++i) tokens.push_back(sample_of(*data.sets[1], i)["tokens"]);
    return tokens;
  };
  CHECK(tokens_of_valid(1234).size() == 22);
  CHECK(tokens_of_valid(1234) != tokens_of_valid(1));
}

TEST_CASE("text data: a file that is named twice is opened once, whichever of its names") {
  const testing::TemporaryFolder folder;
  const std::string unknown = write_tens(folder / "unknown", 20, "");
  const TextData data = open_text_data({.data_path = {unknown, unknown + ".bin", unknown + ".idx"},
                                        .split = "1,0,0",
                                        .seq_length = 9,
                                        .samples = {kAllSamples, 0, 0},
                                        .fingerprint = "1"});
  CHECK(data.notes == std::vector<std::string>{unknown + " does not tell its tokenizer: it is taken for the run's"});
  CHECK(data.sets[0]->samples() == 66);
  CHECK(data.sets[0]->name() == unknown + ", " + unknown + ", " + unknown);
}

TEST_CASE("text data: of a file 4,096 tokens from either end decide its checksum, and no others") {
  const testing::TemporaryFolder folder;
  constexpr int kDocuments = 2000;  // of six tokens: the 4,096th is the fourth of document 682
  const auto checksum = [&](int changed, std::size_t place) {
    TokenWriter writer(folder / "f", TokenType::u16, ExistingFile::replaced);
    for (int d = 0; d < kDocuments; ++d) {
      Lengths tokens{1, 2, 3, 4, 5, 9};
      if (d == changed) tokens[place] = 7;
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.finish({});
    return open_text_data({.data_path = {(folder / "f").string()},
                           .split = "1,0,0",
                           .seq_length = 4,
                           .samples = {5, 0, 0},
                           .eod = 9})
        .trained_on;
  };
  const std::uint64_t usual = checksum(-1, 0);
  CHECK(checksum(682, 3) != usual);
  CHECK(checksum(682, 4) == usual);
  CHECK(checksum(1000, 0) == usual);
  CHECK(checksum(1999 - 682, 3) != usual);
  CHECK(checksum(1999 - 682, 4) == usual);
}

TEST_CASE("mock data: the smallest vocabulary, and what is asked for beyond a document") {
  CHECK(MockDocuments(4094, 4095).lengths().size() == 100000);
  CHECK_THROWS_WITH(MockDocuments(0, 4094), "mock data has tokens up to 4094, but the vocabulary has only 4094");
  CHECK_THROWS_WITH(MockDocuments(4095, 4095), "mock data needs a token that ends a document; 4095 is none of 4095");
  const MockDocuments mock(0, 4095);
  Lengths two(2);
  CHECK_THROWS_WITH(mock.read(7, -1, two), "mock data: document 7 has 68 tokens");
  mock.read(7, 66, two);
  CHECK(two == Lengths{67, 0});
}
