#include "data/text/token_samples.h"

#include <algorithm>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"

namespace isobar {
namespace {

// For each place the first place of its document in this sample.
std::vector<std::int32_t> document_begins(std::span<const std::int32_t> inputs, std::int64_t eod) {
  std::vector<std::int32_t> begins(inputs.size());
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    begins[i] = begin;
    if (inputs[i] == eod) begin = static_cast<std::int32_t>(i) + 1;
  }
  return begins;
}

}  // namespace

TokenSamples::TokenSamples(std::shared_ptr<const TokenDocuments> documents, const TokenSamplesOptions& options)
    : documents_(std::move(documents)),
      options_(options),
      index_({.name = documents_->name(),
              .lengths = documents_->lengths(),
              .first = options.first,
              .last = options.last,
              .seq_length = options.seq_length,
              .samples = options.samples,
              .seed = options.seed}),
      samples_(options.samples > 0 ? options.samples : index_.samples()) {
  const bool needs_eod = options.reset_position_ids || options.reset_attention_mask || options.eod_mask_loss;
  ISOBAR_CHECK(!needs_eod || options.eod >= 0, documents_->name(),
               ": reset_position_ids, reset_attention_mask and eod_mask_loss need a token that ends a document");
}

std::vector<TensorSpec> TokenSamples::layout() const {
  const std::int64_t length = options_.seq_length;
  std::vector<TensorSpec> specs{{.name = "tokens", .shape = {length + 1}, .dtype = DType::i32}};
  if (options_.reset_position_ids) specs.push_back({.name = "position", .shape = {length}, .dtype = DType::i32});
  if (options_.reset_attention_mask) specs.push_back({.name = "key_begin", .shape = {length}, .dtype = DType::i32});
  if (options_.eod_mask_loss) specs.push_back({.name = "target", .shape = {length}, .dtype = DType::i32});
  return specs;
}

void TokenSamples::read_tokens(std::int64_t sample, std::span<std::int32_t> tokens) const {
  SamplePlace place = index_.place(index_.shuffle()[static_cast<std::size_t>(sample)]);
  while (!tokens.empty()) {
    const std::int64_t document = index_.documents()[static_cast<std::size_t>(place.position)];
    const std::int64_t left = documents_->lengths()[static_cast<std::size_t>(document)] - place.offset;
    const auto taken = static_cast<std::size_t>(std::min(left, std::ssize(tokens)));
    if (taken > 0) documents_->read(document, place.offset, tokens.first(taken));
    tokens = tokens.subspan(taken);
    place = {.position = place.position + 1, .offset = 0};
  }
}

void TokenSamples::read(const SampleKey& key, std::span<void* const> to) const {
  ISOBAR_CHECK(key.sample >= 0 && key.sample < samples_, name(), ": sample ", key.sample, " of ", samples_,
               " is asked for");
  const auto length = static_cast<std::size_t>(options_.seq_length);
  const std::span tokens(static_cast<std::int32_t*>(to[0]), length + 1);
  read_tokens(key.sample, tokens);
  const std::span inputs = tokens.first(length);
  std::vector<std::int32_t> begins;
  if (options_.reset_position_ids || options_.reset_attention_mask) begins = document_begins(inputs, options_.eod);
  std::size_t next = 1;
  if (options_.reset_position_ids) {
    auto* position = static_cast<std::int32_t*>(to[next++]);
    for (std::size_t i = 0; i < length; ++i) position[i] = static_cast<std::int32_t>(i) - begins[i];
  }
  if (options_.reset_attention_mask) std::ranges::copy(begins, static_cast<std::int32_t*>(to[next++]));
  if (options_.eod_mask_loss) {
    auto* target = static_cast<std::int32_t*>(to[next++]);
    for (std::size_t i = 0; i < length; ++i) target[i] = inputs[i] == options_.eod ? kIgnoredLabel : tokens[i + 1];
  }
}

double share_of_pairs_seen(const Dataset& samples, std::int64_t most) {
  const std::vector<TensorSpec> layout = samples.layout();
  const auto found = std::ranges::find(layout, "key_begin", &TensorSpec::name);
  if (found == layout.end()) return 1;
  std::vector<std::vector<std::int32_t>> tensors;
  std::vector<void*> to;
  for (const TensorSpec& spec : layout) tensors.emplace_back(static_cast<std::size_t>(spec.shape.at(0)));
  for (auto& tensor : tensors) to.push_back(tensor.data());
  const std::vector<std::int32_t>& begins = tensors[static_cast<std::size_t>(found - layout.begin())];
  const std::int64_t count = std::min(most, samples.samples());
  double seen = 0, causal = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    samples.read({.sample = k * samples.samples() / count}, to);
    for (std::size_t i = 0; i < begins.size(); ++i) {
      seen += static_cast<double>(i + 1) - begins[i];
      causal += static_cast<double>(i + 1);
    }
  }
  return seen / causal;
}

}  // namespace isobar
