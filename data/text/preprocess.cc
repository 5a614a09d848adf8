#include "data/text/preprocess.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "data/parallel_tasks.h"
#include "data/text/character_tokenizer.h"
#include "data/text/describe_text.h"
#include "data/text/json_text.h"
#include "data/text/utf8.h"
#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr int kBlocksOfWorker = 4;  // read at once: workers wait for the slowest block

// The texts of one raw document, by key; counts what was not UTF-8. Errors begin with file and line.
std::vector<std::string> texts_of_document(const RawBlock& block, const RawDocument& document,
                                           const PreprocessOptions& options, std::int64_t& replaced) {
  std::string_view raw = block.of(document);
  std::string valid;
  if (const std::optional<std::size_t> bad = first_invalid_byte(raw)) {
    ISOBAR_CHECK(options.invalid == InvalidText::replaced, block.path, ", ", place_by_line(raw, *bad, document.line),
                 " is not UTF-8 (--invalid replace puts U+FFFD there)");
    valid = with_invalid_replaced(raw, replaced);
    raw = valid;
  }
  if (options.input.format == TextFormat::plain) return {std::string(raw)};
  try {
    return json_texts(raw, options.keys);
  } catch (const Error& error) {
    throw_error(block.path, ", line ", document.line, ": ", error.what());
  }
}

std::int64_t count_of(std::string_view text, std::string_view name) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + name.size())) ++count;
  return count;
}

// The sequences of one block under one key.
struct EncodedKey {
  std::vector<std::int32_t> ids, lengths;
  std::int64_t empty = 0, text_bytes = 0;
};

struct EncodedBlock {
  std::string path;  // of the file
  std::vector<EncodedKey> keys;
  std::int64_t documents = 0, replaced = 0, special_texts = 0;
};

class Encoder {
 public:
  Encoder(const PreprocessOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), special_names_(tokenizer.special_names()) {}

  EncodedBlock operator()(const RawBlock& block) const {
    EncodedBlock encoded{.path = block.path, .keys = std::vector<EncodedKey>(options_.keys.size())};
    encoded.documents = static_cast<std::int64_t>(block.documents.size());
    for (const RawDocument& document : block.documents) {
      const std::vector<std::string> texts = texts_of_document(block, document, options_, encoded.replaced);
      for (std::size_t k = 0; k < texts.size(); ++k) {
        for (const std::string& name : special_names_) encoded.special_texts += count_of(texts[k], name);
        add(texts[k], encoded.keys[k], concat(block.path, ", line ", document.line, ": "));
      }
    }
    return encoded;
  }

 private:
  void add(const std::string& text, EncodedKey& to, const std::string& where) const {
    if (text.empty()) {
      ++to.empty;
      return;
    }
    const std::size_t before = to.ids.size();
    try {
      tokenizer_.encode(text, to.ids);
    } catch (const Error& error) {
      throw_error(where, error.what());
    }
    if (options_.append_eod) to.ids.push_back(tokenizer_.specials().eod);
    to.lengths.push_back(static_cast<std::int32_t>(to.ids.size() - before));
    to.text_bytes += static_cast<std::int64_t>(text.size());
  }

  const PreprocessOptions& options_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> special_names_;
};

// Reads all files, and passes each block to `work` on some thread and its result to `take`, in the order of the files.
template <class Work, class Take>
void for_each_block(const PreprocessOptions& options, const Work& work, const Take& take) {
  TextFiles files(options.input);
  const auto batch = static_cast<std::size_t>(thread_count(options.workers)) * kBlocksOfWorker;
  while (true) {
    std::vector<RawBlock> blocks;
    while (blocks.size() < batch) {
      std::optional<RawBlock> block = files.next();
      if (!block) break;
      blocks.push_back(std::move(*block));
    }
    if (blocks.empty()) return;
    std::vector<decltype(work(blocks[0]))> results(blocks.size());
    parallel_tasks(static_cast<std::int64_t>(blocks.size()), options.workers, [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      results[at] = work(blocks[at]);
      blocks[at] = {};
    });
    for (auto& result : results) take(std::move(result));
  }
}

// Megatron makes a token file of nothing, and then cannot open it.
[[noreturn]] void throw_no_text(const PreprocessOptions& options, const std::string& key) {
  const std::vector<std::string>& paths = options.input.paths;
  const bool has_keys = options.input.format == TextFormat::json_lines;
  throw_error(paths[0], paths.size() > 1 ? concat(" and ", paths.size() - 1, " more") : "", ": no document has a text",
              has_keys ? concat(" under the key ", in_quotes(key)) : "", ", of which a token file could be made");
}

// Of all characters of the texts.
std::unique_ptr<CharacterTokenizer> table_of_texts(const PreprocessOptions& options) {
  std::set<char32_t> all;
  const auto characters_of = [&](const RawBlock& block) {
    std::set<char32_t> characters;
    std::int64_t replaced = 0;
    for (const RawDocument& document : block.documents)
      for (const std::string& text : texts_of_document(block, document, options, replaced))
        add_characters(text, characters);
    return characters;
  };
  for_each_block(options, characters_of, [&](std::set<char32_t> characters) { all.merge(characters); });
  if (all.empty()) throw_no_text(options, options.keys[0]);
  return std::make_unique<CharacterTokenizer>(all);
}

// The tokenizer, and the table that it needs beside the token files; empty: none.
struct ChosenTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string table = {};
};

ChosenTokenizer tokenizer_of(const PreprocessOptions& options) {
  ChosenTokenizer chosen;
  if (tokenizer_kind(options.tokenizer.type) == "characters" && options.tokenizer.model.empty()) {
    std::unique_ptr<CharacterTokenizer> made = table_of_texts(options);
    chosen.table = made->table();
    chosen.tokenizer = std::move(made);
  } else {
    chosen.tokenizer = open_tokenizer(options.tokenizer);
  }
  ISOBAR_CHECK(!options.append_eod || chosen.tokenizer->specials().eod >= 0, "--append-eod: tokenizer ",
               chosen.tokenizer->type(), " has no token that ends a document");
  return chosen;
}

TokenFacts facts_of_tokenizer(const Tokenizer& tokenizer, const PreprocessOptions& options) {
  return {.tokenizer = tokenizer.type(),
          .fingerprint = fingerprint_text(tokenizer.fingerprint()),
          .vocabulary = tokenizer.size(),
          .eod = tokenizer.specials().eod,
          .has_eod = options.append_eod};
}

// The token file of one key.
struct KeyOutput {
  std::string prefix;
  TokenWriter writer;
  TokenFacts facts;

  KeyOutput(std::string name, const Tokenizer& tokenizer, const PreprocessOptions& options)
      : prefix(std::move(name)),
        writer(prefix, token_type_for(tokenizer.size()), options.existing),
        facts(facts_of_tokenizer(tokenizer, options)) {}

  void add(const EncodedKey& encoded) {
    std::span<const std::int32_t> ids = encoded.ids;
    for (const std::int32_t length : encoded.lengths) {
      writer.add_sequence(ids.first(static_cast<std::size_t>(length)));
      writer.end_document();
      ids = ids.subspan(static_cast<std::size_t>(length));
    }
    facts.empty_documents += encoded.empty;
    facts.text_bytes += encoded.text_bytes;
  }
};

// "1000 documents, 12.3 MB of text, 45.6 MB/s" each time so many documents more are done.
class ProgressLines {
 public:
  ProgressLines(std::int64_t interval, const std::function<void(const std::string&)>& say)
      : interval_(interval), next_(interval), say_(say) {}

  void add(std::int64_t documents, std::int64_t bytes) {
    documents_ += documents;
    bytes_ += bytes;
    if (interval_ <= 0 || documents_ < next_) return;
    next_ = (documents_ / interval_ + 1) * interval_;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    std::ostringstream line;
    line << std::fixed << std::setprecision(1) << documents_ << " documents, " << static_cast<double>(bytes_) / 1e6
         << " MB of text, " << static_cast<double>(bytes_) / 1e6 / passed.count() << " MB/s";
    say_(line.str());
  }

 private:
  std::int64_t interval_, next_, documents_ = 0, bytes_ = 0;
  const std::function<void(const std::string&)>& say_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void check_preprocessing(const PreprocessOptions& options) {
  ISOBAR_CHECK(!options.input.paths.empty(), "--input names no file");
  ISOBAR_CHECK(!options.output_prefix.empty(), "--output-prefix is empty");
  ISOBAR_CHECK(!options.keys.empty(), "--json-keys names no key");
  const std::set<std::string> keys(options.keys.begin(), options.keys.end());
  ISOBAR_CHECK(keys.size() == options.keys.size(), "--json-keys names a key twice");
  for (const std::string& key : options.keys)
    ISOBAR_CHECK(key.find('/') == std::string::npos, "--json-keys: ", in_quotes(key),
                 " cannot be part of a file's name");
  ISOBAR_CHECK(options.input.format == TextFormat::json_lines || keys.size() == 1,
               "--json-keys means nothing to plain text");
}

}  // namespace

PreprocessReport preprocess(const PreprocessOptions& options, const std::function<void(const std::string&)>& say) {
  check_preprocessing(options);
  std::vector<std::string> prefixes;
  for (const std::string& key : options.keys) {
    prefixes.push_back(options.output_prefix + "_" + key + "_document");
    // Before anything is read: the work may take hours.
    ISOBAR_CHECK(options.existing == ExistingFile::replaced || !std::filesystem::exists(prefixes.back() + ".idx"),
                 prefixes.back(), ".idx exists; --overwrite replaces it");
  }
  const auto [tokenizer, table] = tokenizer_of(options);
  std::vector<std::unique_ptr<KeyOutput>> outputs;
  for (const std::string& prefix : prefixes)
    outputs.push_back(std::make_unique<KeyOutput>(prefix, *tokenizer, options));

  PreprocessReport report;
  std::set<std::string> with_text;  // files
  std::int64_t documents = 0;
  ProgressLines progress(options.log_interval, say);
  for_each_block(options, Encoder(options, *tokenizer), [&](const EncodedBlock& block) {
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      outputs[k]->add(block.keys[k]);
      bytes += block.keys[k].text_bytes;
    }
    if (bytes > 0) with_text.insert(block.path);
    report.replaced += block.replaced;
    report.special_texts += block.special_texts;
    documents += block.documents;
    progress.add(block.documents, bytes);
  });
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (outputs[k]->facts.text_bytes == 0) throw_no_text(options, options.keys[k]);
  for (const std::string& path : options.input.paths)
    if (!with_text.contains(path)) report.files_without_text.push_back(path);
  report.is_separated = !options.input.separator || documents > std::ssize(options.input.paths);
  for (const std::string& path : options.input.paths)
    if (options.input.format == TextFormat::plain && holds_json_lines(path)) report.like_json.push_back(path);
  if (!table.empty()) write_file_atomically(options.output_prefix + "_characters.json", table);
  for (const auto& output : outputs) {
    output->writer.finish(output->facts);
    report.files.push_back({.prefix = output->prefix, .facts = read_token_facts(output->prefix).value()});
  }
  return report;
}

}  // namespace isobar
