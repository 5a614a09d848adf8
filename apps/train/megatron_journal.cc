#include "apps/train/megatron_journal.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/keys.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

// What the config's keys say of the network; the defaults are those of its own keys.
GptSizes sizes_in(const ordered_json& config) {
  const auto size = [&](const char* key, std::int64_t otherwise) {
    return config.contains(key) && config.at(key).is_number_integer() ? config.at(key).get<std::int64_t>() : otherwise;
  };
  GptSizes sizes{.layers = size("depth", 0), .width = size("embed_dim", 0), .heads = size("num_heads", 1)};
  constexpr std::int64_t kHiddenPerChannel = 4;
  sizes.hidden = size("mlp_hidden", kHiddenPerChannel * sizes.width);
  sizes.head_size = size("head_size", sizes.width / sizes.heads);
  sizes.seq_length = size("seq_length", 0);
  const std::int64_t multiple = size("vocab_multiple", 1);
  sizes.rows = ceil_div(size("vocab_size", 0), multiple) * multiple;
  return sizes;
}

}  // namespace

Lines MegatronVoice::start_lines() const {
  Lines lines{megatron_world_line(layout, format), concat("using torch.", dtype, " for parameters ...")};
  const Lines listed = megatron_argument_lines(arguments);
  lines.insert(lines.end(), listed.begin(), listed.end());
  lines.insert(lines.end(), accepted.begin(), accepted.end());
  return lines;
}

void PhaseSeconds::add(const StepResult& result) {
  forward_backward += result.pass_seconds;
  batch_generator += result.data_seconds;
  gradients += result.reduce_seconds;
  optimizer += result.update_seconds;
}

std::vector<std::string> megatron_timer_names(std::int64_t timing_level) {
  if (timing_level <= 0) return {};
  if (timing_level == 1) return {"forward-backward", "all-grads-sync", "optimizer"};
  return {"forward-backward", "batch-generator", "all-grads-sync", "optimizer"};
}

std::vector<double> of_level(const PhaseSeconds& s, std::int64_t timing_level) {
  if (timing_level <= 0) return {};
  if (timing_level == 1) return {s.forward_backward, s.gradients, s.optimizer};
  return {s.forward_backward, s.batch_generator, s.gradients, s.optimizer};
}

MegatronJournal::MegatronJournal(MegatronVoice voice, const ordered_json& config, Say say,
                                 std::optional<std::int64_t> purge_step, std::int64_t first_iteration)
    : voice_(std::move(voice)), say_(std::move(say)) {
  const GptSizes sizes = sizes_in(config);
  flops_of_sample_ = megatron_flops_of_sample(sizes);
  rows_ = sizes.rows;
  tokens_ = config.value("vocab_size", ordered_json()).is_number_integer() ? config.at("vocab_size").get<std::int64_t>()
                                                                           : sizes.rows;
  if (voice_.split) split_ = voice_.split();
  if (voice_.tensorboard_folder.empty()) return;
  board_.emplace(voice_.tensorboard_folder, purge_step);
  for (const auto& [name, value] : voice_.arguments) board_->text(name, value, first_iteration);
}

void MegatronJournal::say(const Lines& lines) const {
  for (const std::string& line : lines) say_(line);
}

void MegatronJournal::begin(const MegatronRun& run) {
  iterations_ = run.iterations;
  say_(megatron_vocabulary_line(tokens_, rows_));
  say_("building GPT model ...");
  for (const auto& [tp, pp, parameters] : run.parameters) say_(megatron_parameters_line(tp, pp, parameters));
  say_(megatron_datetime_line("after model, optimizer, and learning rate scheduler are built", megatron_now()));
  say_("> building train, validation, and test datasets ...");
  say(megatron_target_lines(run.samples));
  if (!split_.empty() && voice_.format == MegatronFormat::legacy) say(megatron_split_lines(split_));
  say_("> finished creating GPT datasets ...");
  say_(megatron_datetime_line("after dataloaders are built", megatron_now()));
  say_("done with setup ...");
}

void MegatronJournal::predicts(std::size_t peak, std::size_t held) {
  if (voice_.format == MegatronFormat::core)
    say_(megatron_footprint_line(static_cast<double>(held), static_cast<double>(peak)));
}

void MegatronJournal::training_begins() {
  say_("training ...");
  say_(megatron_datetime_line("before the start of training step", megatron_now()));
}

void MegatronJournal::iteration(const MegatronIteration& step, const std::vector<MegatronTimer>& timers) {
  seconds_ += step.seconds;
  if (step.result.applied) {
    ++advanced_;
    loss_ += step.result.loss;
  } else {
    ++skipped_;
  }
  if (board_ && step.iteration % voice_.tensorboard_every == 0) write_scalars(step);
  if (ends_interval(step.iteration)) end_interval(step, timers);
}

void MegatronJournal::write_validation(std::int64_t iteration, std::int64_t consumed_samples, double loss) {
  last_validation_ = iteration;
  if (!board_) return;
  scalar("lm loss validation", loss, iteration, consumed_samples);
  if (voice_.perplexity) scalar("lm loss validation ppl", megatron_perplexity(loss), iteration, consumed_samples);
}

void MegatronJournal::scalar(const std::string& tag, double value, std::int64_t iteration, std::int64_t samples) {
  board_->scalar(tag, value, iteration);
  board_->scalar(tag + " vs samples", value, samples);
}

void MegatronJournal::write_scalars(const MegatronIteration& step) {
  const auto write = [&](const char* tag, double value) { scalar(tag, value, step.iteration, step.consumed_samples); };
  if (voice_.learning_rate) write("learning-rate", step.result.next_lr);
  if (voice_.batch_size) write("batch-size", static_cast<double>(step.samples));
  if (step.result.applied) write("lm loss", step.result.loss);
  if (voice_.loss_scale) write("loss-scale", step.result.next_loss_scale);
  if (voice_.world_size) write("world-size", static_cast<double>(voice_.layout.world));
  if (step.result.applied) write("grad-norm", step.result.grad_norm);
  if (step.zeros) write("num-zeros", *step.zeros);
  if (step.params_norm) write("params-norm", *step.params_norm);
  if (!voice_.memory) return;
  board_->scalar("mem-reserved-bytes", static_cast<double>(memory_bytes() + pooled_memory_bytes()), step.iteration);
  board_->scalar("mem-allocated-bytes", static_cast<double>(memory_bytes()), step.iteration);
  board_->scalar("mem-max-allocated-bytes", static_cast<double>(peak_memory_bytes()), step.iteration);
}

std::optional<double> MegatronJournal::tflops(double seconds_per_iteration, std::int64_t samples) const {
  if (!voice_.throughput || seconds_per_iteration <= 0) return std::nullopt;
  constexpr double kTera = 1e12;
  return static_cast<double>(samples) * flops_of_sample_ /
         (seconds_per_iteration * kTera * static_cast<double>(voice_.layout.world));
}

void MegatronJournal::end_interval(const MegatronIteration& step, const std::vector<MegatronTimer>& timers) {
  const auto iterations = static_cast<double>(advanced_ + skipped_);
  const double seconds = seconds_ / iterations;
  const std::optional<double> rate = tflops(seconds, step.samples);
  say_(megatron_training_line({.iteration = step.iteration,
                               .iterations = iterations_,
                               .consumed_samples = step.consumed_samples,
                               .seconds_per_iteration = seconds,
                               .lr = step.result.next_lr,
                               .global_batch_size = step.samples,
                               .loss = loss_ / static_cast<double>(std::max<std::int64_t>(advanced_, 1)),
                               .loss_scale = step.result.next_loss_scale,
                               .grad_norm = step.result.applied ? std::optional(step.result.grad_norm) : std::nullopt,
                               .zeros = step.zeros,
                               .params_norm = step.params_norm,
                               .tflops = rate,
                               .skipped = skipped_},
                              voice_.format, megatron_now()));
  if (!memory_is_told_ && step.result.next_lr > 0) {
    memory_is_told_ = true;
    const auto held = static_cast<double>(memory_bytes()), peak = static_cast<double>(peak_memory_bytes());
    const auto pooled = static_cast<double>(pooled_memory_bytes());
    say_(megatron_memory_line(0, step.iteration, {held, peak, held + pooled, peak + pooled}));
  }
  say(megatron_timer_lines(timers));
  if (board_ && voice_.timers) {
    board_->scalar("iteration-time", seconds, step.iteration);
    for (const MegatronTimer& timer : timers) {
      constexpr double kMilli = 1000;
      board_->scalar(timer.name + "-time", timer.max_ms / kMilli, step.iteration);
    }
  }
  if (board_ && rate) board_->scalar("throughput", *rate, step.iteration);
  advanced_ = skipped_ = 0;
  loss_ = seconds_ = 0;
}

void MegatronJournal::validated(std::int64_t iteration, std::int64_t consumed_samples, double loss) {
  write_validation(iteration, consumed_samples, loss);
  say(megatron_validation_lines(concat("iteration ", iteration), loss));
}

void MegatronJournal::saving(std::int64_t iteration, const std::string& folder) {
  say_(megatron_saving_line(voice_.format, iteration, folder));
}

void MegatronJournal::saved(std::int64_t iteration, const std::string& folder) {
  say_(megatron_saved_line(voice_.format, iteration, folder));
}

void MegatronJournal::loaded(std::int64_t iteration, const std::string& folder) {
  say({megatron_loading_line(iteration, folder), megatron_loaded_line(iteration, folder)});
}

void MegatronJournal::training_ends() {
  say_(megatron_datetime_line("after training is done", megatron_now()));
}

void MegatronJournal::validated_at_end(std::int64_t iteration, std::int64_t consumed_samples, double loss) {
  if (iteration != last_validation_) write_validation(iteration, consumed_samples, loss);
  say(megatron_validation_lines(megatron_evaluation(voice_.format, iteration, "valid"), loss));
}

void MegatronJournal::tested(std::int64_t iteration, double loss) {
  say(megatron_validation_lines(megatron_evaluation(voice_.format, iteration, "test"), loss));
}

void MegatronJournal::exits(const std::string& why) {
  say_(megatron_datetime_line(why, megatron_now()));
}

}  // namespace isobar
