// The task of modelling text: a network from tokens to logits of the tokens that follow, with cross entropy. The loss
// is the mean over the targets that count.
#pragma once

#include <cstdint>
#include <memory>
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
  std::string tokenizer = {};    // "characters"
  std::string fingerprint = {};  // of the tokenizer
  std::string characters = {};   // the table of the tokenizer `characters`, else empty
  std::string trained_on = {};   // checksum of the tokens of the training set
  bool ignores_targets = false;  // whether training samples have targets that do not count
  std::shared_ptr<const std::vector<std::int64_t>> bytes = {};  // of the text of each token; null: unknown
};

// vocabulary: at least as many as the tokenizer has.
TextInfo text_info(const Tokenizer& tokenizer, std::int64_t vocabulary, std::int64_t seq_length);
Ports language_ports(const TextInfo& info);

class LanguageModel : public Task, public StagedTask {
 public:
  // Weights are initialised from compute.seed. Error for fp64 on a GPU.
  LanguageModel(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                const TextInfo& info, Device device, const Parallel& parallel = Parallel::alone());

  // Ids [B, T] i32, of any T that the network takes -> logits [B·T, columns], in the activation's dtype. The first
  // columns are those of the vocabulary.
  Tensor logits(const Tensor& ids, const Pass& pass = {}) const { return (*network_)(ids, pass); }
  const TextInfo& info() const { return info_; }

  std::string network() const override { return network_->name() + " language model"; }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  // A batch has "tokens" [B, T + 1] i32: the inputs are the first T, the targets the last T. If it has "target" [B, T],
  // these are the targets, and kIgnoredLabel does not count. Error for samples with "key_begin" or "position"
  // (data/text/token_samples.h), which no kernel computes.
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  // The number of targets that count; on the device meta, where they have no values, all of them.
  double weight(const Batch& batch) const override;
  bool counts_samples() const override { return !info_.ignores_targets; }
  const StagedTask* staged() const override { return this; }
  const Network& staged_network() const override { return *network_; }
  Tensor input_of(const Batch& batch) const override;
  Tensor loss_of(const Tensor& logits, const Batch& batch) const override;
  void score_output(const Tensor& logits, const Batch& batch, Metrics& metrics) const override;
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  std::vector<Picture> pictures(const Batch&, std::int64_t) const override { return {}; }
  Settings settings() const override;
  std::unique_ptr<TensorReader> open_weights(const std::filesystem::path& path) const override {
    return network_->open_weights(path);
  }

 private:
  TextInfo info_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
};

// The inverse of LanguageModel::settings, without `bytes`; Error for any other settings.
TextInfo text_info_from(const Settings& settings);
bool describes_text(const Settings& settings);

}  // namespace isobar
