#include "models/language/recipe.h"

#include <initializer_list>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "data/no_samples.h"
#include "data/text/byte_tokenizer.h"
#include "data/text/character_tokenizer.h"
#include "data/text/describe_text.h"
#include "data/text/text_data.h"
#include "data/text/token_file.h"
#include "data/text/token_samples.h"
#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMostTrainSamples = (std::int64_t{1} << 32) - 3;  // data/text/sample_index.h

// What samples have besides their tokens, and how their loss is made.
void add_training_facts(const TextOptions& options, TextInfo& info) {
  info.ignores_targets = options.eod_mask_loss;
  info.resets_positions = options.reset_position_ids;
  info.resets_attention = options.reset_attention_mask;
  info.loss_rows = options.loss_rows;
}

// "attention sees 12.3 % of the causal pairs, ...".
std::string sentence_on_pairs(double share) {
  std::ostringstream out;
  out << "attention sees " << std::fixed << std::setprecision(1) << 100 * share
      << " % of the causal pairs, those within one document";
  return out.str();
}

// Whether the files are there that tell how long documents are.
bool are_documents_there(const TextOptions& options) {
  for (const std::string& file : {options.vocab_file, options.merge_file, options.tokenizer_model})
    if (!file.empty() && !fs::exists(file)) return false;
  if (options.mock_data) return true;
  for (const std::string& word : options.data_path.empty() ? options.train_token_path.words : options.data_path.words)
    if (!is_number(word) && !fs::exists(token_prefix(word) + ".idx")) return false;
  return true;
}

TextInfo trained_info(const Tokenizer& tokenizer, const TextOptions& options, const LanguageSets& sets) {
  TextInfo info = text_info(tokenizer, *options.vocab_size, options.seq_length);
  info.share_of_pairs = share_of_pairs_seen(*sets.of(DataSplit::train));
  info.trained_on = sets.trained_on;
  info.trained_on_counted = sets.trained_on_counted;
  info.order = sets.order;
  info.most_samples = sets.most_samples;
  add_training_facts(options, info);
  return info;
}

TextInfo trained_text_of(const GivenWeights& weights) {
  ISOBAR_CHECK(describes_text(weights.settings), weights.file.string(), " does not say what text it was trained on");
  return text_info_from(weights.settings);
}

// Which part of which file a set is.
std::string sentence_on_set(const TextOptions& options, DataSplit split) {
  const auto set = static_cast<std::size_t>(split);
  const std::string judged = "judged: ";
  if (options.mock_data) return concat(judged, "the ", name_of_set(split), ", of documents that are made up");
  if (!options.data_path.empty())
    return concat(judged, "what split ", options.split, " gives the ", name_of_set(split), ", of ",
                  comma_list(options.data_path.words));
  if (options.reads_documents()) {
    const std::array paths{&options.train_token_path, &options.valid_token_path, &options.test_token_path};
    return concat(judged, "all of ", comma_list(paths[set]->words));
  }
  const std::array own{std::string(), options.valid_text_path, options.test_text_path};
  if (!own[set].empty()) return concat(judged, "all of ", own[set]);
  const double percent = 100 * (options.valid_text_path.empty() ? options.valid_fraction : 0);
  if (split == DataSplit::train) return concat(judged, "the first ", 100 - percent, " % of ", options.text_path);
  return concat(judged, "the last ", percent, " % of ", options.text_path,
                " (valid_fraction); all of it: --set valid_text_path=FILE");
}

// A language model of which only the sizes are known.
class LanguageOnShapes : public TaskSource {
 public:
  LanguageOnShapes(std::shared_ptr<const NetworkRecipe> network, const TextInfo& info, std::string note)
      : network_(std::move(network)), info_(info), note_(std::move(note)) {}

  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    return std::make_unique<LanguageModel>(network_, compute, info_, device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>&) const override {
    std::vector<TensorSpec> layout{{.name = "tokens", .shape = {info_.seq_length + 1}, .dtype = DType::i32}};
    const auto add = [&](const char* name, bool has) {
      if (has) layout.push_back({.name = name, .shape = {info_.seq_length}, .dtype = DType::i32});
    };
    add("position", info_.resets_positions);
    add("key_begin", info_.resets_attention);
    add("target", info_.ignores_targets);
    return layout;
  }
  std::string note_on_cost() const override { return note_; }

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const TextInfo info_;
  const std::string note_;
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
    opened.model.clear();
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
               " is a folder; a language model is trained on a file of text, or on a token file");
  const std::string prefix = token_prefix(file.string());
  const bool names_token_file = prefix != file.string() || !fs::exists(file);
  if (names_token_file && fs::exists(prefix + ".idx")) return {{"data_path", prefix}};
  if (fs::exists(file)) return {{"text_path", file}};
  const std::vector<std::string> made = token_files_of(file.string());
  throw_error("--data ", file.string(), " does not exist",
              made.empty() ? "" : "; token files of this prefix: " + comma_list(made));
}

std::vector<std::string> LanguageRecipe::keys_replaced_by(const std::string& key, bool judged) const {
  std::vector<std::string> keys{"train_token_path", "valid_token_path", "test_token_path", "mock_data"};
  const auto add = [&keys](std::initializer_list<std::string> more) { keys.insert(keys.end(), more); };
  if (key == "text_path") add({"data_path", "tokenizer_model"});
  if (judged) add({"valid_text_path", "test_text_path"});
  if (judged && key == "text_path") add({"eod_mask_loss", "reset_position_ids", "reset_attention_mask"});
  return keys;
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

void LanguageRecipe::fill_without_data(KeyOrigins& origins) {
  KeyFiller filler(origins);
  if (text.tokenizer == TokenizerKind::bytes) filler.fill("vocab_size", text.vocab_size, ByteTokenizer().size());
  if (!text.vocab_size) return;
  network_->fill(language_ports({.vocabulary = *text.vocab_size, .seq_length = text.seq_length}), filler);
}

// Of a validation, and of the test.
std::int64_t LanguageRecipe::judged_samples(std::int64_t global_batch_size) const {
  return text.eval_iters ? *text.eval_iters * global_batch_size : kAllSamples;
}

// Of a run on token files: as many training samples as the run takes, unless the config says how many there are.
std::array<std::int64_t, 3> LanguageRecipe::samples_of_sets(KeyOrigins& origins, const OpenRequest& request) {
  ISOBAR_CHECK(
      text.train_samples || request.iterations, origins.where("num_epochs"),
      " does not fit token files, whose order is made for a number of samples; set num_iters, or train_samples");
  const std::int64_t batch = request.global_batch_size;
  if (!text.train_samples) {
    ISOBAR_CHECK(*request.iterations <= kMostTrainSamples / batch, origins.where("num_iters"), " asks for ",
                 *request.iterations, " batches of ", batch, " samples, more than can be put in order");
    KeyFiller(origins).fill("train_samples", text.train_samples, *request.iterations * batch);
  }
  const std::int64_t judged = judged_samples(batch);
  const bool has_test = !text.has_paths_of_sets() || !text.test_token_path.empty();
  return {*text.train_samples, judged, has_test ? judged : 0};
}

std::unique_ptr<OpenedRecipe> LanguageRecipe::open(KeyOrigins& origins, const OpenRequest& request) {
  text.check_sources(origins);
  const std::string whole = text.reads_documents() ? "" : read_training_text(text);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_for(text, whole);
  std::vector<std::string> sentences;
  if (const std::string filled = fill(*tokenizer, origins); !filled.empty())
    sentences.push_back("from the data: " + filled);
  if (!text.reads_documents() && begins_as_json_lines(whole))
    sentences.push_back(text.text_path +
                        " looks like JSON lines, and is read as plain text: isobar data preprocess makes token files "
                        "of their texts");
  LanguageSets sets = text.reads_documents()
                          ? open_token_files(text, *tokenizer, samples_of_sets(origins, request))
                          : open_texts(text, whole, *tokenizer, judged_samples(request.global_batch_size));
  if (sets.of(DataSplit::valid) == nullptr)  // eval_iters 0
    sets.sets[1] = std::make_unique<NoSamples>("no validation set", sets.of(DataSplit::train)->layout());
  const TextInfo info = trained_info(*tokenizer, text, sets);
  if (info.resets_attention) sets.notes.push_back(sentence_on_pairs(info.share_of_pairs));
  return std::make_unique<OpenedLanguage>(network_, std::move(sets), info, std::move(sentences));
}

std::unique_ptr<OpenedSplit> LanguageRecipe::open_split(DataSplit split, const GivenWeights& weights) const {
  return std::make_unique<OpenedLanguageSplit>(network_, text, split, weights);
}

std::unique_ptr<TaskSource> LanguageRecipe::on_shapes() const {
  ISOBAR_CHECK(text.vocab_size, "the number of tokens is left to the data; set vocab_size");
  TextInfo info{.vocabulary = *text.vocab_size, .seq_length = text.seq_length};
  add_training_facts(text, info);
  std::string note;
  if (info.resets_attention && are_documents_there(text)) {
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(tokenizer_options(text));
    const LanguageSets sets = open_token_files(text, *tokenizer, {text.train_samples.value_or(kAllSamples), 0, 0});
    info.share_of_pairs = share_of_pairs_seen(*sets.of(DataSplit::train));
    note = sentence_on_pairs(info.share_of_pairs);
  } else if (info.resets_attention) {
    note = "attention sees all causal pairs in this prediction: no token files tell how long documents are";
  }
  return std::make_unique<LanguageOnShapes>(network_, info, std::move(note));
}

std::unique_ptr<LanguageModel> LanguageRecipe::trained_model(const GivenWeights& weights, const ComputeOptions& compute,
                                                             Device device) const {
  return std::make_unique<LanguageModel>(network_, compute, trained_text_of(weights), device);
}

OpenedLanguage::OpenedLanguage(std::shared_ptr<const NetworkRecipe> network, LanguageSets sets, TextInfo info,
                               std::vector<std::string> sentences)
    : network_(std::move(network)), sets_(std::move(sets)), info_(std::move(info)), sentences_(std::move(sentences)) {}

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
  ISOBAR_CHECK(trained.fingerprint == info_.fingerprint && trained.vocabulary == info_.vocabulary, train().name(),
               ": its ", info_.vocabulary, " tokens of the tokenizer ", info_.tokenizer, " (fingerprint ",
               info_.fingerprint, ") are not those that ", weights.file.string(),
               " was trained on: ", trained.vocabulary, " of ", trained.tokenizer, " (", trained.fingerprint, ")");
}

void OpenedLanguage::check_resume(const GivenWeights& weights) const {
  check_start(weights);
  if (!describes_text(weights.settings)) return;
  const TextInfo trained = text_info_from(weights.settings);
  const bool knows_order = info_.order.empty() || !trained.order.empty();
  ISOBAR_CHECK(trained.trained_on == (knows_order ? info_.trained_on : info_.trained_on_counted), train().name(),
               ": this is not the text that ", weights.file.string(), " was trained on");
  ISOBAR_CHECK(!knows_order || trained.order == info_.order, train().name(), ": ", train().samples(),
               " training samples would come in another order than those that ", weights.file.string(),
               " was trained on: in that of ", info_.order, ", not of ", trained.order, "; that order has at most ",
               trained.most_samples, " samples");
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
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options, info_);
  info_ = text_info(*tokenizer, info_.vocabulary, options.seq_length);
  note_ = sentence_on_set(options, split);
  if (options.eval_iters && split != DataSplit::train)
    note_ += concat("\nevery sample of the ", name_of_set(split), " is judged; the run's eval_iters took ",
                    *options.eval_iters, *options.eval_iters == 1 ? " batch" : " batches");
  if (!options.reads_documents()) {
    samples_ = open_text(options, split, *tokenizer);
    return;
  }
  std::array<std::int64_t, 3> samples{};
  const auto set = static_cast<std::size_t>(split);
  samples[set] = kAllSamples;
  LanguageSets sets = open_token_files(options, *tokenizer, samples);
  ISOBAR_CHECK(sets.sets[set] != nullptr, sets.notes.empty() ? "there is no such set" : sets.notes.back());
  samples_ = std::move(sets.sets[set]);
}

std::unique_ptr<Task> OpenedLanguageSplit::make_task(const ComputeOptions& compute, Device device) const {
  return std::make_unique<LanguageModel>(network_, compute, info_, device);
}

}  // namespace isobar
