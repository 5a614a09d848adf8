#include "models/language/language_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/text/character_tokenizer.h"
#include "engine/files/json.h"
#include "engine/ops.h"
#include "engine/stream.h"
#include "engine/tape.h"
#include "kernels/common/check.h"
#include "kernels/copy_strided.h"
#include "models/classification/metrics.h"
#include "models/language/metrics.h"
#include "models/metrics_of.h"

namespace isobar {
namespace {

constexpr const char* kText = "isobar.text";

// Columns [first, first + count) of a matrix.
Tensor columns_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  Tensor y = Tensor::empty({rows, count}, x.dtype(), x.device());
  ISOBAR_RUN(x.device(), copy_strided,
             {.blocks = rows,
              .length = count,
              .source_stride = width,
              .destination_stride = count,
              .dtype = x.dtype(),
              .source = x.data_as<std::int32_t>() + first,
              .destination = y.data()},
             current_stream());
  return y;
}

// Samples whose documents do not see each other, or whose positions begin anew in each: no kernel computes them.
void refuse_document_samples(const Batch& batch) {
  for (const auto& [tensor, option] :
       {std::pair("key_begin", "reset_attention_mask"), std::pair("position", "reset_position_ids")})
    ISOBAR_CHECK(!batch.contains(tensor), "the samples have \"", tensor, "\" (", option,
                 "): attention and positions of a language model are those of whole samples");
}

Tensor inputs_of(const Batch& batch, const TextInfo& info) {
  refuse_document_samples(batch);
  return columns_of(samples_of(batch, "tokens", {info.seq_length + 1}), 0, info.seq_length);
}

Tensor targets_of(const Batch& batch, const TextInfo& info) {
  if (batch.contains("target")) return samples_of(batch, "target", {info.seq_length});
  return columns_of(samples_of(batch, "tokens", {info.seq_length + 1}), 1, info.seq_length);
}

}  // namespace

TextInfo text_info(const Tokenizer& tokenizer, std::int64_t vocabulary, std::int64_t seq_length) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(vocabulary), 0);
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) bytes[static_cast<std::size_t>(id)] = tokenizer.bytes_of(id);
  const auto* characters = dynamic_cast<const CharacterTokenizer*>(&tokenizer);
  return {.vocabulary = vocabulary,
          .seq_length = seq_length,
          .tokenizer = tokenizer.type(),
          .fingerprint = fingerprint_text(tokenizer.fingerprint()),
          .characters = characters != nullptr ? characters->table() : "",
          .bytes = std::make_shared<const std::vector<std::int64_t>>(std::move(bytes))};
}

Ports language_ports(const TextInfo& info) {
  return {.in = {info.seq_length}, .out = {info.seq_length, info.vocabulary}, .vocabulary = info.vocabulary};
}

LanguageModel::LanguageModel(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                             const TextInfo& info, Device device, const Parallel& parallel)
    : info_(info),
      parameters_(std::make_unique<Parameters>()),
      network_(make_network(*network, language_ports(info), {*parameters_, compute, parallel})) {
  compute.allocate(*parameters_, device, parallel.bucket_plan());
}

Tensor LanguageModel::loss(const Batch& batch, const Pass& pass) const {
  return loss_of(logits(input_of(batch), pass), batch);
}

Tensor LanguageModel::input_of(const Batch& batch) const {
  return inputs_of(batch, info_);
}

Tensor LanguageModel::loss_of(const Tensor& logits, const Batch& batch) const {
  return cross_entropy(logits, targets_of(batch, info_), kIgnoredLabel, network_->padded_columns());
}

double LanguageModel::weight(const Batch& batch) const {
  if (counts_samples()) return Task::weight(batch);
  const Tensor targets = targets_of(batch, info_);
  if (!holds_values(targets.device())) return static_cast<double>(targets.numel());
  const std::vector<std::int32_t> ids = int_values(targets);
  return static_cast<double>(std::ssize(ids) - std::ranges::count(ids, kIgnoredLabel));
}

std::unique_ptr<Metrics> LanguageModel::metrics() const {
  return std::make_unique<LanguageMetrics>(info_.bytes);
}

void LanguageModel::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  score_output(logits(input_of(batch)), batch, metrics);
}

void LanguageModel::score_output(const Tensor& logits, const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  const Tensor targets = targets_of(batch, info_);
  const ClassPredictions predictions = class_predictions(logits, targets, network_->padded_columns());
  metrics_of<LanguageMetrics>(metrics).add(predictions.row_loss.to_vector(), int_values(predictions.prediction),
                                           int_values(targets));
}

Settings LanguageModel::settings() const {
  const nlohmann::ordered_json json{{"vocabulary", info_.vocabulary}, {"seq_length", info_.seq_length},
                                    {"tokenizer", info_.tokenizer},   {"fingerprint", info_.fingerprint},
                                    {"characters", info_.characters}, {"trained_on", info_.trained_on}};
  return {{kText, json.dump()}};
}

bool describes_text(const Settings& settings) {
  return settings.contains(kText);
}

TextInfo text_info_from(const Settings& settings) {
  try {
    const auto json = parse_json<nlohmann::json>(settings.at(kText), kText);
    const TextInfo info{.vocabulary = json.at("vocabulary"),
                        .seq_length = json.at("seq_length"),
                        .tokenizer = json.at("tokenizer"),
                        .fingerprint = json.at("fingerprint"),
                        .characters = json.at("characters"),
                        .trained_on = json.at("trained_on")};
    ISOBAR_CHECK(info.vocabulary > 0 && info.seq_length > 0, kText, " describes no text");
    return info;
  } catch (const nlohmann::json::exception&) {
    throw_error("the description of the text in the metadata is damaged");
  }
}

}  // namespace isobar
