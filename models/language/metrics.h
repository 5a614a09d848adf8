// The metrics of a language model: its loss for a token, and what it is for a byte of text.
//
//   perplexity     exp(loss)
//   bits per byte  Σ losses / ln 2 / Σ bytes of the targets' text: it can be compared across tokenizers
//   accuracy       the fraction of targets that are the most likely token
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/task.h"

namespace isobar {

class LanguageMetrics : public Metrics {
 public:
  // bytes: of the text of each token. None: unknown, and bits per byte is not told.
  explicit LanguageMetrics(std::shared_ptr<const std::vector<std::int64_t>> bytes) : bytes_(std::move(bytes)) {}

  // Adds the loss, prediction and target of some tokens; targets of kIgnoredLabel are not counted. Error for a target
  // that is not in the vocabulary.
  void add(const std::vector<double>& losses, const std::vector<std::int32_t>& predictions,
           const std::vector<std::int32_t>& targets);

  // Adds what others have added up.
  void add(const LanguageMetrics& other);

  void begin() override { sums_ = {0, 0, 0, 0}; }
  std::vector<std::span<double>> sums() override { return {sums_}; }
  double loss() const override { return sums_[0] / sums_[1]; }
  double perplexity() const;
  double accuracy() const { return sums_[2] / sums_[1]; }
  double bits_per_byte() const;
  // In metrics.jsonl: perplexity, bits_per_byte, token_accuracy. In summary.json: val_perplexity and so on.
  Report report(DataSplit split) const override;

 private:
  bool knows_bytes() const { return bytes_ != nullptr && sums_[3] > 0; }

  std::shared_ptr<const std::vector<std::int64_t>> bytes_;
  std::vector<double> sums_ = {0, 0, 0, 0};  // losses, targets, right predictions, bytes
};

}  // namespace isobar
