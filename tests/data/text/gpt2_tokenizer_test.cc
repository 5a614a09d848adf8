// GPT-2's tokenizer: the ids of tiktoken on any text, and files that are no tokenizer are refused by token or line.
#include "data/text/gpt2_tokenizer.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "engine/files/checksum.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/data/text/small_tokenizer.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring, testing::SmallTokenizerFiles;

namespace {

// The rule itself, without any shortcut: lowest rank first, the leftmost place of it.
std::vector<std::int32_t> merged_naively(std::vector<std::int32_t> symbols, std::span<const BytePairs::Rule> rules) {
  while (true) {
    std::size_t best = rules.size(), place = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      for (std::size_t rank = 0; rank < best; ++rank)
        if (rules[rank].left == symbols[i] && rules[rank].right == symbols[i + 1]) {
          best = rank;
          place = i;
        }
    if (best == rules.size()) return symbols;
    symbols[place] = rules[best].result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

}  // namespace

TEST_CASE("gpt2 tokenizer: the ids of tiktoken, and back to the same text") {
  const SmallTokenizerFiles files;
  const Gpt2Tokenizer tokenizer = files.open();
  std::size_t cases = 0;
  for (const auto& example : SmallTokenizerFiles::golden()["cases"]) {
    const auto text = example["text"].get<std::string>();
    INFO("text: " << example["text"].dump(-1, ' ', true));
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    CHECK(ids == example["ids"].get<std::vector<std::int32_t>>());
    CHECK(tokenizer.decode(ids) == text);
    std::int64_t bytes = 0;
    for (const std::int32_t id : ids) bytes += tokenizer.bytes_of(id);
    CHECK(bytes == static_cast<std::int64_t>(text.size()));
    ++cases;
  }
  CHECK(cases > 300);
}

TEST_CASE("gpt2 tokenizer: special tokens are not made of text") {
  const SmallTokenizerFiles files;
  const Gpt2Tokenizer tokenizer = files.open();
  const std::int32_t eod = tokenizer.specials().eod;
  CHECK(eod == tokenizer.size() - 1);
  CHECK(tokenizer.special_names() == std::vector<std::string>{"<|endoftext|>"});
  const std::vector<std::int32_t> ids = tokenizer.encode("<|endoftext|>");
  CHECK(std::ranges::find(ids, eod) == ids.end());
  CHECK(tokenizer.decode(ids) == "<|endoftext|>");
  CHECK(tokenizer.decode(std::vector{eod}) == "<|endoftext|>");
  CHECK(tokenizer.bytes_of(eod) == 0);
}

TEST_CASE("gpt2 tokenizer: the end of a document may have any id, 0 as well") {
  auto vocab = SmallTokenizerFiles::golden()["vocab"];
  const auto zero = std::ranges::find(vocab, nlohmann::json(0));
  std::swap(vocab["<|endoftext|>"], *zero);
  const SmallTokenizerFiles first(vocab.dump(), SmallTokenizerFiles().merges_text());
  CHECK(first.open().specials().eod == 0);
  CHECK(first.open().decode(std::vector{0}) == "<|endoftext|>");
}

TEST_CASE("gpt2 tokenizer: bytes that are not UTF-8 are refused, and become U+FFFD on the way back") {
  const SmallTokenizerFiles files;
  const Gpt2Tokenizer tokenizer = files.open();
  CHECK_THROWS_WITH(tokenizer.encode("ab\xff"), "byte 3 is not UTF-8");
  const std::vector<std::int32_t> ids = tokenizer.encode("é");
  REQUIRE(ids.size() == 1);
  const std::int32_t lone = tokenizer.encode("\x7f")[0] + 1;  // any byte of the upper half
  CHECK(tokenizer.decode(std::vector{ids[0], lone, ids[0]}) == "é\xef\xbf\xbdé");
  CHECK_THROWS_WITH(tokenizer.decode(std::vector{-1}), ContainsSubstring("token -1 is outside the vocabulary of "));
  CHECK_THROWS_WITH(tokenizer.decode(std::vector{static_cast<std::int32_t>(tokenizer.size())}),
                    ContainsSubstring("is outside the vocabulary"));
}

TEST_CASE("gpt2 tokenizer: short and long pieces are merged by one rule, whatever the order of the rules") {
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return static_cast<std::int32_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    std::vector<BytePairs::Rule> rules;
    std::int32_t symbols = 3;
    while (rules.size() < 12) {  // one symbol may be the result of two rules
      const BytePairs::Rule rule{below(symbols), below(symbols), random() % 4 == 0 ? below(symbols) : symbols};
      const bool is_new = std::ranges::none_of(
          rules, [&](const BytePairs::Rule& r) { return r.left == rule.left && r.right == rule.right; });
      if (!is_new || rule.result < 3) continue;
      symbols = std::max(symbols, rule.result + 1);
      rules.push_back(rule);
    }
    std::ranges::shuffle(rules, random);
    const BytePairs pairs(rules);
    for (const std::size_t length : {0, 1, 2, 7, 63, 64, 65, 66, 150}) {
      std::vector<std::int32_t> text(length + 1, 99);
      for (std::size_t i = 1; i < text.size(); ++i) text[i] = below(3);
      std::vector<std::int32_t> expected = merged_naively({text.begin() + 1, text.end()}, rules);
      pairs.merge(text, 1);
      REQUIRE(text[0] == 99);
      REQUIRE(std::vector(text.begin() + 1, text.end()) == expected);
    }
  }
}

TEST_CASE("gpt2 tokenizer: two rules for one pair of symbols are refused") {
  const std::vector<BytePairs::Rule> rules{{1, 2, 5}, {2, 1, 6}, {1, 2, 7}};
  CHECK_THROWS_WITH(BytePairs(rules), "two rules join symbols 1 and 2");
  CHECK_NOTHROW(BytePairs(std::span(rules).first(2)));
}

TEST_CASE("gpt2 tokenizer: places that become one rule's at different times are joined from the left") {
  enum : std::int32_t { a, b, c, d, e, other };
  const std::vector<BytePairs::Rule> rules{{a, b, d}, {a, c, d}, {d, d, e}};
  std::vector<std::int32_t> text;
  for (int i = 0; i < 20; ++i) text.insert(text.end(), {a, c, a, b, a, b, other});
  const std::vector<std::int32_t> expected = merged_naively(text, rules);
  BytePairs(rules).merge(text, 0);
  CHECK(text == expected);
  CHECK(std::vector(text.begin(), text.begin() + 3) == std::vector<std::int32_t>{e, d, other});
}

TEST_CASE("gpt2 tokenizer: a token that its own bytes do not give is not made of them") {
  auto golden = SmallTokenizerFiles::golden();
  auto vocab = golden["vocab"];
  for (const char* token : {"ZX", "QZ", "QZX", "QQQ"}) vocab[token] = vocab.size();
  const SmallTokenizerFiles files(vocab.dump(), SmallTokenizerFiles().merges_text() + "Z X\nQ Z\nQZ X\n");
  const Gpt2Tokenizer tokenizer(files.vocab(), files.merges(), "QQQ");
  const auto id = [&](const char* token) { return vocab[token].get<std::int32_t>(); };
  CHECK(tokenizer.encode("QZX") == std::vector{id("Q"), id("ZX")});  // Z X has the lower rank
  CHECK(tokenizer.encode("QZ") == std::vector{id("QZ")});
  CHECK(tokenizer.encode("QQQ") == std::vector{id("Q"), id("Q"), id("Q")});  // a special token
  CHECK(tokenizer.specials().eod == id("QQQ"));
}

TEST_CASE("gpt2 tokenizer: a first line is a rule, be it of #, unless it tells a version") {
  auto vocab = SmallTokenizerFiles::golden()["vocab"];
  vocab["##"] = vocab.size();
  const std::string merges = SmallTokenizerFiles().merges_text();
  const SmallTokenizerFiles files(vocab.dump(), "# #\n" + merges.substr(merges.find('\n') + 1));
  CHECK(files.open().encode("##") == std::vector{vocab["##"].get<std::int32_t>()});
}

TEST_CASE("gpt2 tokenizer: a megabyte without white space takes no longer than its size") {
  const SmallTokenizerFiles files;
  const Gpt2Tokenizer tokenizer = files.open();
  std::string text(1 << 20, 'a');
  for (std::size_t i = 0; i < text.size() / 2; ++i) text[i] = static_cast<char>('a' + i * i % 23);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));  // O(n²) would take an hour
}

TEST_CASE("gpt2 tokenizer: several threads get the ids of one") {
  const SmallTokenizerFiles files;
  const Gpt2Tokenizer tokenizer = files.open();
  const auto all = [&] {
    std::vector<std::int32_t> ids;
    for (const auto& example : SmallTokenizerFiles::golden()["cases"])
      tokenizer.encode(example["text"].get<std::string>(), ids);
    return ids;
  };
  const std::vector<std::int32_t> expected = all();
  std::array<std::vector<std::int32_t>, 4> found;
  {
    std::vector<std::jthread> threads;
    for (auto& ids : found) threads.emplace_back([&] { ids = all(); });
  }
  for (const auto& ids : found) CHECK(ids == expected);
}

TEST_CASE("gpt2 tokenizer: the fingerprint is that of the tokens, not of the files' layout") {
  const SmallTokenizerFiles files;
  const std::uint64_t fingerprint = files.open().fingerprint();
  auto golden = SmallTokenizerFiles::golden();
  SmallTokenizerFiles same(golden["vocab"].dump(4), files.merges_text().substr(files.merges_text().find('\n') + 1));
  CHECK(same.open().fingerprint() == fingerprint);
  CHECK(fingerprint_text(fingerprint) == "3d95cb5b01eaf3d4");  // it stands beside users' token files
  std::string merges = files.merges_text();
  const std::size_t last = merges.rfind('\n', merges.size() - 2);
  SmallTokenizerFiles shorter(golden["vocab"].dump(), merges.substr(0, last + 1));
  CHECK(shorter.open().fingerprint() != fingerprint);
  std::swap(golden["vocab"]["!"], golden["vocab"]["?"]);
  CHECK(SmallTokenizerFiles(golden["vocab"].dump(), merges).open().fingerprint() != fingerprint);
}

TEST_CASE("gpt2 tokenizer: a vocabulary with gaps, doubles or other faults is refused by token") {
  const SmallTokenizerFiles files;
  const auto refused = [&](const nlohmann::json& vocab, const std::string& why) {
    SmallTokenizerFiles bad(vocab.dump(), files.merges_text());
    CHECK_THROWS_WITH(bad.open(), ContainsSubstring(bad.vocab() + why));
  };
  auto vocab = SmallTokenizerFiles::golden()["vocab"];
  const std::size_t n = vocab.size();
  const auto with = [&](const std::string& token, const nlohmann::json& id) {
    auto changed = vocab;
    changed[token] = id;
    return changed;
  };
  const auto without = [&](const std::string& token) {
    auto changed = vocab;
    for (auto& id : changed)  // no gap
      if (id > vocab[token]) id = id.get<int>() - 1;
    changed.erase(token);
    return changed;
  };
  refused(nlohmann::json::array(), " is not a vocabulary: expected {TOKEN: ID, ...}");
  refused(nlohmann::json::object(), " is not a vocabulary");
  refused(with("!", 1.5), ": token \"!\" has 1.5, which is no id");
  refused(with("!", "1"), ": token \"!\" has \"1\", which is no id");
  refused(with("!", -1), ": token \"!\" has id -1; ");
  refused(with("!", n), concat(": token \"!\" has id ", n, "; ", n, " tokens must have the ids 0 to ", n - 1));
  refused(with("!", vocab["A"]), concat(": tokens \"!\" and \"A\" both have id ", vocab["A"]));
  refused(with("", n), concat(": id ", n, " has a token without characters"));
  refused(without("A"), ": byte 65 has no token: \"A\" is missing");
  refused(without("<|endoftext|>"), ": the token that ends a document, \"<|endoftext|>\", is missing");
  SmallTokenizerFiles twice(R"({"a": 0, "a": 1})", files.merges_text());
  CHECK_THROWS_WITH(twice.open(), ContainsSubstring(twice.vocab() + ": key \"a\" is there twice"));
  CHECK_THROWS_WITH(Gpt2Tokenizer(files.vocab(), files.merges(), "a"),
                    "token \"a\" can be made of text (" + files.merges() + "), so it cannot end a document");
}

TEST_CASE("gpt2 tokenizer: merges that are no pair, lead nowhere or are there twice are refused by line") {
  const SmallTokenizerFiles files;
  const std::string vocab = SmallTokenizerFiles::golden()["vocab"].dump(), merges = files.merges_text();
  const auto lines = std::ranges::count(merges, '\n');
  const auto refused = [&](const std::string& text, std::int64_t line, const std::string& why) {
    SmallTokenizerFiles bad(vocab, text);
    CHECK_THROWS_WITH(bad.open(), ContainsSubstring(concat(bad.merges(), ", line ", line, ": ", why)));
  };
  for (const char* line : {"", "a", "a ", " a", "a b c", "a  b"})
    refused(merges + line + "\n", lines + 1, "expected two tokens with one space between them");
  refused(merges + "Z Ω\n", lines + 1, "\"\\u03a9\" is not a token of ");
  refused(merges + "Z Q\n", lines + 1, "the result \"ZQ\" is not a token of ");
  const std::size_t second = merges.find('\n') + 1, third = merges.find('\n', second) + 1;
  const std::string first_rule = merges.substr(second, third - second);
  refused(merges + first_rule, lines + 1, "\"");
  CHECK_THROWS_WITH(SmallTokenizerFiles(vocab, merges + first_rule).open(),
                    ContainsSubstring("are joined by a line above"));
  // Without its first rule, a token is a part before it is made.
  CHECK_THROWS_WITH(SmallTokenizerFiles(vocab, merges.substr(0, second) + merges.substr(third)).open(),
                    ContainsSubstring("is neither a byte nor made by a line above, so this line leads nowhere"));
  // A first line that is no header is a rule.
  CHECK(SmallTokenizerFiles(vocab, merges.substr(second)).open().fingerprint() == files.open().fingerprint());
}

TEST_CASE("gpt2 tokenizer: the real vocabulary on real texts") {
  const std::string folder = testing::source_path("../shared/data/text/");
  if (!std::filesystem::exists(folder)) ISOBAR_SKIP("../shared/data/text does not exist");
  const Gpt2Tokenizer tokenizer(folder + "gpt2_encoder.json", folder + "gpt2_vocab.bpe", "<|endoftext|>");
  CHECK(tokenizer.size() == 50257);
  CHECK(tokenizer.specials().eod == 50256);
  CHECK(tokenizer.encode("Hello world") == std::vector{15496, 995});
  const std::string text = read_file(folder + "wikitext2_valid.txt");
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  CHECK(ids.size() == 258659);
  CHECK(tokenizer.decode(ids) == text);
}
