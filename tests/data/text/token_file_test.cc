// Megatron's token files: written byte for byte, read with every type, and refused with one sentence where damaged.
#include "data/text/token_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "data/text/token_tools.h"
#include "data/text/token_writer.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

// Numbers as a file stores them.
template <class T, class... Numbers>
std::string stored(const Numbers&... numbers) {
  std::string bytes;
  const auto add = [&](T number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); };
  (add(static_cast<T>(numbers)), ...);
  return bytes;
}

std::string header(int type, std::uint64_t sequences, std::uint64_t begins, std::uint64_t version = 1) {
  return std::string("MMIDIDX\0\0", 9) + stored<std::uint64_t>(version) + static_cast<char>(type) +
         stored<std::uint64_t>(sequences, begins);
}

// Two documents of 3 and 2 tokens.
const std::string kIndex =
    header(8, 2, 3) + stored<std::int32_t>(3, 2) + stored<std::int64_t>(0, 6) + stored<std::int64_t>(0, 1, 2);
const std::string kTokens = stored<std::uint16_t>(7, 8, 65535, 1, 0);

class Prefix {
 public:
  std::string path() const { return folder_ / "p"; }
  void write(const std::string& index, const std::string& tokens) const {
    testing::write_text(path() + ".idx", index);
    testing::write_text(path() + ".bin", tokens);
  }
  const testing::TemporaryFolder& folder() const { return folder_; }

 private:
  testing::TemporaryFolder folder_;
};

std::vector<std::int32_t> sequence(const TokenFile& file, std::int64_t number) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.lengths()[static_cast<std::size_t>(number)]));
  file.read(number, 0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("token file: the bytes of Megatron's writer") {
  const Prefix prefix;
  TokenWriter writer(prefix.path(), TokenType::u16, ExistingFile::refused);
  writer.add_sequence(std::vector{7, 8, 65535});
  writer.end_document();
  writer.add_sequence(std::vector{1, 0});
  writer.end_document();
  CHECK_FALSE(std::filesystem::exists(prefix.path() + ".idx"));
  writer.finish({});
  CHECK(kIndex.size() == 82);
  CHECK(read_file(prefix.path() + ".idx") == kIndex);
  CHECK(read_file(prefix.path() + ".bin") == kTokens);
  CHECK(std::distance(std::filesystem::directory_iterator(prefix.folder().path()), {}) == 3);  // and the facts
  CHECK_THROWS_WITH(TokenWriter(prefix.path(), TokenType::u16, ExistingFile::refused),
                    prefix.path() + ".idx exists; --overwrite replaces it");
}

TEST_CASE("token file: every type of integers is read, and any part of a sequence") {
  const Prefix prefix;
  const auto check = [&](int type, const std::string& tokens, std::int64_t size, std::int32_t large) {
    prefix.write(header(type, 3, 3) + stored<std::int32_t>(2, 0, 3) + stored<std::int64_t>(0, 2 * size, 2 * size) +
                     stored<std::int64_t>(0, 2, 3),
                 tokens);
    const TokenFile file(prefix.path() + (type % 2 == 0 ? ".idx" : ""));
    INFO("type " << name_of(file.type()));
    CHECK(file.sequences() == 3);
    CHECK(file.documents() == 2);
    CHECK(file.tokens() == 5);
    CHECK(file.document_begin(1) == 2);
    CHECK(sequence(file, 0) == std::vector{1, 2});
    CHECK(sequence(file, 1).empty());
    CHECK(sequence(file, 2) == std::vector{3, large, 5});
    std::vector<std::int32_t> one(1);
    file.read(2, 1, one);
    CHECK(one[0] == large);
    CHECK_THROWS_WITH(file.read(2, 3, one),
                      ContainsSubstring("tokens 3 to 4 are asked for of sequence 2, which has 3"));
    CHECK_THROWS_WITH(file.read(3, 0, one), ContainsSubstring("sequence 3 of 3 is asked for"));
    CHECK_THROWS_WITH(TokenFile(prefix.path(), large).read(2, 1, one),
                      concat(prefix.path(), ".bin: token ", large, " is outside the vocabulary of ", large,
                             " (sequence 2, place 1)"));
  };
  check(1, stored<std::uint8_t>(1, 2, 3, 255, 5), 1, 255);
  check(2, stored<std::int8_t>(1, 2, 3, 127, 5), 1, 127);
  check(3, stored<std::int16_t>(1, 2, 3, 32767, 5), 2, 32767);
  check(4, stored<std::int32_t>(1, 2, 3, 2147483646, 5), 4, 2147483646);
  check(5, stored<std::int64_t>(1, 2, 3, 2147483646, 5), 8, 2147483646);
  check(8, stored<std::uint16_t>(1, 2, 3, 65535, 5), 2, 65535);
}

TEST_CASE("token file: negative and too large tokens are refused with their place") {
  const Prefix prefix;
  const auto index = [](int type, std::int64_t) {
    return header(type, 1, 2) + stored<std::int32_t>(2) + stored<std::int64_t>(0) + stored<std::int64_t>(0, 1);
  };
  prefix.write(index(4, 4), stored<std::int32_t>(5, -3));
  CHECK_THROWS_WITH(sequence(TokenFile(prefix.path()), 0), ContainsSubstring(".bin: token -3 is outside"));
  prefix.write(index(5, 8), stored<std::int64_t>(std::int64_t{1} << 40, 1));
  CHECK_THROWS_WITH(
      sequence(TokenFile(prefix.path()), 0),
      ContainsSubstring("token 1099511627776 is outside the vocabulary of 2147483647 (sequence 0, place 0)"));
}

TEST_CASE("token file: long sequences come in pieces, also with gaps between them") {
  const Prefix prefix;
  std::string tokens;
  std::vector<std::int32_t> numbers;
  for (int i = 0; i < 5000; ++i) numbers.push_back(i * 37 % 65000);
  for (const std::int32_t number : numbers) tokens += stored<std::uint16_t>(number);
  prefix.write(
      header(8, 2, 3) + stored<std::int32_t>(1, 5000) + stored<std::int64_t>(2, 10) + stored<std::int64_t>(0, 1, 2),
      std::string("..\1\0......", 10) + tokens);
  const TokenFile file(prefix.path());
  CHECK_FALSE(file.is_contiguous());
  CHECK(sequence(file, 0) == std::vector{1});
  CHECK(sequence(file, 1) == numbers);
  std::vector<std::int32_t> part(3500);
  file.read(1, 1000, part);
  CHECK(part == std::vector(numbers.begin() + 1000, numbers.begin() + 4500));
  const std::int32_t largest = *std::max_element(numbers.begin() + 1000, numbers.begin() + 4500);
  const auto place = std::find(numbers.begin() + 1000, numbers.end(), largest) - numbers.begin();
  CHECK_THROWS_WITH(TokenFile(prefix.path(), largest).read(1, 1000, part),
                    concat(prefix.path(), ".bin: token ", largest, " is outside the vocabulary of ", largest,
                           " (sequence 1, place ", place, ")"));
}

TEST_CASE("token file: damaged files are refused with one sentence each") {
  const Prefix prefix;
  const std::string idx = prefix.path() + ".idx", bin = prefix.path() + ".bin";
  CHECK_THROWS_WITH(TokenFile(prefix.path()), ContainsSubstring(idx + ": cannot be opened"));
  const auto refused = [&](const std::string& index, const std::string& tokens, const std::string& why) {
    prefix.write(index, tokens);
    CHECK_THROWS_WITH(TokenFile(prefix.path()), ContainsSubstring(why));
  };
  const auto index = [](const std::string& lengths, const std::string& places, const std::string& begins) {
    return header(8, lengths.size() / 4, begins.size() / 8) + lengths + places + begins;
  };
  const std::string lengths = stored<std::int32_t>(3, 2), places = stored<std::int64_t>(0, 6),
                    begins = stored<std::int64_t>(0, 1, 2);
  prefix.write(index(lengths, places, begins), kTokens);
  CHECK_NOTHROW(TokenFile(prefix.path()));

  refused("", kTokens, idx + " is not the index of a token file: it does not begin with MMIDIDX");
  refused("PK\3\4", kTokens, idx + " is not the index of a token file");
  refused(
      std::string("TNTIDX\0\0........", 16), kTokens,
      idx + " is of an older format, which Megatron writes with --data-impl lazy or cached: make it again with mmap");
  refused(kIndex.substr(0, 33), kTokens, idx + " is truncated: it ends within its header");
  refused(header(8, 2, 3, 2) + kIndex.substr(34), kTokens, idx + " has version 2; expected 1");
  refused(header(6, 2, 3) + kIndex.substr(34), kTokens, idx + " holds floats (type 6), which are no tokens");
  refused(header(7, 2, 3) + kIndex.substr(34), kTokens, idx + " holds floats (type 7)");
  refused(header(0, 2, 3) + kIndex.substr(34), kTokens, idx + " has numbers of type 0, which does not exist");
  refused(header(9, 2, 3) + kIndex.substr(34), kTokens, idx + " has numbers of type 9");
  refused(header(8, std::uint64_t{1} << 60, 3), kTokens,
          idx + " is damaged: its header gives 1152921504606846976 sequences");
  refused(header(8, std::uint64_t{1} << 40, 3), kTokens,
          idx + " is truncated: 1099511627776 sequences and 2 documents take");
  refused(header(8, 2, 0) + kIndex.substr(34), kTokens, idx + " is damaged: its header gives no document boundaries");
  refused(kIndex.substr(0, 81), kTokens,
          idx + " is truncated: 2 sequences and 2 documents take 82 bytes, but it has 81");
  refused(kIndex + "x", kTokens, idx + " is damaged: 2 sequences and 2 documents take 82 bytes, but it has 83");
  refused(index(stored<std::int32_t>(3, -2), places, begins), kTokens, idx + " is damaged: sequence 1 has -2 tokens");
  refused(index(lengths, stored<std::int64_t>(0, 4), begins), kTokens,
          idx + " is damaged: sequence 1 begins at byte 4, before the end of the one before it, byte 6");
  refused(index(lengths, stored<std::int64_t>(-2, 6), begins), kTokens,
          idx + " is damaged: sequence 0 begins at byte -2");
  refused(index(lengths, stored<std::int64_t>(0, 8), begins), kTokens,
          bin + " is truncated or belongs to another index: it has 10 bytes, but sequence 1 of " + idx +
              " ends at byte 8 + 4");
  refused(index(lengths, stored<std::int64_t>(0, std::int64_t{1} << 62), begins), kTokens, bin + " is truncated or");
  refused(kIndex, kTokens.substr(0, 9),
          bin + " is truncated or belongs to another index: it has 9 bytes, but sequence 1 of " + idx +
              " ends at byte 6 + 4");
  refused(kIndex, kTokens + "xy",
          bin + " belongs to another index: it has 12 bytes, but the sequences of " + idx + " end at byte 10");
  refused(index(lengths, places, stored<std::int64_t>(1, 1, 2)), kTokens,
          idx + " is damaged: document 0 begins with sequence 1, behind sequence 0 of 2");
  refused(index(lengths, places, stored<std::int64_t>(0, 2, 1)), kTokens,
          idx + " is damaged: document 2 begins with sequence 1, behind sequence 2 of 2");
  refused(index(lengths, places, stored<std::int64_t>(0, 3, 2)), kTokens,
          idx + " is damaged: document 1 begins with sequence 3, behind sequence 0 of 2");
  refused(index(lengths, places, stored<std::int64_t>(0, 1, 1)), kTokens,
          idx + " is damaged: its documents end with sequence 1 of 2");
}

TEST_CASE("token file: modes of files for several kinds of data are passed over") {
  const Prefix prefix;
  prefix.write(kIndex + std::string("\0\1", 2), kTokens);
  const TokenFile file(prefix.path());
  CHECK(file.has_modes());
  CHECK(sequence(file, 1) == std::vector{1, 0});
}

TEST_CASE("token file: one that is cut while it is read is an error") {
  const Prefix prefix;
  prefix.write(kIndex, kTokens);
  const TokenFile file(prefix.path());
  std::filesystem::resize_file(prefix.path() + ".bin", 4);
  CHECK_THROWS_WITH(sequence(file, 1), ContainsSubstring(".bin: is being cut off while it is read"));
  prefix.write(kIndex.substr(0, 42) + stored<std::int64_t>(-6, 6) + kIndex.substr(58), kTokens);
  CHECK_THROWS_WITH(sequence(file, 0), prefix.path() + ".idx has changed while it is read");
}

TEST_CASE("token file: an index of older tokens never stands beside newer ones") {
  const Prefix prefix;
  prefix.write(kIndex, kTokens);
  TokenWriter writer(prefix.path(), TokenType::u16, ExistingFile::replaced);
  writer.add_sequence(std::vector{1});
  writer.end_document();
  std::filesystem::remove(prefix.path() + ".bin");
  std::filesystem::create_directory(prefix.path() + ".bin");  // the new tokens cannot get their name
  CHECK_THROWS_WITH(writer.finish({}), ContainsSubstring(prefix.path() + ".bin: cannot be put in place"));
  CHECK_FALSE(std::filesystem::exists(prefix.path() + ".idx"));
}

TEST_CASE("token file: a full disk leaves nothing under the final names") {
  const Prefix prefix;
  {
    TokenWriter writer(prefix.path(), TokenType::i32, ExistingFile::refused);
    const testing::FileSizeLimit limit(1 << 16);
    const std::vector<std::int32_t> tokens(1 << 20, 5);
    CHECK_THROWS_WITH(
        [&] {
          writer.add_sequence(tokens);
          writer.end_document();
          writer.finish({});
        }(),
        ContainsSubstring(prefix.path() + ".bin: cannot be written"));
  }
  CHECK(std::filesystem::is_empty(prefix.folder().path()));
}

TEST_CASE("token files: joined, they are the file of all documents") {
  const testing::TemporaryFolder folder;
  const std::string a = folder / "a", b = folder / "b", both = folder / "both", whole = folder / "whole";
  const TokenFacts facts{.tokenizer = "bytes",
                         .fingerprint = "1234",
                         .vocabulary = 258,
                         .eod = 256,
                         .has_eod = true,
                         .empty_documents = 1,
                         .text_bytes = 10};
  const auto write = [&](const std::string& prefix, std::initializer_list<int> documents) {
    TokenWriter writer(prefix, TokenType::u16, ExistingFile::refused);
    for (const int document : documents) {  // as many sequences, of growing length
      for (int s = 0; s < document; ++s) writer.add_sequence(std::vector<std::int32_t>(s, 10 * document + s));
      writer.end_document();
    }
    writer.finish(facts);
  };
  write(a, {2, 0, 3});
  write(b, {1, 4});
  write(whole, {2, 0, 3, 1, 4});
  const TokenFacts merged = merge_token_files({a, b + ".idx"}, both + ".bin", ExistingFile::refused);
  CHECK(read_file(both + ".idx") == read_file(whole + ".idx"));
  CHECK(read_file(both + ".bin") == read_file(whole + ".bin"));
  CHECK(merged.documents == 5);
  CHECK(merged.tokens == TokenFile(whole).tokens());
  CHECK(merged.fingerprint == "1234");
  CHECK(merged.text_bytes == 20);
  CHECK(merged.empty_documents == 2);
  CHECK(merged.has_eod);
  CHECK(merged.eod == 256);
  CHECK(merged.vocabulary == 258);
  TokenFacts without_eod = facts;
  without_eod.has_eod = false;
  without_eod.text_bytes = 0;  // not told
  write_token_facts(b, without_eod);
  for (const auto& parts : {std::vector{a, b}, std::vector{b, a}}) {
    const TokenFacts mixed = merge_token_files(parts, folder / "mixed", ExistingFile::replaced);
    CHECK_FALSE(mixed.has_eod);
    CHECK(mixed.text_bytes == 0);
  }
  write_token_facts(b, facts);

  CHECK_THROWS_WITH(merge_token_files({a, b}, b, ExistingFile::replaced), b + " is one of the files that are merged");
  std::filesystem::remove(both + ".json");
  const std::string more = folder / "more";
  CHECK(merge_token_files({a, both}, more, ExistingFile::refused).fingerprint.empty());
  TokenFacts others = facts;
  others.fingerprint = "5678";
  write_token_facts(b, others);
  CHECK_THROWS_WITH(merge_token_files({both, a, b}, folder / "c", ExistingFile::refused),
                    a + " and " + b + " have tokens of different tokenizers: bytes 1234 and bytes 5678");
  TokenWriter(folder / "wide", TokenType::i32, ExistingFile::refused).finish({});
  CHECK_THROWS_WITH(merge_token_files({a, folder / "wide"}, folder / "c", ExistingFile::refused),
                    ContainsSubstring("holds uint16 and "));
  CHECK_FALSE(std::filesystem::exists(folder / "c.idx"));
}

TEST_CASE("token files: what is known of joined ones does not depend on their order") {
  const testing::TemporaryFolder folder;
  const TokenFacts told{.tokenizer = "bytes",
                        .fingerprint = "12",
                        .vocabulary = 258,
                        .eod = 256,
                        .has_eod = true,
                        .empty_documents = 2,
                        .text_bytes = 10};
  TokenFacts imported = told, other_end = told;  // of a tokenizer that nobody named
  imported.tokenizer = imported.fingerprint = "";
  imported.empty_documents = 3;
  other_end.tokenizer = other_end.fingerprint = "";
  other_end.eod = 0;
  const auto write = [&](const char* name, const std::optional<TokenFacts>& facts) {
    TokenWriter writer(folder / name, TokenType::u16, ExistingFile::refused);
    writer.add_sequence(std::vector{1, 2});
    writer.end_document();
    writer.finish(facts.value_or(TokenFacts{}));
    if (!facts) std::filesystem::remove(folder / (std::string(name) + ".json"));
  };
  write("told", told);
  write("imported", imported);
  write("other_end", other_end);
  write("silent", std::nullopt);
  // The file that all permutations of these make.
  const auto merged = [&](std::vector<std::string> names) {
    std::ranges::sort(names);
    std::optional<std::string> first;
    do {
      std::vector<std::string> prefixes;
      for (const std::string& name : names) prefixes.push_back(folder / name);
      merge_token_files(prefixes, folder / "m", ExistingFile::replaced);
      const std::string facts = read_file(folder / "m.json");
      CHECK(facts == first.value_or(facts));
      first = facts;
    } while (std::ranges::next_permutation(names).found);
    return read_token_facts(folder / "m").value();
  };
  const TokenFacts known = merged({"told", "imported"});
  CHECK(known.empty_documents == 5);
  CHECK(known.text_bytes == 20);
  CHECK(known.tokenizer.empty());
  CHECK(known.fingerprint.empty());
  CHECK(known.vocabulary == 258);
  CHECK(known.eod == 256);
  CHECK(known.has_eod);
  const TokenFacts ends = merged({"told", "imported", "other_end"});
  CHECK(ends.empty_documents == 7);
  CHECK(ends.eod == -1);
  CHECK_FALSE(ends.has_eod);
  const TokenFacts unknown = merged({"told", "imported", "silent"});
  CHECK(unknown.empty_documents == 5);
  CHECK(unknown.text_bytes == 0);
  CHECK(unknown.vocabulary == 0);
  CHECK(unknown.eod == -1);
  CHECK_FALSE(unknown.has_eod);
}

TEST_CASE("token files: those of nanoGPT and llm.c are taken over, cut behind each end of a document") {
  const testing::TemporaryFolder folder;
  const std::string from = folder / "train.bin", to = folder / "p";
  const auto imported = [&](const std::string& contents, std::int64_t eod = 9) {
    testing::write_text(from, contents);
    import_tokens(
        {.path = from, .output_prefix = to, .vocabulary = 10, .eod = eod, .existing = ExistingFile::replaced});
    const TokenFile file(to);
    std::vector<std::vector<std::int32_t>> documents;
    for (std::int64_t s = 0; s < file.sequences(); ++s) documents.push_back(sequence(file, s));
    return documents;
  };
  using Documents = std::vector<std::vector<std::int32_t>>;
  const Documents expected{{1, 2, 9}, {9}, {3, 4}};
  std::string header16 = stored<std::int32_t>(20240520, 1, 6), header32 = stored<std::int32_t>(20240801, 7, 6);
  header16.resize(1024);
  header32.resize(1024);
  const std::string narrow = stored<std::uint16_t>(1, 2, 9, 9, 3, 4), wide = stored<std::uint32_t>(1, 2, 9, 9, 3, 4);
  CHECK(imported(narrow) == expected);
  CHECK(imported(header16 + narrow) == expected);
  CHECK(imported(header32 + wide) == expected);
  CHECK(imported(narrow, -1) == Documents{{1, 2, 9, 9, 3, 4}});
  const auto refused = [&](const std::string& contents, const std::string& why) {
    CHECK_THROWS_WITH(imported(contents), ContainsSubstring(from + why));
  };
  refused("", " holds no tokens");
  refused(stored<std::int32_t>(20240520, 1, 0) + std::string(1012, '\0'), " holds no tokens");
  refused(narrow + "x", " has 13 bytes, an odd number: it does not hold 16-bit tokens");
  refused(header16 + narrow.substr(2),
          " is damaged: its header gives 6 tokens, which take 1036 bytes, but it has 1034");
  refused(header32 + narrow, " is damaged: its header gives 6 tokens");
  refused(stored<std::int32_t>(20240520, 2, 6) + narrow, " is of version 2 of llm.c's format; expected 1");
  refused(stored<std::uint16_t>(1, 2, 10), ": token 10 at place 2 is outside the vocabulary of 10");
}

TEST_CASE("token files: what is said about one") {
  const testing::TemporaryFolder folder;
  const std::string prefix = folder / "p";
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer({.type = "bytes"});
  TokenWriter writer(prefix, TokenType::u16, ExistingFile::refused);
  writer.add_sequence(std::vector{72, 105, 27, 256});
  writer.end_document();
  writer.finish({.tokenizer = "bytes",
                 .fingerprint = fingerprint_text(tokenizer->fingerprint()),
                 .vocabulary = 258,
                 .eod = 256,
                 .has_eod = true,
                 .text_bytes = 3});
  const std::string text = describe_tokens(prefix, ShownSequence{}, tokenizer.get());
  for (const char* part : {"1 documents, 1 sequences, 4 tokens", "longest sequence: 4 tokens; empty: 0",
                           "tokenizer: bytes ", "every document ends with token 256", "3 bytes of text, 0.75 a token",
                           "sequence 0: 4 tokens\n72 105 27 256\nHi\\x1b<|eod|>\n"})
    CHECK_THAT(text, ContainsSubstring(part));
  CHECK_THAT(describe_tokens(prefix, ShownSequence{.max_tokens = 2}, tokenizer.get()),
             ContainsSubstring("sequence 0: 4 tokens, the first 2 of them (--max-tokens 0 shows all)\n72 105\nHi\n"));
  for (const std::int64_t enough : {4, 5, 0})
    CHECK(describe_tokens(prefix, ShownSequence{.max_tokens = enough}, tokenizer.get()) == text);
  CHECK_THROWS_WITH(describe_tokens(prefix, ShownSequence{.sequence = 1}, nullptr),
                    prefix + ": --show 1: sequences are 0 to 0");
  CHECK_THROWS_WITH(describe_tokens(prefix, ShownSequence{.sequence = -1}, nullptr),
                    prefix + ": --show -1: sequences are 0 to 0");
  write_token_facts(prefix, {.tokenizer = "bytes", .fingerprint = "12", .tokens = 4});
  CHECK_THROWS_WITH(describe_tokens(prefix, ShownSequence{}, tokenizer.get()),
                    ContainsSubstring(prefix + " was made by tokenizer bytes 12, not by bytes "));
  write_token_facts(prefix, {.tokens = 5});
  CHECK_THROWS_WITH(describe_tokens(prefix, {}, nullptr), ContainsSubstring("p.json is of another token file"));
  testing::write_text(prefix + ".json", "{\"tokenizer\": 1}");
  CHECK_THROWS_WITH(describe_tokens(prefix, {}, nullptr), ContainsSubstring("p.json: tokenizer is 1; expected a text"));
  testing::write_text(prefix + ".json", "{\"tokenizer\": \"a\"}");
  CHECK_THROWS_WITH(describe_tokens(prefix, {}, nullptr), ContainsSubstring("p.json: fingerprint is missing"));
  std::filesystem::remove(prefix + ".json");
  CHECK_THAT(describe_tokens(prefix, {}, nullptr), ContainsSubstring("tokenizer: unknown, there is no "));
}

TEST_CASE("token files: what is said about one with modes, several documents and no ends") {
  const Prefix prefix;
  prefix.write(kIndex + std::string("\0\1", 2), kTokens);
  const std::string begin = prefix.path() + ": token file, uint16, with modes\n2 documents, 2 sequences, 5 tokens\n" +
                            "longest sequence: 3 tokens; empty: 0\n";
  CHECK(describe_tokens(prefix.path(), {}, nullptr) ==
        begin + "tokenizer: unknown, there is no " + prefix.path() + ".json\n");
  write_token_facts(prefix.path(), {.vocabulary = 100, .tokens = 5, .text_bytes = 12});
  CHECK(describe_tokens(prefix.path(), ShownSequence{.sequence = 1}, nullptr) ==
        begin +
            "tokenizer: unknown, 100 tokens; documents have no token at their end; 12 bytes of text, 2.40 a token\n" +
            "sequence 1: 2 tokens\n1 0\n");
  write_token_facts(prefix.path(), {.tokens = 6});
  CHECK_THROWS_WITH(describe_tokens(prefix.path(), {}, nullptr),
                    prefix.path() + ".json is of another token file: it tells of 6 tokens, but there are 5");
  CHECK_THROWS_WITH(merge_token_files({prefix.path()}, prefix.folder() / "c", ExistingFile::refused),
                    prefix.path() + ".idx has modes (several kinds of data), which would be lost");
  CHECK_THROWS_WITH(merge_token_files({}, prefix.folder() / "c", ExistingFile::refused), "there is nothing to merge");
}

TEST_CASE("token files: the facts of one that is taken over") {
  const testing::TemporaryFolder folder;
  const std::string from = folder / "train.bin", to = folder / "p";
  const auto facts_of = [&](const std::string& contents, std::int64_t eod, std::int64_t vocabulary = 65500) {
    testing::write_text(from, contents);
    return import_tokens({.path = from,
                          .output_prefix = to,
                          .vocabulary = vocabulary,
                          .eod = eod,
                          .tokenizer = "t",
                          .fingerprint = "f",
                          .existing = ExistingFile::replaced});
  };
  const std::string ended = stored<std::uint16_t>(1, 9, 2, 3, 9), open = stored<std::uint16_t>(1, 9, 2, 3);
  const TokenFacts facts = facts_of(ended, 9);
  CHECK(facts.has_eod);
  CHECK(facts.eod == 9);
  CHECK(facts.documents == 2);
  CHECK(facts.tokens == 5);
  CHECK(facts.vocabulary == 65500);
  CHECK(facts.tokenizer == "t");
  CHECK(facts.fingerprint == "f");
  CHECK(TokenFile(to).type() == TokenType::i32);
  CHECK_FALSE(facts_of(open, 9).has_eod);
  CHECK_FALSE(facts_of(ended, -1).has_eod);
  static_cast<void>(facts_of(ended, 9, 65499));
  CHECK(TokenFile(to).type() == TokenType::u16);
}

TEST_CASE("token files: more tokens than are copied at once are joined and taken over whole") {
  const testing::TemporaryFolder folder;
  constexpr int kTokens = (1 << 19) + 11;  // of two bytes: a megabyte and a little more
  std::vector<std::int32_t> tokens;
  std::string contents;
  for (int i = 0; i < kTokens; ++i) {
    tokens.push_back(i * 37 % 65000);
    contents += stored<std::uint16_t>(tokens.back());
  }
  const std::string long_one = folder / "long", short_one = folder / "short", both = folder / "both";
  const auto write = [](const std::string& prefix, std::span<const std::int32_t> sequence) {
    TokenWriter writer(prefix, TokenType::u16, ExistingFile::refused);
    writer.add_sequence(sequence);
    writer.end_document();
    writer.finish({});
  };
  write(long_one, tokens);
  write(short_one, std::span(tokens).first(3));
  merge_token_files({short_one, long_one, short_one}, both, ExistingFile::refused);
  const TokenFile merged(both);
  REQUIRE(merged.sequences() == 3);
  CHECK((sequence(merged, 1) == tokens));
  CHECK(sequence(merged, 2) == std::vector(tokens.begin(), tokens.begin() + 3));

  const std::string from = folder / "train.bin", to = folder / "imported";
  const auto import = [&](std::int64_t vocabulary) {
    testing::write_text(from, contents);
    return import_tokens(
        {.path = from, .output_prefix = to, .vocabulary = vocabulary, .eod = -1, .existing = ExistingFile::replaced});
  };
  CHECK(import(65000).documents == 1);  // no end of a document where a piece ends
  CHECK((sequence(TokenFile(to), 0) == tokens));
  contents.replace(contents.size() - 2, 2, stored<std::uint16_t>(65499));
  CHECK_THROWS_WITH(import(65000),
                    concat(from, ": token 65499 at place ", kTokens - 1, " is outside the vocabulary of 65000"));
}

TEST_CASE("token file: more sequences than are written at once lie where they should") {
  const Prefix prefix;
  constexpr int kSequences = (1 << 18) + 5;  // lengths of a megabyte and a little more, places of twice as much
  {
    TokenWriter writer(prefix.path(), TokenType::u16, ExistingFile::refused);
    for (int i = 0; i < kSequences; ++i) {
      writer.add_sequence(std::vector<std::int32_t>(static_cast<std::size_t>(i % 3), i % 60000));
      if (i % 2 == 1) writer.end_document();
    }
    writer.end_document();
    writer.finish({});
  }
  const TokenFile file(prefix.path());  // whose places and documents are looked at
  REQUIRE(file.sequences() == kSequences);
  CHECK(file.documents() == kSequences / 2 + 1);
  CHECK(file.is_contiguous());
  for (const int last : {kSequences - 1, kSequences - 4, 1 << 17, (1 << 18) - 1}) {
    CHECK(sequence(file, last) == std::vector<std::int32_t>(static_cast<std::size_t>(last % 3), last % 60000));
    CHECK(file.document_begin(last / 2) == last / 2 * 2);
  }
}

TEST_CASE("token file: stored tokens are read up to the end of a sequence, and no further") {
  const Prefix prefix;
  prefix.write(kIndex, kTokens);
  const TokenFile file(prefix.path());
  std::vector<std::byte> none, two(4);
  file.read_stored(0, 1, two);
  CHECK(std::memcmp(two.data(), stored<std::uint16_t>(8, 65535).data(), 4) == 0);
  file.read_stored(1, 0, two);
  CHECK(std::memcmp(two.data(), stored<std::uint16_t>(1, 0).data(), 4) == 0);
  CHECK_NOTHROW(file.read_stored(0, 3, none));
  CHECK_NOTHROW(file.read_stored(1, 2, none));
  const auto refused = [&](std::int64_t sequence, std::int64_t first, std::span<std::byte> to, const std::string& why) {
    CHECK_THROWS_WITH(file.read_stored(sequence, first, to), prefix.path() + ": " + why);
  };
  refused(0, 2, two, "tokens 2 to 4 are asked for of sequence 0, which has 3");
  refused(0, 4, none, "tokens 4 to 4 are asked for of sequence 0, which has 3");
  refused(1, -1, two, "tokens -1 to 1 are asked for of sequence 1, which has 2");
  refused(-1, 0, two, "sequence -1 of 2 is asked for");
  refused(2, 0, none, "sequence 2 of 2 is asked for");
}

TEST_CASE("token file: one without sequences has nothing, and says so") {
  const Prefix prefix;
  TokenWriter writer(prefix.path(), TokenType::u16, ExistingFile::refused);
  writer.end_document();
  writer.finish({});
  CHECK(read_file(prefix.path() + ".idx") == header(8, 0, 2) + stored<std::int64_t>(0, 0));
  const TokenFile file(prefix.path());
  CHECK(file.sequences() == 0);
  CHECK(file.documents() == 1);
  CHECK(file.tokens() == 0);
  CHECK_FALSE(file.has_modes());
  CHECK(file.is_contiguous());
  CHECK(describe_tokens(prefix.path(), {}, nullptr) ==
        prefix.path() +
            ": token file, uint16\n1 documents, 0 sequences, 0 tokens\nlongest sequence: 0 tokens; empty: 0\n"
            "tokenizer: unknown, 0 tokens; documents have no token at their end\n");
  CHECK_THROWS_WITH(describe_tokens(prefix.path(), ShownSequence{}, nullptr),
                    prefix.path() + ": --show 0: there are no sequences");
}

TEST_CASE("token file: what is damaged far behind the beginning is told by its number in the file") {
  const Prefix prefix;
  constexpr int kMany = (1 << 16) + 10, kBad = (1 << 16) + 3;  // 2^16 numbers are read at once
  const auto index = [](const std::string& lengths, const std::string& places, const std::string& begins) {
    return header(8, kMany, kMany + 1) + lengths + places + begins;
  };
  const std::string lengths(4 * kMany, '\0'), places(8 * kMany, '\0');
  std::string begins;
  for (int document = 0; document <= kMany; ++document) begins += stored<std::int64_t>(document);
  prefix.write(index(lengths, places, begins), "");
  CHECK(TokenFile(prefix.path()).documents() == kMany);
  CHECK(TokenFile(prefix.path()).document_begin(kBad) == kBad);
  const auto damaged = [](std::string numbers, const std::string& number) {
    return numbers.replace(kBad * number.size(), number.size(), number);
  };
  const auto refused = [&](const std::string& damage, const std::string& why) {
    prefix.write(damage, "");
    CHECK_THROWS_WITH(TokenFile(prefix.path()), prefix.path() + ".idx is damaged: " + why);
  };
  refused(index(damaged(lengths, stored<std::int32_t>(-1)), places, begins), "sequence 65539 has -1 tokens");
  refused(index(lengths, damaged(places, stored<std::int64_t>(-2)), begins),
          "sequence 65539 begins at byte -2, before the end of the one before it, byte 0");
  refused(index(lengths, places, damaged(begins, stored<std::int64_t>(1))),
          "document 65539 begins with sequence 1, behind sequence 65538 of 65546");
}

TEST_CASE("token file: counts of a header beyond 2^48 are damage, others may be the fault of a cut file") {
  const Prefix prefix;
  const auto refused = [&](std::uint64_t sequences, std::uint64_t begins, const std::string& why) {
    prefix.write(header(8, sequences, begins) + kIndex.substr(34), kTokens);
    CHECK_THROWS_WITH(TokenFile(prefix.path()), ContainsSubstring(prefix.path() + ".idx is " + why));
  };
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 48) - 1;
  refused(kMost + 1, 3, "damaged: its header gives 281474976710656 sequences and 3 document boundaries");
  refused(2, kMost + 1, "damaged: its header gives 2 sequences and 281474976710656 document boundaries");
  refused(kMost, 3, "truncated: 281474976710655 sequences and 2 documents take 3377699720527918 bytes, but it has 82");
  refused(2, kMost, "truncated: 2 sequences and 281474976710654 documents take ");
  prefix.write(kIndex, kTokens);
  CHECK(sequence(TokenFile(prefix.path(), 65536), 0) == std::vector{7, 8, 65535});
  CHECK_THROWS_WITH(sequence(TokenFile(prefix.path(), 65535), 0),
                    prefix.path() + ".bin: token 65535 is outside the vocabulary of 65535 (sequence 0, place 2)");
}

TEST_CASE("token files: empty sequences are counted, and files that cannot be joined are named both") {
  const testing::TemporaryFolder folder;
  const std::string a = folder / "a", wide = folder / "wide";
  TokenWriter writer(a, TokenType::u16, ExistingFile::refused);
  for (const int length : {0, 3, 0, 2})
    writer.add_sequence(std::vector<std::int32_t>(static_cast<std::size_t>(length), 5));
  writer.end_document();
  writer.finish({.text_bytes = 7});
  CHECK(describe_tokens(a, {}, nullptr) ==
        a + ": token file, uint16\n1 documents, 4 sequences, 5 tokens\nlongest sequence: 3 tokens; empty: 2\n"
            "tokenizer: unknown, 0 tokens; documents have no token at their end; 7 bytes of text, 1.40 a token\n");
  TokenWriter(wide, TokenType::i32, ExistingFile::refused).finish({});
  CHECK_THROWS_WITH(merge_token_files({a, wide + ".bin"}, folder / "c", ExistingFile::refused),
                    a + " holds uint16 and " + wide + " holds int32");
  const std::string again = (folder / ".").string() + "/a";  // spelled otherwise
  CHECK_THROWS_WITH(merge_token_files({a}, again + ".idx", ExistingFile::replaced),
                    again + " is one of the files that are merged");
}

TEST_CASE("token files: versions of llm.c's two formats, and 32-bit tokens that no vocabulary has") {
  const testing::TemporaryFolder folder;
  const std::string from = folder / "train.bin";
  const auto refused = [&](std::int32_t magic, std::int32_t version, const std::string& tokens,
                           const std::string& why) {
    std::string bytes = stored<std::int32_t>(magic, version, 1);
    bytes.resize(1024);
    testing::write_text(from, bytes + tokens);
    CHECK_THROWS_WITH(import_tokens({.path = from, .output_prefix = folder / "p", .vocabulary = 2147483647, .eod = -1}),
                      from + why);
  };
  refused(20240801, 1, stored<std::uint32_t>(1), " is of version 1 of llm.c's format; expected 7");
  refused(20240520, 7, stored<std::uint16_t>(1), " is of version 7 of llm.c's format; expected 1");
  refused(20240801, 7, stored<std::uint32_t>(0x80000001u),
          ": token -2147483647 at place 0 is outside the vocabulary of 2147483647");
  refused(20240801, 7, stored<std::int32_t>(2147483647),
          ": token 2147483647 at place 0 is outside the vocabulary of 2147483647");
  refused(20240801, 7, stored<std::uint32_t>(1, 2),
          " is damaged: its header gives 1 tokens, which take 1028 bytes, but it has 1032");
}
