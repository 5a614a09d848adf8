// Texts into token files: what is read, what is left out, what is refused with its line, whatever the workers.
#include "data/text/preprocess.h"

#include <filesystem>
#include <random>

#include "data/text/json_text.h"
#include "data/text/token_file.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/data/files/idx_files.h"
#include "tests/data/text/small_tokenizer.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring, testing::gzipped;
namespace fs = std::filesystem;

namespace {

class Corpus {
 public:
  Corpus() { options.tokenizer.type = "bytes"; }

  std::string input(const std::string& contents, const std::string& name = "in.jsonl") {
    testing::write_text(folder / name, contents);
    options.input.paths = {folder / name};
    options.output_prefix = folder / "out";
    return folder / name;
  }
  // One more file to read.
  void add_input(const std::string& contents) {
    testing::write_text(folder / "second", contents);
    options.input.paths.push_back(folder / "second");
  }
  std::string output(const std::string& key = "text") const { return folder / ("out_" + key + "_document"); }
  PreprocessReport run() {
    options.existing = ExistingFile::replaced;
    return preprocess(options, [&](const std::string& line) { said.push_back(line); });
  }
  // The documents as text, an eod as "|".
  std::vector<std::string> documents(const std::string& key = "text") {
    const TokenFile file(output(key));
    std::vector<std::string> texts;
    for (std::int64_t s = 0; s < file.sequences(); ++s) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(file.lengths()[static_cast<std::size_t>(s)]));
      file.read(s, 0, ids);
      texts.emplace_back();
      for (const std::int32_t id : ids) texts.back() += id == 256 ? '|' : static_cast<char>(id);
    }
    return texts;
  }
  std::vector<std::string> run_plain(const std::string& contents, std::optional<std::string> separator) {
    input(contents, "in.txt");
    options.input.format = TextFormat::plain;
    options.input.separator = std::move(separator);
    run();
    return documents();
  }
  void refused(const std::string& contents, const std::string& why) {
    const std::string path = input(contents);
    CHECK_THROWS_WITH(run(), ContainsSubstring(path + why));
    CHECK_FALSE(fs::exists(output() + ".idx"));
    CHECK_FALSE(fs::exists(output() + ".bin"));
  }

  testing::TemporaryFolder folder;
  PreprocessOptions options;
  std::vector<std::string> said;
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("preprocess: the texts of JSON lines, in their order, with an end each") {
  Corpus corpus;
  corpus.input(
      "{\"text\": \"one\", \"id\": 1}\n\n  {\"meta\": {\"text\": \"not this\", \"a\": [1, {\"text\": 2}]}, \"text\": "
      "\"tw\\u00f6\\n\"}\r\n"
      "{\"text\": \"\", \"meta\": {\"text\": \"nor this\"}}\n{\"text\": \"\\ud83d\\ude00\"}");
  const PreprocessReport report = corpus.run();
  CHECK(corpus.documents() == Texts{"one", "twö\n", "\U0001f600"});
  REQUIRE(report.files.size() == 1);
  CHECK(report.files[0].prefix == corpus.output());
  const TokenFacts& facts = report.files[0].facts;
  CHECK(facts.documents == 3);
  CHECK(facts.tokens == 12);
  CHECK(facts.text_bytes == 12);
  CHECK(facts.empty_documents == 1);
  CHECK(facts.tokenizer == "bytes");
  CHECK(facts.vocabulary == 258);
  CHECK_FALSE(facts.has_eod);
  corpus.options.append_eod = true;
  const TokenFacts ended = corpus.run().files[0].facts;
  CHECK(ended.has_eod);
  CHECK(ended.tokens == 15);
  CHECK(ended.text_bytes == 12);
  CHECK(corpus.documents() == Texts{"one|", "twö\n|", "\U0001f600|"});
  CHECK(TokenFile(corpus.output()).type() == TokenType::u16);
}

TEST_CASE("preprocess: several keys make a token file each, several inputs one") {
  Corpus corpus;
  corpus.input("{\"a\": \"x\", \"b\": \"yy\"}\n{\"b\": \"\", \"a\": \"z\"}\n");
  testing::write_text(corpus.folder / "more.gz",
                      gzipped("{\"a\": \"u\", \"b\": \"v\"}\n") + gzipped("{\"a\": \"w\", \"b\": \"w\"}"));
  corpus.options.input.paths.push_back(corpus.folder / "more.gz");
  corpus.options.keys = {"b", "a"};
  const PreprocessReport report = corpus.run();
  CHECK(corpus.documents("a") == Texts{"x", "z", "u", "w"});
  CHECK(corpus.documents("b") == Texts{"yy", "v", "w"});
  CHECK(report.files[0].prefix == corpus.output("b"));
  CHECK(report.files[0].facts.empty_documents == 1);
}

TEST_CASE("preprocess: plain text is cut as Python's split does") {
  Corpus corpus;
  CHECK(corpus.run_plain("a\n\nb\n", std::nullopt) == Texts{"a\n\nb\n"});
  CHECK(corpus.run_plain("a\n\nb\n", "") == Texts{"a", "b\n"});
  CHECK(corpus.run_plain("a\nb\n\n\nc", "") == Texts{"a\nb", "\nc"});
  CHECK(corpus.run_plain("\n\nb\n\n", "") == Texts{"b"});
  CHECK(corpus.run_plain("a\n--\nb\n---\n--\n", "--") == Texts{"a", "b\n---"});
  CHECK(corpus.run_plain(gzipped("a\n\nb"), "") == Texts{"a", "b"});
}

TEST_CASE("preprocess: between two separators lies an empty document, which is left out and counted") {
  Corpus corpus;
  const auto cut = [&](const std::string& contents, const std::string& separator, std::int64_t empty) {
    const Texts texts = corpus.run_plain(contents, separator);
    CHECK(read_token_facts(corpus.output()).value().empty_documents == empty);
    return texts;
  };
  CHECK(cut("a\n--\n--\nb\n", "--", 1) == Texts{"a", "b\n"});
  CHECK(cut("a\n--\n--\n--\nb", "--", 2) == Texts{"a", "b"});
  CHECK(cut("--\na\n", "--", 1) == Texts{"a\n"});
  for (const char* end : {"--", "--\n"}) {
    CHECK(cut(std::string("a\n") + end, "--", 0) == Texts{"a"});
    CHECK(cut(std::string("a\n--\n") + end, "--", 1) == Texts{"a"});
  }
  CHECK(cut("a\n--\n\n--\nb\n--\n\n", "--", 1) == Texts{"a", "b", "\n"});
  // Where lines end in CR LF, so does the separator; a CR of the text stays.
  CHECK(cut("a\r\n--\r\n--\r\nb\r\n", "--", 1) == Texts{"a", "b\r\n"});
  CHECK(cut("a\r\n\r\n\r\n\r\nb\r\n\r\n", "", 1) == Texts{"a", "b"});
  CHECK(cut("a\r\n--\nb\n--\r\n\rc", "--", 0) == Texts{"a\r", "b", "\rc"});
  // Of empty lines as of Python's split; it is text that makes a document.
  CHECK(cut("a\n\n\n\nb", "", 1) == Texts{"a", "b"});
  CHECK(cut("a\n\n\n", "", 1) == Texts{"a"});
  CHECK(cut("\n\n\na\n\n", "", 1) == Texts{"\na"});
  CHECK(cut("a\n\n \n\n\n", "", 1) == Texts{"a", " "});
}

TEST_CASE("preprocess: a separator that no line is, and JSON lines taken as plain text, are told") {
  Corpus corpus;
  const auto report_on = [&](const std::string& contents, std::optional<std::string> separator) {
    corpus.input(contents, "in.txt");
    corpus.options.input.format = TextFormat::plain;
    corpus.options.input.separator = std::move(separator);
    return corpus.run();
  };
  CHECK_FALSE(report_on("a\nb\n", "--").is_separated);
  CHECK(report_on("a\nb\n", std::nullopt).is_separated);
  CHECK(report_on("a\n--\nb\n", "--").is_separated);
  CHECK(report_on("a\nb\n", "--").like_json.empty());
  CHECK(report_on("{\"text\": \"a\"}\n", std::nullopt).like_json == Texts{corpus.options.input.paths[0]});
  for (const char* first : {"a\nb\n", "a\n--\nb\n"}) {  // of several files the separator may divide one
    corpus.input(first, "in.txt");
    corpus.add_input("c\n");
    corpus.options.input.separator = "--";
    CHECK(corpus.run().is_separated == (std::string_view(first).find("--") != std::string_view::npos));
  }
  corpus.options.input = {.paths = {corpus.input("{\"text\": \"a\"}\n")}};
  CHECK(corpus.run().like_json.empty());
}

TEST_CASE("text files: a block has a bounded number of documents, be they empty") {
  const testing::TemporaryFolder folder;
  testing::write_text(folder / "in", std::string(3 << 20, '\n'));
  TextFiles files({.paths = {folder / "in"}, .format = TextFormat::plain, .separator = ""});
  std::size_t documents = 0, blocks = 0;
  while (const std::optional<RawBlock> block = files.next()) {
    CHECK(block->text.empty());
    documents += block->documents.size();
    ++blocks;
  }
  CHECK(documents == std::size_t{3} << 19);
  CHECK(blocks == 2);
}

TEST_CASE("preprocess: files without any text are told, and of nothing else no token file is made") {
  Corpus corpus;
  corpus.options.keys = {"a", "b"};
  const std::string full = corpus.input("{\"a\": \"x\", \"b\": \"\"}\n");
  const std::string none = corpus.folder / "none", empty = corpus.folder / "empty";
  testing::write_text(none, "");
  testing::write_text(empty, "\n{\"a\": \"\", \"b\": \"\"}\n");
  corpus.options.input.paths = {none, full, empty};
  CHECK_THROWS_WITH(
      corpus.run(),
      none + " and 2 more: no document has a text under the key \"b\", of which a token file could be made");
  for (const char* key : {"a", "b"}) CHECK_FALSE(fs::exists(corpus.output(key) + ".idx"));
  corpus.options.keys = {"a"};
  CHECK(corpus.run().files_without_text == Texts{none, empty});
  CHECK(corpus.documents("a") == Texts{"x"});

  corpus.options.keys = {"text"};
  for (const char* type : {"bytes", "characters"}) {
    corpus.options.tokenizer.type = type;
    const std::string path = corpus.folder / "in.txt";
    CHECK_THROWS_WITH(corpus.run_plain("", std::nullopt),
                      path + ": no document has a text, of which a token file could be made");
    CHECK_THROWS_WITH(corpus.run_plain("--\n--\n", "--"), ContainsSubstring(path + ": no document has a text"));
    CHECK_FALSE(fs::exists(corpus.output() + ".idx"));
    CHECK_FALSE(fs::exists(corpus.folder / "out_characters.json"));
  }
}

TEST_CASE("preprocess: the files do not depend on the number of workers") {
  Corpus corpus;
  std::mt19937 random(3);
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    std::string text(random() % 3000, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 20);
    lines += "{\"text\": \"" + text + "\"}\n";
  }
  corpus.input(lines);
  const testing::SmallTokenizerFiles files;
  corpus.options.tokenizer = {.vocab_file = files.vocab(), .merge_file = files.merges()};
  corpus.options.append_eod = true;
  corpus.options.log_interval = 1000;
  std::string bin, idx;
  for (const int workers : {1, 2, 7}) {
    corpus.options.workers = workers;
    corpus.run();
    if (bin.empty()) {
      bin = read_file(corpus.output() + ".bin");
      idx = read_file(corpus.output() + ".idx");
    }
    CHECK(read_file(corpus.output() + ".bin") == bin);
    CHECK(read_file(corpus.output() + ".idx") == idx);
  }
  CHECK(corpus.said.size() >= 3);
  CHECK_THAT(corpus.said.back(), testing::Matches("3000 documents, .* MB of text, .* MB/s"));
}

TEST_CASE("preprocess: bad lines are refused by file and line, and leave nothing") {
  Corpus corpus;
  const std::string good = "{\"text\": \"a\"}\n";
  corpus.refused(good + "{\"text\": \"a\"\n", ", line 2: is not valid JSON at column ");
  corpus.refused(good + "\n{'text': 1}\n", ", line 3: is not valid JSON at column 2");
  corpus.refused(good + "{\"text\": \"a\"} x\n", ", line 2: is not valid JSON at column 15");
  corpus.refused("[1]\n", ", line 1: is a list, not an object");
  corpus.refused("\"text\"\n", ", line 1: is a text, not an object");
  corpus.refused("3\n", ", line 1: is a number, not an object");
  corpus.refused("{\"txt\": \"a\", \"id\": 3}\n",
                 ", line 1: key \"text\" is missing; keys that exist: \"txt\", \"id\"");
  corpus.refused("{}\n", ", line 1: key \"text\" is missing; keys that exist: none");
  corpus.refused("{\"text\": null}\n", ", line 1: key \"text\" is null, no text");
  corpus.refused("{\"text\": 3.5}\n", ", line 1: key \"text\" is a number, no text");
  corpus.refused("{\"text\": true}\n", ", line 1: key \"text\" is true or false, no text");
  corpus.refused("{\"text\": [\"a\"]}\n", ", line 1: key \"text\" is a list, no text");
  corpus.refused("{\"text\": {\"text\": \"a\"}}\n", ", line 1: key \"text\" is an object, no text");
  corpus.refused("{\"text\": \"a\", \"text\": \"b\"}\n", ", line 1: key \"text\" is there twice");
  corpus.refused("{\"text\": \"\\ud800\"}\n", ", line 1: half of a surrogate pair stands alone at column ");
  corpus.refused("{\"text\": \"\\udc00a\"}\n", ", line 1: half of a surrogate pair stands alone");
  corpus.refused("{\"text\": 1e999}\n", ", line 1: ");
  corpus.refused("{\"text\": \"a\", \"b\": " + std::string(100, '[') + std::string(100, ']') + "}\n",
                 ", line 1: is nested deeper than 64 levels");
  corpus.refused(good + "{\"text\": \"\xff\"}\n",
                 ", line 2, byte 11 is not UTF-8 (--invalid replace puts U+FFFD there)");
  // The first of several faults, whichever worker meets one first.
  corpus.options.workers = 4;
  std::string many;
  for (int i = 0; i < 20000; ++i) many += i % 5000 == 4999 ? "x\n" : "{\"text\": \"" + std::string(500, 'a') + "\"}\n";
  corpus.refused(many, ", line 5000: ");
}

TEST_CASE("preprocess: what is not UTF-8 is replaced and counted where that is asked for") {
  Corpus corpus;
  corpus.input("{\"text\": \"a\xff\xe2\x82z\"}\n");
  corpus.options.invalid = InvalidText::replaced;
  CHECK(corpus.run().replaced == 2);
  CHECK(corpus.documents() == Texts{"a\xef\xbf\xbd\xef\xbf\xbdz"});
  corpus.options.invalid = InvalidText::refused;
  corpus.input("ab\nc\xff\n", "in.txt");
  corpus.options.input.format = TextFormat::plain;
  CHECK_THROWS_WITH(corpus.run(), ContainsSubstring("in.txt, line 2, byte 2 is not UTF-8"));
}

TEST_CASE("preprocess: texts that look like special tokens stay text, and are counted") {
  Corpus corpus;
  const testing::SmallTokenizerFiles files;
  corpus.options.tokenizer = {.vocab_file = files.vocab(), .merge_file = files.merges()};
  corpus.options.append_eod = true;
  corpus.input("{\"text\": \"a<|endoftext|>b<|endoftext|>\"}\n{\"text\": \"c\"}\n");
  const PreprocessReport report = corpus.run();
  CHECK(report.special_texts == 2);
  const TokenFile file(corpus.output());
  const std::int32_t eod = files.open().specials().eod;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.lengths()[0]));
  file.read(0, 0, ids);
  CHECK(std::ranges::count(ids, eod) == 1);
  CHECK(ids.back() == eod);
}

TEST_CASE("preprocess: characters make a table of all texts, which other texts are encoded with") {
  Corpus corpus;
  corpus.input("{\"text\": \"ba\"}\n{\"text\": \"é\"}\n");
  corpus.options.tokenizer.type = "characters";
  corpus.run();
  const std::string table = corpus.folder / "out_characters.json";
  CHECK(read_file(table) == "{\"characters\":\"abé\"}\n");
  std::vector<std::int32_t> ids(2);
  TokenFile(corpus.output()).read(0, 0, ids);
  CHECK(ids == std::vector{1, 0});
  corpus.options.tokenizer.model = table;
  const std::string input = corpus.input("{\"text\": \"a\"}\n{\"text\": \"xa\"}\n");
  CHECK_THROWS_WITH(corpus.run(), input + ", line 2: character U+0078 at byte 1 is not in " + table);
  corpus.options.append_eod = true;
  CHECK_THROWS_WITH(corpus.run(), "--append-eod: tokenizer characters has no token that ends a document");
  corpus.options.tokenizer.model.clear();
  corpus.options.output_prefix = corpus.folder / "refused";
  CHECK_THROWS_WITH(corpus.run(), "--append-eod: tokenizer characters has no token that ends a document");
  CHECK_FALSE(std::filesystem::exists(corpus.folder / "refused_characters.json"));
}

TEST_CASE("preprocess: files that exist are not replaced unasked, and options that do not fit are refused") {
  Corpus corpus;
  corpus.input("{\"text\": \"a\"}\n");
  corpus.run();
  const auto again = [&](auto change) {
    PreprocessOptions options = corpus.options;
    change(options);
    preprocess(options, {});
  };
  CHECK_THROWS_WITH(again([](auto& o) { o.existing = ExistingFile::refused; }),
                    corpus.output() + ".idx exists; --overwrite replaces it");
  CHECK_THROWS_WITH(again([](auto& o) { o.keys = {}; }), "--json-keys names no key");
  CHECK_THROWS_WITH(again([](auto& o) { o.keys = {"a", "a"}; }), "--json-keys names a key twice");
  CHECK_THROWS_WITH(again([](auto& o) { o.keys = {"a/b"}; }), ContainsSubstring("cannot be part of a file's name"));
  CHECK_THROWS_WITH(again([](auto& o) { o.input.paths = {}; }), "--input names no file");
  CHECK_THROWS_WITH(again([](auto& o) { o.output_prefix = ""; }), "--output-prefix is empty");
  CHECK_THROWS_WITH(again([&](auto& o) { o.input.paths = {corpus.folder.path()}; }),
                    ContainsSubstring("is not a file"));
  CHECK_THROWS_WITH(again([](auto& o) { o.input.paths = {"nowhere.jsonl"}; }),
                    ContainsSubstring("nowhere.jsonl: cannot be opened"));
  CHECK_THROWS_WITH(again([](auto& o) { o.output_prefix = "no/such/folder/p"; }),
                    ContainsSubstring("there is no folder"));
  CHECK_THROWS_WITH(again([](auto& o) {
                      o.keys = {"a", "b"};
                      o.input.format = TextFormat::plain;
                    }),
                    "--json-keys means nothing to plain text");
}

TEST_CASE("preprocess: damaged gzip streams are refused by name") {
  Corpus corpus;
  const std::string whole = gzipped("{\"text\": \"" + std::string(5000, 'a') + "\"}\n");
  corpus.refused(whole.substr(0, whole.size() - 1), " is truncated: its gzip stream has no end");
  corpus.refused(whole.substr(0, whole.size() / 2), " is truncated: its gzip stream has no end");
  std::string changed = whole;
  changed[whole.size() - 6] ^= 1;  // of the checksum
  corpus.refused(changed, " is damaged: its gzip stream cannot be decompressed (incorrect data check)");
  corpus.refused(whole + "more", " is damaged: its gzip stream cannot be decompressed");
  corpus.input(whole + std::string(100000, '\0'));  // padding of a tape
  CHECK(corpus.run().files[0].facts.tokens == 5000);
}

TEST_CASE("preprocess: a full disk is one sentence, and leaves nothing") {
  Corpus corpus;
  const std::string path = corpus.input("{\"text\": \"" + std::string(3 << 20, 'a') + "\"}\n");
  {
    const testing::FileSizeLimit limit(1 << 16);
    CHECK_THROWS_WITH(corpus.run(), ContainsSubstring(corpus.output() + ".bin: cannot be written"));
  }
  CHECK(std::distance(fs::directory_iterator(corpus.folder.path()), {}) == 1);
}

TEST_CASE("text files: lines are found wherever the pieces that are read end") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "in";
  for (const std::size_t first : {(1ul << 18) - 2, (1ul << 18) - 1, 1ul << 18, (1ul << 18) + 1, 3ul << 18}) {
    const std::string line(first, 'x');
    testing::write_text(path, line + "\ny\nz");
    TextFiles files({.paths = {path, path}});
    std::vector<std::size_t> lengths;
    std::vector<std::int64_t> lines;
    while (const std::optional<RawBlock> block = files.next())
      for (const RawDocument& document : block->documents) {
        lengths.push_back(block->of(document).size());
        lines.push_back(document.line);
      }
    CHECK(lengths == std::vector<std::size_t>{first, 1, 1, first, 1, 1});
    CHECK(lines == std::vector<std::int64_t>{1, 2, 3, 1, 2, 3});
  }
}

TEST_CASE("preprocess: a plain text's faults are told by the line of the file, whichever document they are in") {
  Corpus corpus;
  corpus.options.input.format = TextFormat::plain;
  corpus.options.input.separator = "";
  std::string path = corpus.input("ab\n\nc\nd\xff\n", "in.txt");
  CHECK_THROWS_WITH(corpus.run(), path + ", line 4, byte 2 is not UTF-8 (--invalid replace puts U+FFFD there)");
  corpus.options.tokenizer.type = "characters";
  corpus.options.tokenizer.model = corpus.folder / "table.json";
  testing::write_text(corpus.options.tokenizer.model, "{\"characters\": \"abc\\n\"}");
  path = corpus.input("ab\n\nc\nb\n\nax", "in.txt");  // documents begin at lines 1, 3 and 6
  CHECK_THROWS_WITH(corpus.run(),
                    path + ", line 6: character U+0078 at byte 2 is not in " + corpus.options.tokenizer.model);
}

TEST_CASE("preprocess: what is said on the way is the documents and megabytes so far, if it is asked for") {
  Corpus corpus;
  std::string lines;
  for (int i = 0; i < 13; ++i) lines += "{\"text\": \"" + std::string(100000, 'a') + "\"}\n";  // two blocks
  corpus.input(lines);
  corpus.options.workers = 1;
  corpus.options.log_interval = 0;
  corpus.run();
  CHECK(corpus.said.empty());
  corpus.options.log_interval = 13;
  corpus.run();
  REQUIRE(corpus.said.size() == 1);
  CHECK_THAT(corpus.said[0], testing::Matches("13 documents, 1\\.3 MB of text, [0-9.]+ MB/s"));
  corpus.options.log_interval = 14;
  corpus.run();
  CHECK(corpus.said.size() == 1);
}

TEST_CASE("preprocess: JSON may be 64 levels deep, and twenty of many keys are told") {
  Corpus corpus;
  const auto nested = [](int lists) {
    const auto n = static_cast<std::size_t>(lists);
    return "{\"b\": " + std::string(n, '[') + std::string(n, ']') + ", \"text\": \"a\"}\n";
  };
  corpus.input(nested(63));
  CHECK(corpus.run().files[0].facts.documents == 1);
  const std::string deep = corpus.input(nested(64));
  CHECK_THROWS_WITH(corpus.run(), deep + ", line 1: is nested deeper than 64 levels");
  std::string line, told;
  for (int i = 10; i < 35; ++i) {
    line += concat(i == 10 ? "{" : ", ", "\"k", i, "\": 0");
    if (i < 30) told += concat(i == 10 ? "" : ", ", "\"k", i, '"');
  }
  const std::string many = corpus.input(line + "}\n");
  CHECK_THROWS_WITH(corpus.run(), many + ", line 1: key \"text\" is missing; keys that exist: " + told);
}

TEST_CASE("preprocess: the bytes of all keys together are those of a file, and of a line of progress") {
  Corpus corpus;
  corpus.input("{\"a\": \"" + std::string(1'100'000, 'x') + "\", \"b\": \"\"}\n");  // a block of its own
  corpus.add_input("{\"a\": \"" + std::string(400'000, 'x') + "\", \"b\": \"" + std::string(300'000, 'y') + "\"}\n");
  corpus.options.keys = {"a", "b"};
  corpus.options.workers = 1;
  corpus.options.log_interval = 1;
  CHECK(corpus.run().files_without_text.empty());
  REQUIRE(corpus.said.size() == 2);
  CHECK_THAT(corpus.said[0], testing::Matches("1 documents, 1\\.1 MB of text, [0-9.]+ MB/s"));
  CHECK_THAT(corpus.said[1], testing::Matches("2 documents, 1\\.8 MB of text, [0-9.]+ MB/s"));
}

TEST_CASE("preprocess: the next line of progress is that of the next multiple of the interval") {
  Corpus corpus;
  std::string lines;
  for (int i = 0; i < 13; ++i) lines += "{\"text\": \"" + std::string(100'000, 'a') + "\"}\n";  // blocks of 11 and of 2
  corpus.input(lines);
  corpus.options.workers = 1;
  const auto said = [&](std::int64_t interval) {
    corpus.options.log_interval = interval;
    corpus.said.clear();
    corpus.run();
    std::vector<std::string> documents;
    for (const std::string& line : corpus.said) documents.push_back(line.substr(0, line.find(',')));
    return documents;
  };
  CHECK(said(5) == Texts{"11 documents"});  // the next one would be that of 15
  CHECK(said(6) == Texts{"11 documents", "13 documents"});
  CHECK(said(11) == Texts{"11 documents"});
  CHECK(said(12) == Texts{"13 documents"});
  CHECK(said(-1).empty());
}

TEST_CASE("preprocess: what is replaced or looks like a special token is counted over all files and keys") {
  Corpus corpus;
  corpus.input("{\"a\": \"\xff\", \"b\": \"<|eod|>\"}\n");
  corpus.add_input("{\"a\": \"<|eod|>x<|pad|>\", \"b\": \"\xfe\xfe\"}\n");
  corpus.options.keys = {"a", "b"};
  corpus.options.invalid = InvalidText::replaced;
  const PreprocessReport report = corpus.run();
  CHECK(report.replaced == 3);
  CHECK(report.special_texts == 3);
  REQUIRE(report.files.size() == 2);
  CHECK(report.files[0].facts.eod == 256);
  CHECK(report.files[0].facts.fingerprint == "007ceb13f35f6e4c");
  CHECK(report.files[0].facts.text_bytes == 3 + 15);  // U+FFFD has three
  CHECK(report.files[1].facts.text_bytes == 7 + 6);
  CHECK(report.files[1].facts.tokens == 13);
}

TEST_CASE("preprocess: one table has the characters of all files under all keys") {
  Corpus corpus;
  corpus.input("{\"a\": \"cb\", \"b\": \"é\"}\n");
  corpus.add_input("{\"a\": \"ad\", \"b\": \"b\"}\n");
  corpus.options.keys = {"a", "b"};
  corpus.options.tokenizer.type = "characters";
  corpus.run();
  CHECK(read_file(corpus.folder / "out_characters.json") == "{\"characters\":\"abcdé\"}\n");
  const auto ids = [&](const std::string& key, std::int64_t sequence) {
    const TokenFile file(corpus.output(key));
    std::vector<std::int32_t> all(static_cast<std::size_t>(file.lengths()[static_cast<std::size_t>(sequence)]));
    file.read(sequence, 0, all);
    return all;
  };
  CHECK(ids("a", 0) == std::vector{2, 1});
  CHECK(ids("a", 1) == std::vector{0, 3});
  CHECK(ids("b", 0) == std::vector{4});
  CHECK(ids("b", 1) == std::vector{1});
}

TEST_CASE("preprocess: a token file of any key that exists is refused, before a file is read") {
  Corpus corpus;
  corpus.input("this is no JSON\n");
  corpus.options.tokenizer.type = "characters";  // whose table takes all texts
  corpus.options.keys = {"a", "b"};
  testing::write_text(corpus.output("b") + ".idx", "");
  CHECK_THROWS_WITH(preprocess(corpus.options, {}), corpus.output("b") + ".idx exists; --overwrite replaces it");
  CHECK_FALSE(fs::exists(corpus.output("a") + ".bin"));
  fs::rename(corpus.output("b") + ".idx", corpus.output("a") + ".idx");
  CHECK_THROWS_WITH(preprocess(corpus.options, {}), corpus.output("a") + ".idx exists; --overwrite replaces it");
}

TEST_CASE("preprocess: a missing key is told with all that exist, and keys that nobody wants may be there twice") {
  Corpus corpus;
  corpus.options.keys = {"text", "title", "body"};
  const std::string path = corpus.input("{\"title\": \"t\", \"other\": [\"text\"], \"text\": \"x\"}\n");
  CHECK_THROWS_WITH(corpus.run(),
                    path + ", line 1: key \"body\" is missing; keys that exist: \"other\", \"text\", \"title\"");
  corpus.options.keys = {"text"};
  corpus.input("{\"n\": 1, \"n\": [\"a\", \"b\"], \"text\": \"x\", \"n\": {\"text\": \"y\"}}\n{\"text\": \"z\"}\n");
  corpus.run();
  CHECK(corpus.documents() == Texts{"x", "z"});
}
