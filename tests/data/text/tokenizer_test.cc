// Characters and bytes as tokens, and which tokenizer the options mean.
#include "data/text/tokenizer.h"

#include "data/text/byte_tokenizer.h"
#include "data/text/character_tokenizer.h"
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
  CHECK(tokenizer.bytes_of(256) == 0);
  CHECK_THROWS_WITH(tokenizer.encode("\xff"), "byte 1 is not UTF-8");
  CHECK_THROWS_WITH(tokenizer.bytes_of(258), "token 258 is outside the vocabulary of 258 tokens");
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
  CHECK_THROWS_WITH(tokenizer.encode("héx"), "character U+0078 at byte 4 is not in the table of characters");
  CHECK_THROWS_WITH(CharacterTokenizer(std::set<char32_t>()), ContainsSubstring("is empty"));

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
    refused(other, " is not a table of characters");
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
  CHECK_THROWS_WITH(open({.vocab_file = files.vocab()}), "tokenizer gpt2_bpe needs --merge-file");
  CHECK_THROWS_WITH(open({.merge_file = files.merges()}), "tokenizer gpt2_bpe needs --vocab-file");
  CHECK_THROWS_WITH(open({.type = "characters"}), "tokenizer characters needs --tokenizer-model");
  CHECK_THROWS_WITH(open({.type = "bytes", .merge_file = "x"}), "--merge-file means nothing to tokenizer bytes");
  CHECK_THROWS_WITH(
      open({.type = "SentencePieceTokenizer"}),
      ContainsSubstring("tokenizer type \"SentencePieceTokenizer\" does not exist here; expected gpt2_bpe"));
}
