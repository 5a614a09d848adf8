// Characters and bytes as tokens, and which tokenizer the options mean.
#include "data/text/tokenizer.h"

#include "data/text/byte_tokenizer.h"
#include "data/text/character_tokenizer.h"
#include "data/text/number_tokenizer.h"
#include "kernels/common/check.h"
#include "tests/data/text/small_tokenizer.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

TEST_CASE("byte tokenizer: an id for each byte, and two more") {
  const ByteTokenizer tokenizer;
  CHECK(tokenizer.encode("aé") == std::vector{97, 0xc3, 0xa9});
  CHECK(tokenizer.decode(std::vector{97, 0xc3, 0xa9, 256, 257}) == "aé<|eod|><|pad|>");
  CHECK(tokenizer.decode(std::vector{0xc3, 97}) ==
        "\xef\xbf\xbd"
        "a");
  CHECK(tokenizer.size() == 258);
  CHECK(tokenizer.specials() == Specials{.eod = 256, .pad = 257});
  CHECK(tokenizer.bytes_of(255) == 1);
  CHECK(fingerprint_text(tokenizer.fingerprint()) == "007ceb13f35f6e4c");  // it stands beside users' token files
  CHECK(tokenizer.bytes_of(256) == 0);
  CHECK_THROWS_WITH(tokenizer.encode("\xff"), "byte 1 is not UTF-8");
  CHECK_THROWS_WITH(tokenizer.bytes_of(258), "token 258 is outside the vocabulary of 258 tokens");
}

TEST_CASE("number tokenizer: numbers between white space, and one id more") {
  const NumberTokenizer tokenizer(1000);
  CHECK(tokenizer.encode(" 7\t999\n\n0 ") == std::vector{7, 999, 0});
  CHECK(tokenizer.encode(" \n").empty());
  CHECK(tokenizer.decode(std::vector{7, 999, 1000, 0}) == "7 999 <|eod|> 0");
  CHECK(tokenizer.size() == 1001);
  CHECK(tokenizer.specials() == Specials{.eod = 1000, .pad = -1});
  CHECK(tokenizer.bytes_of(999) == 4);
  CHECK(tokenizer.bytes_of(1000) == 0);
  CHECK(tokenizer.fingerprint() != NumberTokenizer(1001).fingerprint());
  CHECK_THROWS_WITH(tokenizer.encode("1 1000"), "\"1000\" at byte 3 is no number from 0 to 999");
  for (const char* word : {"-1", "1.5", "x", "+1", "99999999999999999999", "0x1", "<|eod|>"})
    CHECK_THROWS_WITH(tokenizer.encode(word), ContainsSubstring("is no number from 0 to 999"));
  CHECK_THROWS_WITH(tokenizer.encode("\xff"), "byte 1 is not UTF-8");
  CHECK_THROWS_WITH(tokenizer.decode(std::vector{1001}), "token 1001 is outside the vocabulary of 1001 tokens");
  CHECK_THROWS_WITH(NumberTokenizer(0), "tokenizer numbers: 0 is no number of tokens");
  CHECK_THROWS_WITH(NumberTokenizer((std::int64_t{1} << 31) - 1), ContainsSubstring("is no number of tokens"));
}

TEST_CASE("character tokenizer: a table of the text's characters, sorted") {
  std::set<char32_t> characters;
  add_characters("hé hello\n", characters);
  const CharacterTokenizer tokenizer(characters);
  CHECK(tokenizer.size() == 7);
  CHECK(tokenizer.encode("\n ehloé") == std::vector{0, 1, 2, 3, 4, 5, 6});
  CHECK(tokenizer.decode(std::vector{6, 3}) == "éh");
  CHECK(tokenizer.bytes_of(6) == 2);
  CHECK(tokenizer.specials() == Specials{});
  CHECK(fingerprint_text(tokenizer.fingerprint()) == "58308b9c4c71be86");
  CHECK_THROWS_WITH(tokenizer.encode("héx"), "character U+0078 at byte 4 is not in the table of characters");
  CHECK_THROWS_WITH(CharacterTokenizer(std::set<char32_t>()),
                    "the table of characters is empty: the text has no characters");

  const testing::TemporaryFolder folder;
  const std::string table = folder / "table.json";
  testing::write_text(table, tokenizer.table());
  const CharacterTokenizer again{std::filesystem::path(table)};
  CHECK(again.encode("hello") == tokenizer.encode("hello"));
  CHECK(again.fingerprint() == tokenizer.fingerprint());
  characters.insert(U'x');
  CHECK(CharacterTokenizer(characters).fingerprint() != tokenizer.fingerprint());
  CHECK_THROWS_WITH(again.encode("x"), "character U+0078 at byte 1 is not in " + table);
}

TEST_CASE("character tokenizer: what is no table is refused by name") {
  const testing::TemporaryFolder folder;
  const std::string table = folder / "table.json";
  const auto refused = [&](const std::string& contents, const std::string& why) {
    testing::write_text(table, contents);
    CHECK_THROWS_WITH(CharacterTokenizer(std::filesystem::path(table)), ContainsSubstring(table + why));
  };
  for (const char* other : {"[]", "{}", R"({"characters": 1})", R"({"characters": "a", "more": 1})"})
    refused(other, " is not a table of characters: expected {\"characters\": TEXT}");
  refused(R"({"characters": "aba"})", ": character U+0061 is there twice");
  refused(R"({"characters": ""})", ": the table has no characters");
  refused("{\"characters\": \"\xff\"}", ": is not valid JSON");
}

TEST_CASE("tokenizer options: a type, and the files that it needs") {
  const testing::SmallTokenizerFiles files;
  const auto open = [](const TokenizerOptions& options) { return open_tokenizer(options); };
  CHECK(open({.type = "GPT2BPETokenizer", .vocab_file = files.vocab(), .merge_file = files.merges()})->type() ==
        "gpt2_bpe");
  CHECK(open({.type = "bytes"})->type() == "bytes");
  CHECK(open({.type = "NullTokenizer", .numbers = 10})->size() == 11);
  CHECK_THROWS_WITH(open({.type = "numbers"}), "tokenizer numbers needs --vocab-size, how many numbers there are");
  CHECK_THROWS_WITH(open({.type = "bytes", .numbers = 1}), "--vocab-size means nothing to tokenizer bytes");
  CHECK_THROWS_WITH(open({.vocab_file = files.vocab()}), "tokenizer gpt2_bpe needs --merge-file");
  CHECK_THROWS_WITH(open({.merge_file = files.merges()}), "tokenizer gpt2_bpe needs --vocab-file");
  CHECK_THROWS_WITH(open({.type = "characters"}), "tokenizer characters needs --tokenizer-model");
  CHECK_THROWS_WITH(open({.type = "bytes", .model = "x"}), "--tokenizer-model means nothing to tokenizer bytes");
  CHECK_THROWS_WITH(open({.type = "gpt2_bpe", .vocab_file = "v", .merge_file = "m", .model = "x"}),
                    "--tokenizer-model means nothing to tokenizer gpt2_bpe");
  CHECK_THROWS_WITH(open({.type = "bytes", .merge_file = "x"}), "--merge-file means nothing to tokenizer bytes");
  CHECK_THROWS_WITH(
      open({.type = "SentencePieceTokenizer"}),
      ContainsSubstring("tokenizer type \"SentencePieceTokenizer\" does not exist here; expected gpt2_bpe"));
}

TEST_CASE("tokenizers: ids from 0 to the last one, and none beyond") {
  const auto refused = [](const Tokenizer& tokenizer) {
    const auto last = static_cast<std::int32_t>(tokenizer.size() - 1);
    CHECK_NOTHROW(tokenizer.decode(std::vector{0, last}));
    CHECK_NOTHROW(tokenizer.bytes_of(last));
    for (const std::int64_t id : {std::int64_t{-1}, tokenizer.size()}) {
      const std::string why = concat("token ", id, " is outside the vocabulary of ", tokenizer.size(), " tokens");
      CHECK_THROWS_WITH(tokenizer.decode(std::vector{static_cast<std::int32_t>(id)}), why);
      CHECK_THROWS_WITH(tokenizer.bytes_of(static_cast<std::int32_t>(id)), why);
    }
  };
  refused(ByteTokenizer());
  refused(NumberTokenizer(9));
  refused(CharacterTokenizer(std::set<char32_t>{U'a', U'\u00e9'}));
  CHECK(NumberTokenizer((std::int64_t{1} << 31) - 2).size() == (std::int64_t{1} << 31) - 1);
  CHECK(NumberTokenizer(1).encode("0 0") == std::vector{0, 0});
  CHECK(NumberTokenizer(12).bytes_of(9) == 2);  // with the space behind it
  CHECK(NumberTokenizer(12).bytes_of(10) == 3);
  CHECK(ByteTokenizer().bytes_of(0) == 1);
  CHECK(ByteTokenizer().bytes_of(257) == 0);
}

TEST_CASE("tokenizer options: what means nothing to a kind is told by its flag and the kind") {
  const auto refused = [](const TokenizerOptions& options, const std::string& why) {
    CHECK_THROWS_WITH(open_tokenizer(options), why);
  };
  refused({.type = "NullTokenizer", .vocab_file = "v", .numbers = 5},
          "--vocab-file means nothing to tokenizer numbers");
  refused({.type = "numbers", .model = "m", .numbers = 5}, "--tokenizer-model means nothing to tokenizer numbers");
  refused({.type = "numbers", .numbers = -1}, "tokenizer numbers needs --vocab-size, how many numbers there are");
  refused({.type = "characters", .merge_file = "m"}, "--merge-file means nothing to tokenizer characters");
  refused({.type = "characters", .numbers = 5}, "--vocab-size means nothing to tokenizer characters");
  refused({.type = "GPT2BPETokenizer", .numbers = 5}, "--vocab-size means nothing to tokenizer gpt2_bpe");
  refused({.type = "GPT2BPETokenizer", .merge_file = "m"}, "tokenizer gpt2_bpe needs --vocab-file");
  refused({.type = "byte"},
          "tokenizer type \"byte\" does not exist here; expected gpt2_bpe (or GPT2BPETokenizer), characters, bytes or "
          "numbers (or NullTokenizer)");
}
