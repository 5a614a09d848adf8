// isobar data preprocess, tokens, merge, index and import: text, tokens, and token files.
#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "apps/text_flags.h"
#include "data/parallel_tasks.h"
#include "data/text/index_files.h"
#include "data/text/preprocess.h"
#include "data/text/token_file.h"
#include "data/text/token_tools.h"
#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

// "7222 documents, 330807 tokens".
std::string extent_of(const TokenFacts& facts) {
  return concat(facts.documents, " documents, ", facts.tokens, " tokens");
}

void print_report(const PreprocessReport& report) {
  for (const PreprocessedFile& file : report.files) {
    std::cout << file.prefix << ": " << extent_of(file.facts) << ", " << file.facts.text_bytes << " bytes of text";
    if (file.facts.empty_documents > 0) std::cout << "; left out: " << file.facts.empty_documents << " empty documents";
    std::cout << '\n';
  }
  for (const std::string& path : report.files_without_text) std::cout << path << ": no document in it has a text\n";
  if (report.replaced > 0)
    std::cout << "replaced by U+FFFD because it was not UTF-8: " << report.replaced << " times\n";
  if (report.special_texts > 0)
    std::cout << "texts that look like special tokens, and stayed text: " << report.special_texts << '\n';
  for (const std::string& path : report.like_json)
    std::cout << path << " looks like JSON lines, and was taken as plain text: without --text it is read as such\n";
  if (!report.is_separated) std::cout << "--separator: no line is it, so that each file is one document\n";
}

void register_preprocess(CLI::App& data) {
  struct Settings {
    PreprocessOptions options;
    std::string invalid = "error", impl = "mmap", separator;
    bool plain = false, overwrite = false, split_sentences = false;
    int partitions = 1;
  };
  auto settings = std::make_shared<Settings>();
  PreprocessOptions& options = settings->options;
  CLI::App* command = data.add_subcommand("preprocess", "Make token files of texts, as Megatron's preprocess_data.py");
  command->add_option("--input", options.input.paths, "files of JSON lines, or of plain text; gzip or not")->required();
  command->add_option("--output-prefix", options.output_prefix, "P: token files are P_KEY_document.{bin,idx,json}")
      ->required();
  command->add_option("--json-keys", options.keys, "keys of the texts; a token file for each")->capture_default_str();
  command->add_flag("--text", settings->plain, "the files are plain text; each is a document");
  CLI::Option* separator = command->add_option(
      "--separator", settings->separator, "LINE: of plain text, the line between two documents; \"\" is an empty one");
  add_tokenizer_flags(*command, options.tokenizer);
  command->add_flag("--append-eod", options.append_eod,
                    "end every document with the token for it; not with characters");
  command->add_option("--invalid", settings->invalid, "error, or replace: what is not UTF-8 becomes U+FFFD")
      ->check(CLI::IsMember({"error", "replace"}))
      ->capture_default_str();
  command->add_option("--workers", options.workers, "threads; 0: as many as there are cores")->capture_default_str();
  command->add_option("--log-interval", options.log_interval, "documents between two lines of progress; 0: none")
      ->capture_default_str();
  command->add_flag("--overwrite", settings->overwrite, "replace token files that exist");
  command->add_option("--partitions", settings->partitions, "of Megatron; without effect, memory is bounded anyway");
  command->add_option("--dataset-impl", settings->impl, "of Megatron; mmap")->capture_default_str();
  command->add_flag("--split-sentences", settings->split_sentences, "of Megatron, for BERT; refused");
  command->callback([settings, separator] {
    PreprocessOptions& chosen = settings->options;
    ISOBAR_CHECK(!settings->split_sentences, "--split-sentences is for BERT, which isobar does not train");
    ISOBAR_CHECK(settings->impl == "mmap", "--dataset-impl ", settings->impl, " is an older format; expected mmap");
    ISOBAR_CHECK(settings->plain || separator->count() == 0, "--separator is for plain text: add --text");
    chosen.input.format = settings->plain ? TextFormat::plain : TextFormat::json_lines;
    if (separator->count() > 0) chosen.input.separator = settings->separator;
    chosen.invalid = settings->invalid == "replace" ? InvalidText::replaced : InvalidText::refused;
    chosen.existing = settings->overwrite ? ExistingFile::replaced : ExistingFile::refused;
    if (settings->partitions > 1) std::cout << "--partitions has no effect: memory does not grow with the input\n";
    print_report(preprocess(chosen, [](const std::string& line) { std::cout << line << std::endl; }));
  });
}

// The numbers of a text, separated by white space.
std::vector<std::int32_t> parse_ids(const std::string& text, const std::string& where) {
  std::istringstream in(text);
  std::vector<std::int32_t> ids;
  for (std::string word; in >> word;) {
    const std::optional<std::int32_t> id = number_from<std::int32_t>(word);
    ISOBAR_CHECK(id, where, ": ", word, " is no token id");
    ids.push_back(*id);
  }
  return ids;
}

// "338025 tokens, 1115394 bytes; 12.3 ms, 90.7 MB/s": of the fastest of ten.
void print_speed(const Tokenizer& tokenizer, const std::string& text) {
  std::chrono::duration<double> best = std::chrono::hours(1);
  std::size_t tokens = 0;
  for (int turn = 0; turn < 10; ++turn) {
    std::vector<std::int32_t> ids;
    const auto begin = std::chrono::steady_clock::now();
    tokenizer.encode(text, ids);
    best = std::min<std::chrono::duration<double>>(best, std::chrono::steady_clock::now() - begin);
    tokens = ids.size();
  }
  std::cout << std::fixed << std::setprecision(1) << tokens << " tokens, " << text.size() << " bytes; "
            << 1e3 * best.count() << " ms, " << static_cast<double>(text.size()) / 1e6 / best.count() << " MB/s\n";
}

void print_ids(const std::vector<std::int32_t>& ids) {
  std::string line;
  for (const std::int32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  std::cout << line << '\n';
}

void register_tokens(CLI::App& data) {
  struct Settings {
    TokenizerOptions tokenizer;
    std::string file, text;
    bool decode = false, speed = false;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* command = data.add_subcommand("tokens", "Print the tokens of a text, or the text of tokens");
  CLI::Option* file =
      command->add_option("FILE", settings->file, "a text; with --decode, token ids between white space");
  CLI::Option* text = command->add_option("--text", settings->text, "the text itself, instead of a file");
  file->excludes(text);
  add_tokenizer_flags(*command, settings->tokenizer);
  command->add_flag("--decode", settings->decode, "from ids to text");
  command->add_flag("--speed", settings->speed,
                    "print how many, and how fast one thread finds them, instead of the ids");
  command->callback([settings, file, text] {
    ISOBAR_CHECK(file->count() + text->count() == 1, "data tokens needs a file, or --text");
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(settings->tokenizer);
    const std::string where = file->count() > 0 ? settings->file : "--text";
    const std::string contents = file->count() > 0 ? read_file(settings->file) : settings->text;
    if (settings->decode) {
      std::cout << tokenizer->decode(parse_ids(contents, where)) << (file->count() > 0 ? "" : "\n");
      return;
    }
    try {
      if (settings->speed) return print_speed(*tokenizer, contents);
      print_ids(static_cast<const Tokenizer&>(*tokenizer).encode(contents));
    } catch (const Error& error) {
      throw_error(where, ": ", error.what());
    }
  });
}

void register_merge(CLI::App& data) {
  struct Settings {
    std::vector<std::string> inputs;
    std::string output;
    bool overwrite = false;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* command = data.add_subcommand("merge", "Join token files of one tokenizer");
  command->add_option("PREFIX", settings->inputs, "token files, in the order of their documents")->required();
  command->add_option("--output-prefix", settings->output, "the token file that is made")->required();
  command->add_flag("--overwrite", settings->overwrite, "replace a token file that exists");
  command->callback([settings] {
    const auto existing = settings->overwrite ? ExistingFile::replaced : ExistingFile::refused;
    const TokenFacts facts = merge_token_files(settings->inputs, settings->output, existing);
    std::cout << token_prefix(settings->output) << ": " << extent_of(facts) << '\n';
    if (facts.fingerprint.empty())
      std::cout << "the tokenizer of a file is unknown (it has no .json), so it was not compared\n";
  });
}

void register_index(CLI::App& data) {
  struct Settings {
    IndexFilesOptions options;
    std::vector<std::int64_t> samples;
    std::string rule = "legacy";
  };
  auto settings = std::make_shared<Settings>();
  IndexFilesOptions& options = settings->options;
  CLI::App* command = data.add_subcommand("index", "Write the index arrays of samples, as Megatron keeps them");
  command->add_option("PREFIX", options.path, "a token file")->required();
  command->add_option("--seq-length", options.seq_length, "tokens of a sample")->required();
  command->add_option("--samples", settings->samples, "A,B,C: of train, valid, test; 0: no files")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  command->add_option("--split", options.split, "shares of train, valid, test")->capture_default_str();
  command->add_option("--rule", settings->rule, "how --split rounds: legacy (Megatron of 2022) or core")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "another seed, another order")->capture_default_str();
  command->add_option("--out", options.out, "folder for the arrays")->required();
  command->callback([settings] {
    ISOBAR_CHECK(settings->samples.size() == 3, "--samples needs three numbers, as in 800,80,80; ",
                 settings->samples.size(), " are given");
    std::ranges::copy(settings->samples, settings->options.samples.begin());
    settings->options.rule = split_rule(settings->rule);
    for (const std::string& line : write_index_files(settings->options)) std::cout << line << '\n';
  });
}

void register_import(CLI::App& data) {
  struct Settings {
    ImportOptions options;
    TokenizerOptions tokenizer;
    bool overwrite = false;
  };
  auto settings = std::make_shared<Settings>();
  ImportOptions& options = settings->options;
  CLI::App* command = data.add_subcommand("import", "Make a token file of a .bin of nanoGPT or llm.c");
  command->add_option("FILE", options.path, "the .bin")->required();
  command->add_option("--output-prefix", options.output_prefix, "the token file that is made")->required();
  CLI::Option* vocabulary = command->add_option("--vocabulary", options.vocabulary, "tokens are below this number");
  CLI::Option* eod = command->add_option("--eod", options.eod, "the token that ends a document; -1: there is none");
  vocabulary->capture_default_str();
  eod->capture_default_str();
  add_tokenizer_flags(*command, settings->tokenizer);
  command->add_flag("--overwrite", settings->overwrite, "replace a token file that exists");
  command->callback([settings, command, vocabulary, eod] {
    ImportOptions& chosen = settings->options;
    chosen.existing = settings->overwrite ? ExistingFile::replaced : ExistingFile::refused;
    ISOBAR_CHECK(chosen.vocabulary > 0 && chosen.vocabulary < std::int64_t{1} << 31, "--vocabulary ", chosen.vocabulary,
                 " is no number of tokens");
    if (has_tokenizer_flags(*command)) {
      ISOBAR_CHECK(vocabulary->count() + eod->count() == 0, "--vocabulary and --eod are those of the tokenizer");
      const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(settings->tokenizer);
      chosen.vocabulary = tokenizer->size();
      chosen.eod = tokenizer->specials().eod;
      chosen.tokenizer = tokenizer->type();
      chosen.fingerprint = fingerprint_text(tokenizer->fingerprint());
    }
    const TokenFacts facts = import_tokens(chosen);
    std::cout << token_prefix(chosen.output_prefix) << ": " << extent_of(facts) << '\n';
  });
}

constexpr const char* kTokenizerFlags[] = {"--tokenizer-type",  "--vocab-file,--vocab", "--merge-file",
                                           "--tokenizer-model", "--eod-token",          "--vocab-size"};

}  // namespace

void add_tokenizer_flags(CLI::App& command, TokenizerOptions& options) {
  const auto add = [&](int flag, std::string& value, const char* help) {
    return command.add_option(kTokenizerFlags[flag], value, help);
  };
  add(0, options.type, "gpt2_bpe (Megatron: GPT2BPETokenizer), characters, bytes or numbers (NullTokenizer)")
      ->capture_default_str();
  add(1, options.vocab_file, "of gpt2_bpe: vocab.json");
  add(2, options.merge_file, "of gpt2_bpe: merges.txt");
  add(3, options.model, "of characters: the table that data preprocess made");
  add(4, options.eod, "of gpt2_bpe: the token that ends a document")->capture_default_str();
  command.add_option(kTokenizerFlags[5], options.numbers,
                     "of numbers: how many there are; the one behind them ends a document");
}

bool has_tokenizer_flags(const CLI::App& command) {
  bool found = false;
  for (const std::string flag : kTokenizerFlags)
    found = found || command.get_option(flag.substr(0, flag.find(',')))->count() > 0;
  return found;
}

void register_text_commands(CLI::App& data) {
  register_preprocess(data);
  register_tokens(data);
  register_merge(data);
  register_index(data);
  register_import(data);
}

}  // namespace isobar
