// What stands beside a token file, and the types of its numbers.
#include "data/text/token_facts.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/text/token_type.h"
#include "engine/files/reader.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("token facts: every one is written and read again") {
  const testing::TemporaryFolder folder;
  const std::string prefix = folder / "p";
  CHECK_FALSE(read_token_facts(prefix));
  write_token_facts(prefix, {.tokenizer = "bytes",
                             .fingerprint = "12",
                             .vocabulary = 258,
                             .eod = 256,
                             .has_eod = true,
                             .documents = 3,
                             .tokens = 40,
                             .empty_documents = 2,
                             .text_bytes = 37});
  const TokenFacts facts = read_token_facts(prefix).value();
  CHECK(facts.tokenizer == "bytes");
  CHECK(facts.fingerprint == "12");
  CHECK(facts.vocabulary == 258);
  CHECK(facts.eod == 256);
  CHECK(facts.has_eod);
  CHECK(facts.documents == 3);
  CHECK(facts.tokens == 40);
  CHECK(facts.empty_documents == 2);
  CHECK(facts.text_bytes == 37);
  const std::string good = read_file(prefix + ".json");
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& why) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    testing::write_text(prefix + ".json", text);
    CHECK_THROWS_WITH(read_token_facts(prefix), prefix + ".json: " + why);
  };
  refused("258", "\"258\"", "vocabulary is \"258\"; expected a whole number");
  refused("258", "2.5", "vocabulary is 2.5; expected a whole number");
  refused("true", "1", "has_eod is 1; expected true or false");
  refused("\"bytes\"", "null", "tokenizer is null; expected a text");
  refused("\"text_bytes\"", "\"bytes_of_text\"", "text_bytes is missing");
  testing::write_text(prefix + ".json", "[]");
  CHECK_THROWS_WITH(read_token_facts(prefix), prefix + ".json does not hold the facts of a token file");
}

TEST_CASE("token facts: two tokenizers are refused with both, and an unknown one is nobody's enemy") {
  const TokenFacts bytes{.tokenizer = "bytes", .fingerprint = "1"},
      other{.tokenizer = "characters", .fingerprint = "2"};
  CHECK_THROWS_WITH(check_same_tokenizer("a", bytes, "b", other),
                    "a and b have tokens of different tokenizers: bytes 1 and characters 2");
  CHECK_NOTHROW(check_same_tokenizer("a", bytes, "b", bytes));
  CHECK_NOTHROW(check_same_tokenizer("a", bytes, "b", {}));
  CHECK_NOTHROW(check_same_tokenizer("a", {}, "b", other));
}

TEST_CASE("token types: Megatron's codes and widths, and the type that a vocabulary needs") {
  struct Known {
    int code;
    std::size_t bytes;
    const char* name;
  };
  for (const auto& [code, bytes, name] : {Known{1, 1, "uint8"}, Known{2, 1, "int8"}, Known{3, 2, "int16"},
                                          Known{4, 4, "int32"}, Known{5, 8, "int64"}, Known{8, 2, "uint16"}}) {
    const TokenType type = token_type(static_cast<std::uint8_t>(code), "f");
    CHECK(bytes_of(type) == bytes);
    CHECK(std::string(name_of(type)) == name);
    std::vector<std::byte> stored(1, std::byte{77});  // appended to what is there
    pack_tokens(type, std::vector<std::int32_t>{5, 0, 127}, stored);
    CHECK(stored.size() == 1 + 3 * bytes);
    std::vector<std::int64_t> back(3);
    unpack_tokens(type, std::span(stored).subspan(1), back);
    CHECK(back == std::vector<std::int64_t>{5, 0, 127});
  }
  for (const int code : {6, 7})
    CHECK_THROWS_WITH(token_type(static_cast<std::uint8_t>(code), "a.idx"),
                      "a.idx holds floats (type " + std::to_string(code) + "), which are no tokens");
  for (const int code : {0, 9, 255})
    CHECK_THROWS_WITH(token_type(static_cast<std::uint8_t>(code), "a.idx"),
                      "a.idx has numbers of type " + std::to_string(code) + ", which does not exist");
  CHECK(token_type_for(1) == TokenType::u16);
  CHECK(token_type_for(65499) == TokenType::u16);
  CHECK(token_type_for(65500) == TokenType::i32);
}
