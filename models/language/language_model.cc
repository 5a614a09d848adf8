#include "models/language/language_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "data/text/character_tokenizer.h"
#include "engine/files/json.h"
#include "engine/ops.h"
#include "engine/stream.h"
#include "engine/tape.h"
#include "kernels/common/check.h"
#include "models/classification/metrics.h"
#include "models/language/metrics.h"
#include "models/metrics_of.h"

namespace isobar {
namespace {

constexpr const char* kText = "isobar.text";

// Rows of logits that a CPU makes at a time, at most. More make no product quicker; a GPU is faster with more.
constexpr std::int64_t kLossRowsOfCpu = 256;

// Columns of a matrix, in ranges that are moved by `shift`, side by side.
Tensor columns_of(const Tensor& x, const std::vector<Part>& ranges, std::int64_t shift) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  std::int64_t count = 0;
  for (const Part& range : ranges) count += range.size();
  Tensor y = Tensor::empty({rows, count}, x.dtype(), x.device());
  std::int64_t before = 0;
  for (const Part& range : ranges) {
    copy_strided(y, {before, count}, x, {range.begin + shift, width}, rows, range.size());
    before += range.size();
  }
  return y;
}

bool is_whole(const std::vector<Part>& tokens, const TextInfo& info) {
  return tokens == std::vector{Part{0, info.seq_length}};
}

// Of these tokens of each sample.
Tensor inputs_of(const Batch& batch, const TextInfo& info, const std::vector<Part>& tokens) {
  return columns_of(samples_of(batch, "tokens", {info.seq_length + 1}), tokens, 0);
}

Tensor targets_of(const Batch& batch, const TextInfo& info, const std::vector<Part>& tokens) {
  if (!batch.contains("target")) return columns_of(samples_of(batch, "tokens", {info.seq_length + 1}), tokens, 1);
  const Tensor all = samples_of(batch, "target", {info.seq_length});
  return is_whole(tokens, info) ? all : columns_of(all, tokens, 0);
}

// Where the tokens stand, of samples whose documents do not see each other, or whose positions begin anew in each.
TokenPlaces places_of(const Batch& batch, const TextInfo& info, const std::vector<Part>& tokens) {
  TokenPlaces places;
  if (batch.contains("key_begin")) {
    places.key_begin = samples_of(batch, "key_begin", {info.seq_length});
    places.key_share = info.share_of_pairs;
  }
  if (!batch.contains("position")) return places;
  const Tensor all = samples_of(batch, "position", {info.seq_length});
  places.position = is_whole(tokens, info) ? all : columns_of(all, tokens, 0);
  return places;
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
  return {.in = {info.seq_length},
          .out = {info.seq_length, info.vocabulary},
          .vocabulary = info.vocabulary,
          .share_of_pairs = info.share_of_pairs};
}

LanguageModel::LanguageModel(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                             const TextInfo& info, Device device, const Parallel& parallel)
    : info_(info),
      parallel_(parallel),
      parameters_(std::make_unique<Parameters>()),
      network_(make_network(*network, language_ports(info), {*parameters_, compute, parallel})) {
  compute.allocate(*parameters_, device, parallel.bucket_plan());
}

// Of logits, of this rank; 0: all.
std::int64_t LanguageModel::rows_at_a_time(const Batch& batch) const {
  std::int64_t tokens = 0;
  for (const Part& part : network_->token_parts()) tokens += part.size();
  const std::int64_t rows = batch_size(batch) * tokens;
  if (info_.loss_rows) return std::min(*info_.loss_rows, rows);
  const std::int64_t of_two_blocks = 2 * network_->token_head().kept_by_block * rows;
  const std::int64_t fitting = of_two_blocks / network_->logit_columns().own.size();
  if (fitting >= rows) return 0;
  const bool is_cpu = behaviour_of(device()) == DeviceKind::cpu;
  return std::max<std::int64_t>(is_cpu ? std::min(fitting, kLossRowsOfCpu) : fitting, 1);
}

Tensor LanguageModel::loss(const Batch& batch, const Pass& pass) const {
  const std::span<const Stage> stages = network_->stages();
  const auto made = stages.first(stages.size() - static_cast<std::size_t>(stages_of_loss(batch)));
  return loss_of(run_stages(made, {input_of(batch)}, pass_over(batch, pass))[0], batch);
}

Tensor LanguageModel::input_of(const Batch& batch) const {
  return inputs_of(batch, info_, network_->token_parts());
}

Pass LanguageModel::pass_over(const Batch& batch, const Pass& pass) const {
  return pass.over(places_of(batch, info_, network_->token_parts())).over(batch_size(batch));
}

// The last stage is the product with the head; where its logits are made some rows at a time, the loss makes them.
std::int64_t LanguageModel::stages_of_loss(const Batch& batch) const {
  return rows_at_a_time(batch) > 0 ? 1 : 0;
}

Tensor LanguageModel::loss_of(const Tensor& output, const Batch& batch) const {
  const Tensor targets = targets_of(batch, info_, network_->token_parts());
  const std::int64_t some = rows_at_a_time(batch);
  if (some == 0)
    return vocab_cross_entropy(output, targets, kIgnoredLabel, network_->logit_columns(),
                               {.columns = parallel_.tp, .rows = parallel_.cp});
  const TokenHead head = network_->token_head();
  return vocab_head_loss(output, targets.numel(), head.weight, targets,
                         {.rows_at_a_time = some, .ignore = kIgnoredLabel, .tf32 = head.tf32},
                         network_->logit_columns(), parallel_);
}

double LanguageModel::weight(const Batch& batch) const {
  if (counts_samples()) return Task::weight(batch);
  const Tensor targets = targets_of(batch, info_, {{0, info_.seq_length}});
  if (!holds_values(targets.device())) return static_cast<double>(targets.numel());
  const std::vector<std::int32_t> ids = int_values(targets);
  return static_cast<double>(std::ssize(ids) - std::ranges::count(ids, kIgnoredLabel));
}

std::unique_ptr<Metrics> LanguageModel::metrics() const {
  return std::make_unique<LanguageMetrics>(info_.bytes);
}

void LanguageModel::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  const Tensor output = run_stages(network_->stages(), {input_of(batch)}, pass_over(batch, Pass()))[0];
  score_output(output, batch, metrics);
}

void LanguageModel::score_output(const Tensor& logits, const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  const Tensor targets = targets_of(batch, info_, network_->token_parts());
  const ClassPredictions predictions = vocab_predictions(logits, targets, network_->logit_columns(), parallel_.tp);
  const auto add_to = [&](LanguageMetrics& sums) {
    sums.add(predictions.row_loss.to_vector(), int_values(predictions.prediction), int_values(targets));
  };
  auto& all = metrics_of<LanguageMetrics>(metrics);
  if (parallel_.cp.size() == 1) return add_to(all);
  LanguageMetrics own(info_.bytes);
  add_to(own);
  parallel_.cp.all_reduce(own.sums().front());
  all.add(own);
}

Settings text_settings(const TextInfo& info) {
  nlohmann::ordered_json json{{"vocabulary", info.vocabulary}, {"seq_length", info.seq_length},
                              {"tokenizer", info.tokenizer},   {"fingerprint", info.fingerprint},
                              {"characters", info.characters}, {"trained_on", info.trained_on}};
  if (!info.order.empty()) json.update({{"order", info.order}, {"most_samples", info.most_samples}});
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
                        .trained_on = json.at("trained_on"),
                        .order = json.value("order", ""),
                        .most_samples = json.value("most_samples", std::int64_t{0})};
    ISOBAR_CHECK(info.vocabulary > 0 && info.seq_length > 0, kText, " describes no text");
    return info;
  } catch (const nlohmann::json::exception&) {
    throw_error("the description of the text in the metadata is damaged");
  }
}

}  // namespace isobar
