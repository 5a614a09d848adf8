// The task of modelling text: a network from tokens to logits of the tokens that follow, with cross entropy. The loss
// is the mean over the targets that count.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/parallel.h"
#include "data/text/tokenizer.h"
#include "models/compute_options.h"
#include "models/network.h"
#include "models/staged_task.h"
#include "models/task.h"

namespace isobar {

// Facts about the text that the data determine.
struct TextInfo {
  std::int64_t vocabulary = 0, seq_length = 0;
  std::string tokenizer = {};           // "characters"
  std::string fingerprint = {};         // of the tokenizer
  std::string characters = {};          // the table of the tokenizer `characters`, else empty
  std::string trained_on = {};          // checksum of the tokens of the training set
  std::string trained_on_counted = {};  // that of weights which do not know the order; not written
  std::string order = {};         // of its samples, where they are put in order for the whole run (TextData::order)
  std::int64_t most_samples = 0;  // the largest number of samples that have it
  bool ignores_targets = false;   // whether training samples have targets that do not count
  bool resets_positions = false, resets_attention = false;  // whether they have "position", "key_begin"
  double share_of_pairs = 1;  // that documents leave of a causal sample's: data/text/token_samples.h
  // How many rows of logits a training pass makes at a time; 0: all, which are kept; null: as many as take the memory
  // of two blocks, all if that is enough.
  std::optional<std::int64_t> loss_rows = {};
  std::shared_ptr<const std::vector<std::int64_t>> bytes = {};  // of the text of each token; null: unknown
};

// vocabulary: at least as many as the tokenizer has.
TextInfo text_info(const Tokenizer& tokenizer, std::int64_t vocabulary, std::int64_t seq_length);
Ports language_ports(const TextInfo& info);
// What is kept with the weights of such a text, and its inverse, without `bytes`. Error for other settings.
Settings text_settings(const TextInfo& info);
TextInfo text_info_from(const Settings& settings);
bool describes_text(const Settings& settings);

class LanguageModel : public Task, public StagedTask {
 public:
  // Weights are initialised from compute.seed. Error for fp64 on a GPU.
  LanguageModel(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                const TextInfo& info, Device device, const Parallel& parallel = Parallel::alone());

  // Ids [B, T] i32, of any T that the network takes -> logits [B·T, columns], in the activation's dtype. The first
  // columns are those of the vocabulary; a tensor-parallel rank has some of the columns (Network::logit_columns).
  Tensor logits(const Tensor& ids, const Pass& pass = {}) const { return (*network_)(ids, pass); }
  const TextInfo& info() const { return info_; }

  std::string network() const override { return network_->name() + " language model"; }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  // A batch has "tokens" [B, T + 1] i32: the inputs are the first T, the targets the last T. If it has "target" [B, T],
  // these are the targets, and kIgnoredLabel does not count. If it has "key_begin" [B, T], a token sees none before
  // that one; if it has "position" [B, T], these are the tokens' positions (data/text/token_samples.h).
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  // The number of targets that count; on the device meta, where they have no values, all of them.
  double weight(const Batch& batch) const override;
  bool counts_samples() const override { return !info_.ignores_targets; }
  const StagedTask* staged() const override { return this; }
  const Network& staged_network() const override { return *network_; }
  Tensor input_of(const Batch& batch) const override;
  Pass pass_over(const Batch& batch, const Pass& pass) const override;
  std::int64_t stages_of_loss(const Batch& batch) const override;
  Tensor loss_of(const Tensor& output, const Batch& batch) const override;
  void score_output(const Tensor& logits, const Batch& batch, Metrics& metrics) const override;
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  std::vector<Picture> pictures(const Batch&, std::int64_t) const override { return {}; }
  Settings settings() const override { return text_settings(info_); }
  std::unique_ptr<TensorReader> open_weights(const std::filesystem::path& path) const override {
    return network_->open_weights(path);
  }

 private:
  std::int64_t rows_at_a_time(const Batch& batch) const;

  TextInfo info_;
  const Parallel& parallel_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
};

}  // namespace isobar
