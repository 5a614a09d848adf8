#include "models/language/recipe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "data/text/character_tokenizer.h"
#include "data/text/utf8.h"
#include "engine/files/atomic_file.h"
#include "engine/files/checksum.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

std::string read_text(const std::string& path) {
  std::string text = read_file(path);
  if (const std::optional<std::size_t> bad = first_invalid_byte(text))
    throw_error(path, ": byte ", *bad + 1, " (in line ",
                1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*bad), '\n'), ") is not UTF-8");
  ISOBAR_CHECK(!text.empty(), path, ": the file is empty");
  return text;
}

TokenizerOptions tokenizer_options(const TextOptions& options) {
  return {.type = name_of_enum(options.tokenizer), .vocab_file = options.vocab_file, .merge_file = options.merge_file};
}

std::unique_ptr<Tokenizer> tokenizer_for(const TextOptions& options, const std::string& text) {
  if (options.tokenizer != TokenizerKind::characters) return open_tokenizer(tokenizer_options(options));
  std::set<char32_t> characters;
  add_characters(text, characters);
  return std::make_unique<CharacterTokenizer>(characters);
}

std::shared_ptr<const TokenText> tokens_of(const Tokenizer& tokenizer, std::string_view text, const std::string& name) {
  try {
    return std::make_shared<const TokenText>(TokenText{name, tokenizer.encode(text)});
  } catch (const Error& error) {
    throw_error(name, ": ", error.what());
  }
}

// The tokens of a set. text: of text_path.
std::shared_ptr<const TokenText> tokens_of(const TextOptions& options, DataSplit split, const std::string& text,
                                           const Tokenizer& tokenizer) {
  if (split == DataSplit::test) return tokens_of(tokenizer, read_text(options.test_text_path), options.test_text_path);
  const bool has_own_file = !options.valid_text_path.empty();
  if (split == DataSplit::valid && has_own_file)
    return tokens_of(tokenizer, read_text(options.valid_text_path), options.valid_text_path);
  const auto [first, rest] = cut_text(text, has_own_file ? 0 : options.valid_fraction);
  return tokens_of(tokenizer, split == DataSplit::train ? first : rest, options.text_path);
}

std::optional<WholeTextWindows> test_windows(const TextOptions& options, const std::string& text,
                                             const Tokenizer& tokenizer) {
  if (!options.has_test()) return {};
  return WholeTextWindows(tokens_of(options, DataSplit::test, text, tokenizer), options.seq_length);
}

TextInfo trained_info(const Tokenizer& tokenizer, const TextOptions& options, const TokenText& trained) {
  TextInfo info = text_info(tokenizer, *options.vocab_size, options.seq_length);
  info.trained_on = fingerprint_text(xxh64(std::as_bytes(std::span(trained.ids))));
  return info;
}

TextInfo trained_text_of(const GivenWeights& weights) {
  ISOBAR_CHECK(describes_text(weights.settings), weights.file.string(), " does not say what text it was trained on");
  return text_info_from(weights.settings);
}

// A language model of which only the sizes are known.
class LanguageOnShapes : public TaskSource {
 public:
  LanguageOnShapes(std::shared_ptr<const NetworkRecipe> network, const TextInfo& info)
      : network_(std::move(network)), info_(info) {}

  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    return std::make_unique<LanguageModel>(network_, compute, info_, device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>&) const override {
    return {{.name = "tokens", .shape = {info_.seq_length + 1}, .dtype = DType::i32}};
  }

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const TextInfo info_;
};

}  // namespace

std::unique_ptr<Recipe> make_language_recipe(std::shared_ptr<NetworkRecipe> network) {
  return std::make_unique<LanguageRecipe>(std::move(network));
}

std::unique_ptr<Tokenizer> tokenizer_of(const TextOptions& options, const TextInfo& trained) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (trained.tokenizer == "characters") {
    std::set<char32_t> characters;
    const auto table = parse_json<nlohmann::json>(trained.characters, "the table of characters");
    add_characters(table.at("characters").get<std::string>(), characters);
    tokenizer = std::make_unique<CharacterTokenizer>(characters);
  } else {
    TokenizerOptions opened = tokenizer_options(options);
    opened.type = trained.tokenizer;
    tokenizer = open_tokenizer(opened);
  }
  ISOBAR_CHECK(fingerprint_text(tokenizer->fingerprint()) == trained.fingerprint,
               "the weights were trained with another tokenizer ", trained.tokenizer, ": its fingerprint is ",
               trained.fingerprint, ", not ", fingerprint_text(tokenizer->fingerprint()));
  return tokenizer;
}

std::vector<KeyTable> LanguageRecipe::keys() {
  return {text.keys()};
}

std::vector<std::pair<std::string, fs::path>> LanguageRecipe::paths_in(const fs::path& file) const {
  ISOBAR_CHECK(!fs::is_directory(file), "--data ", file.string(),
               " is a folder; a language model is trained on a file of text");
  ISOBAR_CHECK(fs::exists(file), "--data ", file.string(), " does not exist");
  return {{"text_path", file}};
}

// Returns "KEY VALUE, KEY VALUE" of the keys that it set, checked; empty if no key was left to the data.
std::string LanguageRecipe::fill(const Tokenizer& tokenizer, KeyOrigins& origins) {
  KeyFiller filler(origins);
  filler.fill("vocab_size", text.vocab_size, tokenizer.size());
  ISOBAR_CHECK(*text.vocab_size >= tokenizer.size(), origins.where("vocab_size"), " must be at least ",
               tokenizer.size(), ", the tokens of the tokenizer, not ", *text.vocab_size);
  const Ports ports = language_ports({.vocabulary = *text.vocab_size, .seq_length = text.seq_length});
  network_->fill(ports, filler);
  network_->check(ports, origins.where("seq_length"));
  check_keys({text.keys(), network_->keys()}, origins);
  return filler.summary();
}

std::unique_ptr<OpenedRecipe> LanguageRecipe::open(KeyOrigins& origins, const OpenRequest&) {
  const std::string whole = read_text(text.text_path);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_for(text, whole);
  std::vector<std::string> sentences;
  if (const std::string filled = fill(*tokenizer, origins); !filled.empty())
    sentences.push_back("from the data: " + filled);
  return std::make_unique<OpenedLanguage>(network_, text, whole, *tokenizer, std::move(sentences));
}

std::unique_ptr<OpenedSplit> LanguageRecipe::open_split(DataSplit split, const GivenWeights& weights) const {
  return std::make_unique<OpenedLanguageSplit>(network_, text, split, weights);
}

std::unique_ptr<TaskSource> LanguageRecipe::on_shapes() const {
  ISOBAR_CHECK(text.vocab_size, "the number of tokens is left to the data; set vocab_size");
  return std::make_unique<LanguageOnShapes>(network_,
                                            TextInfo{.vocabulary = *text.vocab_size, .seq_length = text.seq_length});
}

std::unique_ptr<LanguageModel> LanguageRecipe::trained_model(const GivenWeights& weights, const ComputeOptions& compute,
                                                             Device device) const {
  return std::make_unique<LanguageModel>(network_, compute, trained_text_of(weights), device);
}

OpenedLanguage::OpenedLanguage(std::shared_ptr<const NetworkRecipe> network, const TextOptions& options,
                               const std::string& text, const Tokenizer& tokenizer, std::vector<std::string> sentences)
    : network_(std::move(network)),
      train_(tokens_of(options, DataSplit::train, text, tokenizer), options.seq_length),
      valid_(tokens_of(options, DataSplit::valid, text, tokenizer), options.seq_length),
      test_(test_windows(options, text, tokenizer)),
      info_(trained_info(tokenizer, options, train_.text())),
      sentences_(std::move(sentences)) {}

void OpenedLanguage::keep(const fs::path& kept) const {
  if (info_.characters.empty()) return;
  fs::create_directories(kept);
  AtomicFile file(kept / "characters.json");
  file.write(info_.characters);
  file.commit();
}

void OpenedLanguage::check_start(const GivenWeights& weights) const {
  if (!describes_text(weights.settings)) return;
  const TextInfo trained = text_info_from(weights.settings);
  ISOBAR_CHECK(trained.fingerprint == info_.fingerprint && trained.vocabulary == info_.vocabulary, train_.name(),
               ": its ", info_.vocabulary, " tokens of the tokenizer ", info_.tokenizer, " (fingerprint ",
               info_.fingerprint, ") are not those that ", weights.file.string(),
               " was trained on: ", trained.vocabulary, " of ", trained.tokenizer, " (", trained.fingerprint, ")");
}

void OpenedLanguage::check_resume(const GivenWeights& weights) const {
  check_start(weights);
  if (!describes_text(weights.settings)) return;
  ISOBAR_CHECK(text_info_from(weights.settings).trained_on == info_.trained_on, train_.name(),
               ": this is not the text that ", weights.file.string(), " was trained on");
}

std::unique_ptr<Task> OpenedLanguage::make_task(const ComputeOptions& compute, Device device,
                                                const Parallel& parallel) const {
  return std::make_unique<LanguageModel>(network_, compute, info_, device, parallel);
}

std::unique_ptr<Task> OpenedLanguage::make_trained_task(const GivenWeights&, const ComputeOptions& compute,
                                                        Device device, const Parallel& parallel) const {
  return make_task(compute, device, parallel);
}

OpenedLanguageSplit::OpenedLanguageSplit(std::shared_ptr<const NetworkRecipe> network, const TextOptions& options,
                                         DataSplit split, const GivenWeights& weights)
    : network_(std::move(network)), info_(trained_text_of(weights)) {
  ISOBAR_CHECK(split != DataSplit::test || options.has_test(),
               "there is no test set: name one by the config key test_text_path");
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options, info_);
  info_ = text_info(*tokenizer, info_.vocabulary, options.seq_length);
  const bool reads_text_path =
      split == DataSplit::train || (split == DataSplit::valid && options.valid_text_path.empty());
  const std::string text = reads_text_path ? read_text(options.text_path) : "";
  auto tokens = tokens_of(options, split, text, *tokenizer);
  samples_ = std::make_unique<WholeTextWindows>(std::move(tokens), options.seq_length);
}

std::unique_ptr<Task> OpenedLanguageSplit::make_task(const ComputeOptions& compute, Device device) const {
  return std::make_unique<LanguageModel>(network_, compute, info_, device);
}

}  // namespace isobar
