// Samples of text: windows of tokens, in Megatron's random order (data/text/sample_index.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/text/sample_index.h"
#include "data/text/token_documents.h"

namespace isobar {

struct TokenSamplesOptions {
  std::int64_t first = 0, last = 0;  // the documents that are used: first <= d < last
  std::int64_t seq_length = 0;       // T
  std::int64_t samples = 0;          // 0: those of one epoch
  std::uint32_t seed = 1234;
  // Of documents in a sample, which end with the token eod. It belongs to the document that it ends.
  bool reset_position_ids = false;    // positions begin at 0 in each
  bool reset_attention_mask = false;  // a token sees those of its own document only
  bool eod_mask_loss = false;         // no target behind an eod: nothing tells which document comes
  std::int64_t eod = -1;
};

// Sample k of the run is entry k of the shuffle index: an epoch of the loader is the whole run, and the sampler is not
// asked to shuffle.
class TokenSamples : public Dataset {
 public:
  // Error if a reset is asked for and there is no eod, and as of SampleIndex.
  TokenSamples(std::shared_ptr<const TokenDocuments> documents, const TokenSamplesOptions& options);

  std::string name() const override { return documents_->name(); }
  std::int64_t samples() const override { return samples_; }  // those that were asked for
  bool has_own_order() const override { return true; }
  // "tokens" [T + 1] i32: inputs are the first T, targets the last T. With reset_position_ids "position" [T] i32; with
  // reset_attention_mask "key_begin" [T] i32, the first place that each sees; with eod_mask_loss "target" [T] i32, the
  // targets with kIgnoredLabel (kernels/cross_entropy.h) where the input is eod.
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

  const SampleIndex& index() const { return index_; }

 private:
  void read_tokens(std::int64_t sample, std::span<std::int32_t> tokens) const;

  std::shared_ptr<const TokenDocuments> documents_;
  TokenSamplesOptions options_;
  SampleIndex index_;
  std::int64_t samples_ = 0;
};

// Of the pairs of a token and one that it may see in a causal sample, T·(T + 1)/2, those within one document: the mean
// over `most` samples at most, evenly spaced. 1 of samples without "key_begin".
double share_of_pairs_seen(const Dataset& samples, std::int64_t most = 256);

}  // namespace isobar
