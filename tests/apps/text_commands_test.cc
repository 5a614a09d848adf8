// The commands of `isobar data` for text: what a user sees, and a kill at any moment.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "engine/files/reader.h"
#include "tests/data/files/idx_files.h"
#include "tests/data/text/small_tokenizer.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring, testing::isobar_command, testing::Outcome;
namespace fs = std::filesystem;

namespace {

// Of a .npy file of '<i4': numbers behind the header, whose length is its bytes 8 and 9.
std::vector<std::int32_t> numbers_of_npy(const fs::path& path) {
  const std::string bytes = read_file(path);
  const std::size_t header =
      10 + static_cast<unsigned char>(bytes.at(8)) + 256u * static_cast<unsigned char>(bytes.at(9));
  std::vector<std::int32_t> numbers((bytes.size() - header) / sizeof(std::int32_t));
  std::memcpy(numbers.data(), bytes.data() + header, numbers.size() * sizeof(std::int32_t));
  return numbers;
}

class TextCommands {
 public:
  Outcome run(const std::string& arguments, const std::function<void(pid_t)>& meanwhile = {}) const {
    return isobar_command(output_.path(), "data " + arguments, meanwhile);
  }
  std::string done(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    INFO(arguments);
    CHECK(outcome.err.empty());
    CHECK(outcome.status == 0);
    return outcome.out;
  }
  // The one line of an error.
  std::string refused(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    INFO(arguments);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    return outcome.err;
  }
  std::string at(const std::string& name) const { return folder / name; }

  testing::TemporaryFolder folder;
  testing::SmallTokenizerFiles files;

 private:
  testing::TemporaryFolder output_;
};

}  // namespace

TEST_CASE("text commands: from a text to a token file and back") {
  const TextCommands commands;
  testing::write_text(commands.at("in.jsonl"),
                      "{\"text\": \"The sea was calm.\"}\n{\"text\": \"\"}\n{\"text\": \"a<|endoftext|>\"}\n");
  const std::string made =
      commands.done("preprocess --input " + commands.at("in.jsonl") + " --output-prefix " + commands.at("p") +
                    " --append-eod --partitions 2 --workers 2 " + commands.files.flags());
  CHECK_THAT(made, ContainsSubstring("--partitions has no effect"));
  CHECK_THAT(made, ContainsSubstring("p_text_document: 2 documents, "));
  CHECK_THAT(made, ContainsSubstring("left out: 1 empty documents"));
  CHECK_THAT(made, ContainsSubstring("texts that look like special tokens, and stayed text: 1"));
  const std::string prefix = commands.at("p_text_document");
  CHECK_THAT(commands.done("info " + prefix + ".bin --show 0 " + commands.files.flags()),
             ContainsSubstring("\nThe sea was calm.<|endoftext|>\n"));
  CHECK_THAT(commands.done("info " + prefix), ContainsSubstring("2 documents, 2 sequences, "));
  CHECK_THAT(commands.refused("info " + prefix + " --show 2"), ContainsSubstring("--show 2: sequences are 0 to 1"));
  CHECK_THAT(commands.refused("info " + prefix + " --check"), ContainsSubstring("--check is for fields"));
  CHECK_THAT(commands.refused("info " + prefix + " --tokenizer-type bytes"),
             ContainsSubstring("was made by tokenizer gpt2_bpe "));
  CHECK_THAT(commands.refused("info " + commands.at("in.jsonl") + " --show 2"), ContainsSubstring("is no token file"));

  const std::string merged = commands.done("merge " + prefix + " " + prefix + " --output-prefix " + commands.at("m"));
  CHECK_THAT(merged, ContainsSubstring("m: 4 documents, "));
  CHECK_THAT(commands.refused("merge " + prefix + " --output-prefix " + commands.at("m")),
             ContainsSubstring("m.idx exists; --overwrite replaces it"));
  const std::string index = commands.done("index " + commands.at("m") +
                                          " --seq-length 4 --samples 3,0,0 --split 1 --out " + commands.at("arrays"));
  CHECK_THAT(index, ContainsSubstring("train: 4 documents, "));
  for (const char* kind : {"doc", "sample", "shuffle"})
    CHECK(fs::exists(commands.at("arrays/m_train_indexmap_3ns_4sl_1234s_" + std::string(kind) + "_idx.npy")));
  CHECK(read_file(commands.at("arrays/m_train_indexmap_3ns_4sl_1234s_shuffle_idx.npy")).substr(10, 20) ==
        "{'descr': '<u4', 'fo");
  CHECK_THAT(commands.refused("index " + commands.at("m") + " --seq-length 4 --samples 3,1 --out x"),
             ContainsSubstring("--samples needs three numbers, as in 800,80,80; 2 are given"));
  CHECK_THAT(commands.refused("index " + commands.at("m") + " --seq-length 4 --samples 1,1,1 --split 1 --out " +
                              commands.at("arrays")),
             ContainsSubstring("m, valid: documents 4 to 4 of 4 are no documents"));
}

TEST_CASE("text commands: tokens of a text, and the text of tokens") {
  const TextCommands commands;
  const std::string flags = commands.files.flags();
  const std::string ids = commands.done("tokens --text 'It didn'\\''t move.' " + flags);
  CHECK(commands.done("tokens --decode --text '" + ids.substr(0, ids.size() - 1) + "' " + flags) ==
        "It didn't move.\n");
  testing::write_text(commands.at("t"), "abc");
  CHECK(commands.done("tokens --tokenizer-type bytes " + commands.at("t")) == "97 98 99\n");
  CHECK_THAT(commands.done("tokens --tokenizer-type bytes --speed " + commands.at("t")),
             ContainsSubstring("3 tokens, 3 bytes; "));
  testing::write_text(commands.at("long"), std::string(20'000'000, 'a'));
  const std::string speed = commands.done("tokens --tokenizer-type bytes --speed " + commands.at("long"));
  CAPTURE(speed);
  double milliseconds = 0, rate = 0;
  REQUIRE(std::sscanf(speed.c_str(), "20000000 tokens, 20000000 bytes; %lf ms, %lf MB/s", &milliseconds, &rate) == 2);
  CHECK(std::abs(milliseconds * rate / 20'000 - 1) < 0.1);  // both have a decimal
  // Text of a file ends as it does; that of a flag with a line.
  testing::write_text(commands.at("ids"), "97\n98  99\n");
  CHECK(commands.done("tokens --tokenizer-type bytes --decode " + commands.at("ids")) == "abc");
  testing::write_text(commands.at("ids"), "97 x");
  CHECK_THAT(commands.refused("tokens --tokenizer-type bytes --decode " + commands.at("ids")),
             ContainsSubstring("ids: x is no token id"));
  testing::write_text(commands.at("t"), "ab\xff");
  CHECK(commands.refused("tokens --tokenizer-type bytes " + commands.at("t")) ==
        "isobar: " + commands.at("t") + ": byte 3 is not UTF-8\n");
  CHECK_THAT(commands.refused("tokens --tokenizer-type bytes"),
             ContainsSubstring("data tokens needs a file, or --text"));
  CHECK_THAT(commands.refused("tokens --tokenizer-type bytes --decode --text '1 x'"),
             ContainsSubstring("--text: x is no token id"));
  CHECK_THAT(commands.refused("tokens --tokenizer-type bytes --decode --text '1 300'"),
             ContainsSubstring("token 300 is outside the vocabulary of 258 tokens"));
  CHECK_THAT(commands.refused("tokens --text a"), ContainsSubstring("tokenizer gpt2_bpe needs --vocab-file"));
}

TEST_CASE("text commands: flags of Megatron that mean something else here are refused by name") {
  const TextCommands commands;
  testing::write_text(commands.at("in"), "{\"text\": \"a\"}\n");
  const std::string common =
      "preprocess --tokenizer-type bytes --input " + commands.at("in") + " --output-prefix " + commands.at("p");
  CHECK_THAT(commands.refused(common + " --split-sentences"), ContainsSubstring("--split-sentences is for BERT"));
  CHECK_THAT(commands.refused(common + " --dataset-impl lazy"),
             ContainsSubstring("--dataset-impl lazy is an older format"));
  CHECK_THAT(commands.refused(common + " --separator x"),
             ContainsSubstring("--separator is for plain text: add --text"));
  CHECK_THAT(commands.done(common + " --dataset_impl mmap"),
             ContainsSubstring("p_text_document: 1 documents, 1 tokens"));
}

TEST_CASE(
    "text commands: what is replaced, left out or unknown is told, and files are replaced where that is asked for") {
  const TextCommands commands;
  testing::write_text(commands.at("in"),
                      "a\xff"
                      "b\n---\nc\n");
  const std::string text = "preprocess --tokenizer-type bytes --text --separator=--- --input " + commands.at("in") +
                           " --output-prefix " + commands.at("p");
  CHECK_THAT(commands.refused(text), ContainsSubstring("is not UTF-8"));
  testing::write_text(commands.at("lines"), "{\"text\": \"a\"}\n");
  const std::string plain = "preprocess --tokenizer-type bytes --text --input " + commands.at("lines") +
                            " --output-prefix " + commands.at("q");
  CHECK(commands.done(plain + " --separator=---") ==
        commands.at("q_text_document") + ": 1 documents, 14 tokens, 14 bytes of text\n" + commands.at("lines") +
            " looks like JSON lines, and was taken as plain text: without --text it is read as such\n" +
            "--separator: no line is it, so that each file is one document\n");
  const std::string made = commands.done(text + " --invalid replace");
  CHECK_THAT(made, ContainsSubstring("p_text_document: 2 documents, ") &&
                       ContainsSubstring("replaced by U+FFFD because it was not UTF-8: 1 times\n"));
  CHECK_THAT(commands.refused(text + " --invalid replace"), ContainsSubstring("exists; --overwrite replaces it"));
  CHECK(commands.done(text + " --invalid replace --overwrite") == made);
  CHECK_THAT(commands.refused(text + " --invalid ignore"), ContainsSubstring("--invalid"));

  const std::string merge = "merge " + commands.at("p_text_document") + " --output-prefix " + commands.at("m");
  const std::string merged = commands.done(merge);
  CHECK_THAT(merged, !ContainsSubstring("unknown"));
  CHECK_THAT(commands.refused(merge), ContainsSubstring("m.idx exists; --overwrite replaces it"));
  fs::remove(commands.at("p_text_document.json"));
  CHECK(commands.done(merge + " --overwrite") ==
        merged + "the tokenizer of a file is unknown (it has no .json), so it was not compared\n");

  const std::uint16_t tokens[] = {1, 2, 0};
  testing::write_text(commands.at("t.bin"), std::string(reinterpret_cast<const char*>(tokens), sizeof tokens));
  const std::string import = "import " + commands.at("t.bin") + " --eod 0 --output-prefix " + commands.at("n") + " ";
  for (const char* number : {"0", "2147483648"})
    CHECK_THAT(commands.refused(import + "--vocabulary " + number),
               ContainsSubstring(std::string("--vocabulary ") + number + " is no number of tokens"));
  CHECK_THAT(commands.done(import + "--vocabulary 3"), ContainsSubstring("n: 1 documents, 3 tokens"));
  CHECK_THAT(commands.refused(import + "--vocabulary 3"), ContainsSubstring("exists; --overwrite replaces it"));
  // A prefix may be given with an ending of its files.
  CHECK(commands.done("merge " + commands.at("n.idx") + " --output-prefix " + commands.at("two.bin")) ==
        commands.at("two") + ": 1 documents, 3 tokens\n" +
            "the tokenizer of a file is unknown (it has no .json), so it was not compared\n");
  CHECK(commands.done("import " + commands.at("t.bin") + " --vocabulary 3 --eod 2 --output-prefix " +
                      commands.at("three.idx")) == commands.at("three") + ": 2 documents, 3 tokens\n");
  CHECK_THAT(commands.done(import + "--vocabulary 3 --overwrite"), ContainsSubstring("n: 1 documents, 3 tokens"));
}

TEST_CASE("text commands: the index of samples is split by the rule that is asked for") {
  const TextCommands commands;
  testing::write_text(commands.at("in"), "one\n\ntwo\n\nthree\n\nfour\n\nfive\n");
  commands.done("preprocess --text --separator '' --tokenizer-type bytes --input " + commands.at("in") +
                " --output-prefix " + commands.at("p"));
  const auto last_of_training = [&](const std::string& flag) {
    const fs::path out = commands.at("index" + flag.substr(std::min(flag.size(), std::size_t{8})));
    commands.done("index " + commands.at("p_text_document") + " --seq-length 4 --split 1,1,0 --samples 3,0,0 --out " +
                  out.string() + flag);
    for (const auto& entry : fs::directory_iterator(out))
      if (entry.path().filename().string().find("doc_idx") != std::string::npos)
        return std::ranges::max(numbers_of_npy(entry.path()));
    return -1;
  };
  // A half of five documents is two to the core, and three to Megatron of 2022, which rounds and then moves the bounds.
  commands.refused("index " + commands.at("p_text_document") + " --seq-length 4 --samples 3,0,0 --rule new --out x");
  CHECK(last_of_training(" --rule=core") == 1);
  CHECK(last_of_training(" --rule=legacy") == 2);
  CHECK(last_of_training("") == 2);
}

TEST_CASE("text commands: a token file a key, progress where it is asked for, and the end of a document by its name") {
  const TextCommands commands;
  testing::write_text(commands.at("in"),
                      "{\"title\": \"one\", \"body\": \"two words\"}\n{\"title\": \"x\", \"body\": \"\"}\n");
  const std::string preprocess = "preprocess --input " + commands.at("in") + " --output-prefix " + commands.at("p") +
                                 " --json-keys title body --overwrite ";
  const std::string made = commands.done(preprocess + "--tokenizer-type bytes --log-interval 1");
  CHECK_THAT(made, ContainsSubstring("\n" + commands.at("p_title_document") +
                                     ": 2 documents, 4 tokens, 4 bytes of text\n" + commands.at("p_body_document") +
                                     ": 1 documents, 9 tokens, 9 bytes of text; left out: 1 empty documents\n"));
  CHECK(made.starts_with("2 documents, 0.0 MB of text, "));
  CHECK(commands.done(preprocess + "--tokenizer-type bytes --log-interval 0").starts_with(commands.at("p_title")));

  // Of several files those without a text are named, by file.
  testing::write_text(commands.at("none"), "{\"title\": \"\", \"body\": \"\"}\n");
  CHECK_THAT(commands.done("preprocess --input " + commands.at("none") + " " + commands.at("in") + " --output-prefix " +
                           commands.at("q") + " --json-keys title body --tokenizer-type bytes"),
             ContainsSubstring("\n" + commands.at("none") + ": no document in it has a text\n") &&
                 !ContainsSubstring(commands.at("in") + ": no document"));
  nlohmann::json vocabulary = testing::SmallTokenizerFiles::golden()["vocab"];
  const auto stop = static_cast<int>(vocabulary.size());
  vocabulary["<|stop|>"] = stop;
  const testing::SmallTokenizerFiles files(vocabulary.dump(), commands.files.merges_text());
  const std::string of_stop = files.flags() + " --eod-token '<|stop|>'";
  commands.done(preprocess + "--append-eod " + of_stop);
  const std::string told = commands.done("info " + commands.at("p_title_document") + " --show 1 " + of_stop);
  CHECK_THAT(told, ContainsSubstring("; every document ends with token " + std::to_string(stop) + "; "));
  CHECK_THAT(told, ContainsSubstring("\nx<|stop|>\n"));
  CHECK_THAT(commands.refused(preprocess + files.flags() + " --eod-token none"),
             ContainsSubstring("the token that ends a document, \"none\", is missing"));
}

TEST_CASE("text commands: index arrays are those of the sets that are asked for, by their samples, length and seed") {
  const TextCommands commands;
  std::string text;
  for (int document = 0; document < 10; ++document) text += "document " + std::to_string(document) + "\n\n";
  testing::write_text(commands.at("in"), text);
  commands.done("preprocess --text --separator '' --tokenizer-type bytes --input " + commands.at("in") +
                " --output-prefix " + commands.at("p"));
  const auto files = [&](const std::string& out, const std::string& flags) {
    commands.done("index " + commands.at("p_text_document") + " --seq-length 4 --split 6,2,2 --out " +
                  commands.at(out) + " " + flags);
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(commands.at(out)))
      names.insert(entry.path().filename().string().substr(std::string("p_text_document_").size()));
    return names;
  };
  std::set<std::string> expected;
  for (const std::string set : {"train_indexmap_40ns", "valid_indexmap_2ns", "test_indexmap_1ns"})
    for (const std::string kind : {"doc", "sample", "shuffle"}) expected.insert(set + "_4sl_7s_" + kind + "_idx.npy");
  CHECK(files("all", "--samples 40,2,1 --seed 7") == expected);
  CHECK(files("valid", "--samples 0,2,0").size() == 3);
  CHECK(files("valid", "--samples 0,2,0").contains("valid_indexmap_2ns_4sl_1234s_doc_idx.npy"));
  files("other", "--samples 40,2,1 --seed 8");
  const auto order = [&](const std::string& folder, const std::string& seed) {
    return numbers_of_npy(
        commands.at(folder + "/p_text_document_train_indexmap_40ns_4sl_" + seed + "_shuffle_idx.npy"));
  };
  CHECK(order("all", "7s") != order("other", "8s"));
}

TEST_CASE("text commands: imported tokens are the tokenizer's that is named, or end where a number says") {
  const TextCommands commands;
  const std::uint16_t tokens[] = {97, 256, 98, 99};
  testing::write_text(commands.at("t.bin"), std::string(reinterpret_cast<const char*>(tokens), sizeof tokens));
  const auto imported = [&](const std::string& name, const std::string& flags) {
    return commands.done("import " + commands.at("t.bin") + " --output-prefix " + commands.at(name) + " " + flags);
  };
  CHECK(imported("n", "--tokenizer-type bytes") == commands.at("n") + ": 2 documents, 4 tokens\n");
  const std::string told = commands.done("info " + commands.at("n"));
  CHECK_THAT(told, ContainsSubstring("\ntokenizer: bytes "));
  CHECK_THAT(told, ContainsSubstring(", 258 tokens; documents have no token at their end\n"));
  CHECK(imported("one", "--vocabulary 300 --eod -1") == commands.at("one") + ": 1 documents, 4 tokens\n");
  CHECK(imported("two", "--vocabulary 300 --eod 98") == commands.at("two") + ": 2 documents, 4 tokens\n");
  CHECK_THAT(commands.done("info " + commands.at("two")), ContainsSubstring("tokenizer: unknown, 300 tokens; "));
  for (const char* flag : {"--vocabulary 300", "--eod 98"})
    CHECK_THAT(commands.refused("import " + commands.at("t.bin") + " --output-prefix x --tokenizer-type bytes " + flag),
               ContainsSubstring("--vocabulary and --eod are those of the tokenizer"));
}

TEST_CASE("text commands: a table of characters and numbers are tokenizers too, and mean nothing to other files") {
  const TextCommands commands;
  testing::write_text(commands.at("in"), "ab\nc");
  commands.done("preprocess --text --tokenizer-type characters --input " + commands.at("in") + " --output-prefix " +
                commands.at("c"));
  const std::string characters = "--tokenizer-type characters --tokenizer-model " + commands.at("c_characters.json");
  CHECK(commands.done("tokens --text cab " + characters) == "3 1 2\n");
  CHECK(commands.done("tokens --decode --text '3 1 2' " + characters) == "cab\n");
  CHECK(commands.done("tokens --text '3 9' --tokenizer-type numbers --vocab-size 10") == "3 9\n");
  commands.refused("tokens --text '3 10' --tokenizer-type NullTokenizer --vocab-size 10");
  for (const char* flag : {"--tokenizer-type bytes", "--vocab-file x", "--vocab x", "--merge-file x",
                           "--tokenizer-model x", "--eod-token x", "--vocab-size 9"}) {
    INFO(flag);
    CHECK_THAT(commands.refused("info " + commands.at("in") + " " + flag), ContainsSubstring("is no token file: "));
  }
}

TEST_CASE("text commands: nanoGPT's tokens are imported") {
  const TextCommands commands;
  const std::uint16_t tokens[] = {5, 50256, 7, 8, 50256};
  testing::write_text(commands.at("train.bin"), std::string(reinterpret_cast<const char*>(tokens), sizeof tokens));
  CHECK_THAT(commands.done("import " + commands.at("train.bin") + " --output-prefix " + commands.at("n")),
             ContainsSubstring("n: 2 documents, 5 tokens"));
  CHECK_THAT(commands.done("info " + commands.at("n")), ContainsSubstring("tokenizer: unknown, 50257 tokens"));
  CHECK_THAT(commands.refused("import " + commands.at("train.bin") + " --output-prefix " + commands.at("b") +
                              " --tokenizer-type bytes"),
             ContainsSubstring("train.bin: token 50256 at place 1 is outside the vocabulary of 258"));
  CHECK_THAT(commands.refused("import " + commands.at("train.bin") + " --output-prefix " + commands.at("b") +
                              " --tokenizer-type bytes --eod 3"),
             ContainsSubstring("--vocabulary and --eod are those of the tokenizer"));
}

TEST_CASE("text commands: data info says what a text is, and names the command for what it does not describe") {
  const TextCommands commands;
  const std::string text = commands.at("mine.txt"), lines = commands.at("mine.jsonl"), prefix = commands.at("p");
  testing::write_text(text, "Once upon a time\nétait\n");
  const std::string train = "a language model is trained on it by: isobar train --config shakespeare --data ",
                    make = "token files are made of it by: isobar data preprocess --input ";
  CHECK(commands.done("info " + text) ==
        text + ": text in UTF-8, 24 bytes\n" + train + text + "\n" + make + text +
            " --text --separator \"\" --tokenizer-type bytes --append-eod --output-prefix P\n");
  testing::write_text(lines, "\n{\"text\": \"a\"}\n");
  CHECK(commands.done("info " + lines) ==
        lines + ": JSON lines, 15 bytes\ntoken files are made of its texts by: isobar data preprocess --input " +
            lines + " --tokenizer-type bytes --append-eod --output-prefix P\n");
  const std::string packed = testing::gzipped("a text"), gz = commands.at("mine.gz");
  testing::write_text(gz, packed);
  CHECK(commands.done("info " + gz) ==
        gz + ": text in UTF-8, compressed, " + std::to_string(packed.size()) + " bytes\n" + make + gz +
            " --text --separator \"\" --tokenizer-type bytes --append-eod --output-prefix P\n");
  testing::write_text(commands.at("none"), "");
  CHECK(commands.done("info " + commands.at("none")) == commands.at("none") + ": the file is empty\n");
  // A code point, and a line of JSON, that what is looked at ends within.
  for (const std::size_t before : {(1ul << 16) - 1, 1ul << 16}) {
    testing::write_text(text, std::string(before, 'a') + "é and more");
    CHECK_THAT(commands.done("info " + text), ContainsSubstring(": text in UTF-8, "));
  }
  testing::write_text(lines, "{\"text\": \"" + std::string(1 << 17, 'a') + "\"}\n");
  CHECK_THAT(commands.done("info " + lines), ContainsSubstring(": JSON lines, "));
  testing::write_text(lines, "{begins as JSON}\n");
  CHECK_THAT(commands.done("info " + lines), ContainsSubstring(": text in UTF-8, "));
  CHECK(commands.refused("info --check " + text) == "isobar: --check is for fields, and " + text + " is a text\n");
  for (const char* other : {"a\x01", "\x7f", "\xff\x01"}) {
    testing::write_text(text, other);
    CHECK_THAT(commands.refused("info " + text), ContainsSubstring("HDF5"));
  }
  testing::write_text(text, "ab\nc\xff\n");
  CHECK(commands.refused("info " + text) ==
        "isobar: " + text +
            ", line 2, byte 2 is not UTF-8: a text must be; isobar data preprocess --invalid replace takes such a "
            "text\n");

  testing::write_text(lines, "{\"text\": \"abc\", \"t\": \"d\"}\n");
  commands.done("preprocess --tokenizer-type bytes --json-keys text t --input " + lines + " --output-prefix " + prefix);
  CHECK(commands.refused("info " + prefix) == "isobar: " + prefix + " does not exist; token files of this prefix: " +
                                                  prefix + "_t_document, " + prefix + "_text_document\n");
  CHECK_THAT(commands.refused("info " + commands.at("q")), ContainsSubstring("q does not exist\n"));
  CHECK(commands.refused("info " + prefix + "_t_document.json") ==
        "isobar: " + prefix + "_t_document.json belongs to the token file " + prefix + "_t_document\n");
  testing::write_text(commands.at("train.bin"), "abcd");
  CHECK_THAT(commands.refused("info " + commands.at("train.bin")),
             ContainsSubstring("train.idx; tokens of nanoGPT or llm.c are taken over by isobar data import"));
  testing::write_text(commands.at("w.safetensors"), "abcd");
  const std::string weights = commands.at("w.safetensors");
  CHECK(commands.refused("info " + weights) ==
        "isobar: " + weights + " is a file of weights: isobar evaluate --weights " + weights + " judges them\n");
  CHECK(commands.refused("info --check " + prefix + "_text_document") ==
        "isobar: --check is for fields, and " + prefix + "_text_document is a token file\n");
  CHECK(commands.refused("info --show 0 " + text) ==
        "isobar: " + text + " is no token file: there is no " + text + ".idx\n");
  const std::string folder = commands.at("run");
  fs::create_directory(folder);
  testing::write_text(folder + "/config.json", "{\"model_type\": \"gpt2\"}");
  testing::write_text(folder + "/model.safetensors", "");
  CHECK_THAT(commands.refused("info " + folder), ContainsSubstring("run is a model's folder, of Hugging Face: "));
  testing::write_text(folder + "/config.json", "{\"num_iters\": 1, \"global_batch_size\": 1}");
  CHECK_THAT(commands.refused("info " + folder),
             ContainsSubstring("run is the folder of a run: isobar evaluate --weights " + folder +
                               " judges its weights, and its config.json names its data\n"));

  CHECK_THAT(commands.done("info --show 0 --max-tokens 2 --tokenizer-type bytes " + prefix + "_text_document"),
             ContainsSubstring("\nsequence 0: 3 tokens, the first 2 of them (--max-tokens 0 shows all)\n97 98\nab\n"));
  CHECK_THAT(commands.refused("info --max-tokens 2 " + prefix + "_text_document"), ContainsSubstring("--show"));
}

TEST_CASE("text commands: preprocess killed at random moments leaves no token file, and its leftovers go") {
  const TextCommands commands;
  std::string line = "{\"text\": \"", lines;
  for (int i = 0; i < 2000; ++i) line += "the wind came " + std::to_string(i) + " ";
  line += "\"}\n";
  for (int i = 0; i < 60; ++i) lines += line;
  testing::write_text(commands.at("in"), lines);
  const std::string command = "preprocess --append-eod --input " + commands.at("in") + " --output-prefix " +
                              commands.at("p") + " " + commands.files.flags();
  const std::string prefix = commands.at("p_text_document");
  std::minstd_rand random(7);
  for (int turn = 0; turn < 8; ++turn) {
    const Outcome outcome = commands.run(command, [&](pid_t child) {
      ::usleep(static_cast<useconds_t>(random() % 60000));
      ::kill(child, SIGKILL);
    });
    if (outcome.status == 0) {
      for (const char* suffix : {".bin", ".idx", ".json"}) fs::remove(prefix + suffix);
      continue;
    }
    CHECK(outcome.status == -SIGKILL);
    CHECK_FALSE(fs::exists(prefix + ".idx"));
  }
  commands.done(command);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(commands.folder.path())) left.insert(entry.path().filename());
  CHECK(left == std::set<std::string>{"in", "p_text_document.bin", "p_text_document.idx", "p_text_document.json"});
}

TEST_CASE("text commands: without shares of its own an index has Megatron's") {
  const TextCommands commands;
  std::string text;
  for (int document = 0; document < 25; ++document) text += "a text\n\n";
  testing::write_text(commands.at("in"), text);
  commands.done("preprocess --text --separator '' --tokenizer-type bytes --input " + commands.at("in") +
                " --output-prefix " + commands.at("p"));
  CHECK(commands.done("index " + commands.at("p_text_document") + " --seq-length 3 --samples 1,1,0 --out " +
                      commands.at("x")) ==
        "train: 24 documents, 144 tokens, 1 epoch, 47 samples\nvalid: 1 documents, 6 tokens, 1 epoch, 1 samples\n");
}
