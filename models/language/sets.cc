#include "models/language/sets.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "data/text/character_tokenizer.h"
#include "data/text/text_data.h"
#include "data/text/text_windows.h"
#include "data/text/utf8.h"
#include "engine/files/checksum.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// "byte 5 (in line 2)" of a text.
std::string place_in(std::string_view text, std::size_t byte) {
  return concat("byte ", byte + 1, " (in line ", 1 + std::ranges::count(text.substr(0, byte), '\n'), ")");
}

std::string read_text(const std::string& path) {
  std::string text = read_file(path);
  if (const std::optional<std::size_t> bad = first_invalid_byte(text))
    throw_error(path, ": ", place_in(text, *bad),
                " is not UTF-8; isobar data preprocess --invalid replace takes such a text");
  ISOBAR_CHECK(!text.empty(), path, ": the file is empty");
  return text;
}

// Of a part of a file's text. Error naming the place in the file.
std::shared_ptr<const TokenText> tokens_of(const Tokenizer& tokenizer, std::string_view whole, std::string_view part,
                                           const std::string& name) {
  try {
    return std::make_shared<const TokenText>(TokenText{name, tokenizer.encode(part)});
  } catch (const TextError& error) {
    const auto before = static_cast<std::size_t>(part.data() - whole.data());
    throw_error(name, ": ", error.at(place_in(whole, before + error.byte())));
  } catch (const Error& error) {
    throw_error(name, ": ", error.what());
  }
}

std::shared_ptr<const TokenText> tokens_in(const std::string& path, const Tokenizer& tokenizer) {
  const std::string text = read_text(path);
  return tokens_of(tokenizer, text, text, path);
}

// The tokens of a set. text: of text_path.
std::shared_ptr<const TokenText> tokens_of(const TextOptions& options, DataSplit split, const std::string& text,
                                           const Tokenizer& tokenizer) {
  if (split == DataSplit::test) return tokens_in(options.test_text_path, tokenizer);
  const bool has_own_file = !options.valid_text_path.empty();
  if (split == DataSplit::valid && has_own_file) return tokens_in(options.valid_text_path, tokenizer);
  const auto [first, rest] = cut_text(text, has_own_file ? 0 : options.valid_fraction);
  return tokens_of(tokenizer, text, split == DataSplit::train ? first : rest, options.text_path);
}

}  // namespace

std::string read_training_text(const TextOptions& options) {
  ISOBAR_CHECK(std::filesystem::exists(options.text_path), options.text_path,
               " does not exist: name a file of text, or a token file, with --data");
  return read_text(options.text_path);
}

TokenizerOptions tokenizer_options(const TextOptions& options) {
  return {.type = name_of_enum(options.tokenizer),
          .vocab_file = options.vocab_file,
          .merge_file = options.merge_file,
          .model = options.tokenizer_model,
          .numbers = options.tokenizer == TokenizerKind::numbers ? options.vocab_size.value_or(1) - 1 : 0};
}

std::unique_ptr<Tokenizer> tokenizer_for(const TextOptions& options, const std::string& text) {
  if (options.reads_documents() || options.tokenizer != TokenizerKind::characters)
    return open_tokenizer(tokenizer_options(options));
  std::set<char32_t> characters;
  add_characters(text, characters);
  return std::make_unique<CharacterTokenizer>(characters);
}

LanguageSets open_texts(const TextOptions& options, const std::string& text, const Tokenizer& tokenizer,
                        std::int64_t judged) {
  LanguageSets opened;
  const auto trained = tokens_of(options, DataSplit::train, text, tokenizer);
  opened.sets[0] = std::make_unique<TrainingWindows>(trained, options.seq_length);
  for (const DataSplit split : {DataSplit::valid, DataSplit::test})
    if (judged != 0 && (split == DataSplit::valid || !options.test_text_path.empty()))
      opened.sets[static_cast<std::size_t>(split)] =
          std::make_unique<WholeTextWindows>(tokens_of(options, split, text, tokenizer), options.seq_length,
                                             judged == kAllSamples ? std::numeric_limits<std::int64_t>::max() : judged);
  opened.trained_on = fingerprint_text(xxh64(std::as_bytes(std::span(trained->ids))));
  return opened;
}

std::unique_ptr<const Dataset> open_text(const TextOptions& options, DataSplit split, const Tokenizer& tokenizer) {
  ISOBAR_CHECK(split != DataSplit::test || !options.test_text_path.empty(),
               "there is no test set: name one by the config key test_text_path");
  const bool reads_text_path =
      split == DataSplit::train || (split == DataSplit::valid && options.valid_text_path.empty());
  const std::string text = reads_text_path ? read_training_text(options) : "";
  return std::make_unique<WholeTextWindows>(tokens_of(options, split, text, tokenizer), options.seq_length);
}

LanguageSets open_token_files(const TextOptions& options, const Tokenizer& tokenizer,
                              const std::array<std::int64_t, 3>& samples) {
  TextData data = open_text_data(
      {.data_path = options.data_path.words,
       .split = options.split,
       .rule = options.split_rule,
       .paths = {options.train_token_path.words, options.valid_token_path.words, options.test_token_path.words},
       .is_mock = options.mock_data,
       .seq_length = options.seq_length,
       .samples = samples,
       .may_lack_test = true,
       .seed = static_cast<std::uint32_t>(options.data_seed),
       .reset_position_ids = options.reset_position_ids,
       .reset_attention_mask = options.reset_attention_mask,
       .eod_mask_loss = options.eod_mask_loss,
       .vocabulary = tokenizer.size(),
       .eod = tokenizer.specials().eod,
       .fingerprint = fingerprint_text(tokenizer.fingerprint())});
  LanguageSets opened{.trained_on = fingerprint_text(data.trained_on),
                      .trained_on_counted = fingerprint_text(data.trained_on_counted),
                      .order = std::move(data.order),
                      .most_samples = data.most_samples,
                      .notes = std::move(data.notes)};
  std::ranges::move(data.sets, opened.sets.begin());
  return opened;
}

}  // namespace isobar
