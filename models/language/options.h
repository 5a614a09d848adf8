// The text to model: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "data/text/sample_index.h"
#include "engine/keys.h"

namespace isobar {

enum class TokenizerKind : std::uint8_t { characters, bytes, gpt2_bpe, numbers };

template <>
struct EnumNames<SplitRule> {
  static constexpr std::array names{"legacy", "core"};
};
template <>
struct EnumNames<TokenizerKind> {
  static constexpr std::array names{"characters", "bytes", "gpt2_bpe", "numbers"};
};

struct TextOptions {
  std::string text_path = "data/text.txt";
  std::string valid_text_path;  // empty: the end of text_path
  std::string test_text_path;   // empty: no test set
  double valid_fraction = 0.1;

  // Token files, instead of text: data_path with split, or paths for each set; or tokens that are made up.
  PathList data_path, train_token_path, valid_token_path, test_token_path;
  bool mock_data = false;
  std::string split = "969,30,1";
  SplitRule split_rule = SplitRule::legacy;
  std::optional<std::int64_t> train_samples;  // null: those of the run
  std::optional<std::int64_t> eval_iters;     // batches; null: all samples
  std::int64_t data_seed = 1234;
  bool eod_mask_loss = false, reset_position_ids = false, reset_attention_mask = false;

  TokenizerKind tokenizer = TokenizerKind::characters;
  std::string vocab_file, merge_file, tokenizer_model;
  std::int64_t seq_length = 1024;
  std::optional<std::int64_t> vocab_size;
  std::optional<std::int64_t> loss_rows;

  KeyTable keys();

  // Error if they name their data in two ways, or in none that is whole, and for a tokenizer that lacks what it needs.
  void check_sources(const KeyOrigins& origins) const;

  bool has_paths_of_sets() const {
    return !train_token_path.empty() || !valid_token_path.empty() || !test_token_path.empty();
  }
  // Samples of documents, of files or made up, in their own order (data/text/text_data.h).
  bool reads_documents() const { return mock_data || !data_path.empty() || has_paths_of_sets(); }
};

}  // namespace isobar
