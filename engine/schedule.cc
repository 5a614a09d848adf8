#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

double cosine_of(double progress) {
  return 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double wsd_shape(WsdDecay kind, double progress) {
  switch (kind) {
    case WsdDecay::linear:
      return 1 - progress;
    case WsdDecay::cosine:
      return cosine_of(progress);
    case WsdDecay::exponential:
      return 2 * std::pow(0.5, progress) - 1;
    case WsdDecay::minus_sqrt:
      return 1 - std::sqrt(progress);
  }
  throw_error("no such decay");
}

bool warms_up_apart(WarmupRule rule) {
  return rule != WarmupRule::tutorial;
}

// A warmup whose iterations are a part of the decay's.
bool shortens_decay(WarmupRule rule) {
  return rule == WarmupRule::megatron || rule == WarmupRule::nanogpt;
}

double decay_length(WarmupRule rule, double steps, double warmup) {
  return shortens_decay(rule) ? steps - warmup : steps;
}

}  // namespace

double LearningRate::at(std::int64_t t) const {
  const std::int64_t n = rule == WarmupRule::unet ? t + 1 : t;
  const auto done = static_cast<double>(n);
  const auto warm = [&](double part, double of) { return warmup_lr + (base - warmup_lr) * (part / of); };
  if (warmup <= 0) return decayed(t);
  switch (rule) {
    case WarmupRule::tutorial:
      return std::min(warm(done + 1, warmup), decayed(t));
    case WarmupRule::unet:
      return done < warmup ? warm(done, warmup) : decayed(t);
    case WarmupRule::megatron:
      return done <= warmup ? warm(done, warmup) : decayed(t);
    case WarmupRule::nanogpt:
      return done < warmup ? warm(done + 1, warmup + 1) : decayed(t);
  }
  throw_error("no such warmup");
}

// The rate without a warmup.
double LearningRate::decayed(std::int64_t t) const {
  const std::int64_t held = t - t % interval, n = rule == WarmupRule::unet ? held + 1 : held;
  const double first = warms_up_apart(rule) ? warmup : 0;
  const double length = decay_length(rule, static_cast<double>(steps), warmup);
  const double position = std::max(static_cast<double>(n) - first, 0.0);
  const double progress = std::min(position / length, 1.0);
  const auto between = [&](double shape) { return end + (base - end) * shape; };
  switch (kind) {
    case ScheduleKind::constant:
      return base;
    case ScheduleKind::cosine:
      return between(cosine_of(progress));
    case ScheduleKind::linear:
      return between(1 - progress);
    case ScheduleKind::inverse_square_root:
      if (position > length) return end;
      return std::max(
          end, base * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(static_cast<double>(std::max<std::int64_t>(n, 1))));
    case ScheduleKind::wsd: {
      const auto falling = static_cast<double>(wsd_iters);
      const double done = (position - (length - falling)) / falling;
      return between(wsd_shape(wsd, std::clamp(done, 0.0, 1.0)));
    }
    case ScheduleKind::step:
      return std::max(end, base * std::pow(gamma, std::floor(position / static_cast<double>(every))));
  }
  throw_error("no such schedule");
}

double WeightDecay::at(std::int64_t n) const {
  if (kind == WeightDecayKind::constant) return begin;
  if (n > steps) return end;
  const double ratio = static_cast<double>(n) / static_cast<double>(steps);
  return begin + (end - begin) * (kind == WeightDecayKind::linear ? ratio : cosine_of(1 - ratio));
}

double scaled_rate(double lr, BatchScaling rule, std::int64_t batch, std::int64_t reference_batch) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(reference_batch);
  switch (rule) {
    case BatchScaling::sqrt:
      return lr * std::sqrt(ratio);
    case BatchScaling::linear:
      return lr * ratio;
    case BatchScaling::none:
      break;
  }
  return lr;
}

KeyTable ScheduleOptions::keys() {
  return {
      "The learning rate",
      {key("num_iters", num_iters, "updates of the whole run")
           .at_least(1)
           .free_on_resume()
           .also_called({"steps", "maxsteps", "iterations", "trainiters"}),
       key("num_epochs", num_epochs,
           "passes over the training samples, in the place of num_iters; of the two keys the last one given counts: in "
           "the config, by a flag, by --set; null: num_iters")
           .at_least(1)
           .free_on_resume()
           .also_called({"epochs", "maxepochs"})
           .in_yaml({"max_epochs"}),
       key("lr", lr, "largest learning rate")
           .at_least(0)
           .also_called({"learningrate", "maxlr", "startlr"})
           .in_yaml({"lr_schedule.start_lr"}),
       key("lr_schedule", lr_schedule,
           "how the rate goes on after the warmup: cosine and linear fall to end_lr at decay_iters, wsd does so in its "
           "last wsd_iters, step multiplies by lr_gamma every lr_decay_every")
           .also_called({"lrscheduler", "scheduler", "lrdecaystyle"}),
       key("end_lr", end_lr, "the rate at the end of the decay; no schedule falls below it")
           .at_least(0)
           .also_called({"minlr", "etamin"})
           .in_yaml({"lr_schedule.end_lr", "min_lr"}),
       key("lr_step", lr_step,
           "when the decay goes on: with every iteration, or at epoch ends; a warmup always goes by iterations"),
       key("decay_iters", decay_iters, "iterations after which the rate has fallen to end_lr; null: num_iters")
           .at_least(1)
           .also_called({"lrdecayiters", "lrdecaysteps", "tmax"}),
       key("decay_epochs", decay_epochs,
           "the same in passes over the training samples, in the place of decay_iters; null: decay_iters")
           .at_least(1)
           .also_called({"lrdecayepochs"})
           .in_yaml({"max_cosine_lr_epochs"}),
       key("warmup", warmup, "iterations over which the rate grows from warmup_lr")
           .at_least(0)
           .also_called({"warmupsteps", "warmupiters", "lrwarmupiters"})
           .in_yaml({"lr_schedule.warmup_steps"}),
       key("warmup_lr", warmup_lr, "the rate that the warmup begins at").at_least(0).also_called({"lrwarmupinit"}),
       key("warmup_rule", warmup_rule,
           "tutorial: the decay begins with the run, and the lesser of warmup and decay counts; unet: it begins after "
           "the warmup and takes as long, and only a batch above reference_batch_size has a warmup; megatron, nanogpt: "
           "after the warmup, and ends at decay_iters; with megatron "
           "update 1 has warmup_lr, and updates that fp16 skips are not counted")
           .also_called({"lrwarmuprule"}),
       key("lr_gamma", lr_gamma, "of lr_schedule step").within(0, 1).also_called({"gamma"}),
       key("lr_decay_every", lr_decay_every, "of lr_schedule step: iterations or epochs, as lr_step has it")
           .at_least(1)
           .also_called({"stepsize", "lrstepsize"}),
       key("wsd_iters", wsd_iters, "of lr_schedule wsd: the iterations of its decay")
           .at_least(1)
           .also_called({"lrwsddecayiters"}),
       key("wsd_decay", wsd_decay, "of lr_schedule wsd: how it falls").also_called({"lrwsddecaystyle"}),
       key("decay_samples", decay_samples,
           "with warmup_rule megatron: samples of updates, in the place of decay_iters, warmup and wsd_iters, which "
           "then mean nothing, as lr_step does; null: iterations")
           .at_least(1)
           .also_called({"lrdecaysamples"}),
       key("warmup_samples", warmup_samples, "with decay_samples: samples over which the rate grows; may be a fraction")
           .at_least(0)
           .also_called({"lrwarmupsamples"}),
       key("wsd_samples", wsd_samples, "with decay_samples: of lr_schedule wsd, the samples of its decay")
           .at_least(1)
           .also_called({"lrwsddecaysamples"}),
       key("batch_lr_scaling", batch_lr_scaling,
           "multiplies lr by (the root of) global_batch_size / reference_batch_size")
           .in_yaml({"lr_schedule.scaling"}),
       key("reference_batch_size", reference_batch_size, "see batch_lr_scaling")
           .at_least(1)
           .in_yaml({"base_batch_size"})},
      [this](const KeyOrigins& origins) {
        ISOBAR_CHECK(end_lr <= lr, origins.where("end_lr"), " must be at most lr (", lr, "), not ", end_lr);
        if (decay_samples) return check_samples(origins);
        const bool depends_on_data = decay_epochs || (num_epochs && !decay_iters);
        if (depends_on_data) return;  // of_run() checks the rest
        const std::int64_t steps = decay_iters.value_or(num_iters);
        ISOBAR_CHECK(!shortens_decay(warmup_rule) || warmup < steps, origins.where("warmup"), " must be below ",
                     decay_iters ? "decay_iters (" : "num_iters (", steps, ") with warmup_rule ",
                     name_of_enum(warmup_rule), ", not ", warmup);
        const auto decay = static_cast<std::int64_t>(
            decay_length(warmup_rule, static_cast<double>(steps), static_cast<double>(warmup)));
        ISOBAR_CHECK(lr_schedule != ScheduleKind::wsd || wsd_iters <= decay, origins.where("wsd_iters"),
                     " must be at most the ", decay, " iterations after the warmup, not ", wsd_iters);
      }};
}

void ScheduleOptions::check_samples(const KeyOrigins& origins) const {
  ISOBAR_CHECK(warmup_rule == WarmupRule::megatron, origins.where("decay_samples"), " needs warmup_rule megatron, not ",
               name_of_enum(warmup_rule));
  ISOBAR_CHECK(lr_schedule != ScheduleKind::step, origins.where("decay_samples"),
               " does not fit lr_schedule step, which goes by iterations");
  ISOBAR_CHECK(warmup_samples < static_cast<double>(*decay_samples), origins.where("warmup_samples"),
               " must be below decay_samples (", *decay_samples, "), not ", warmup_samples);
  ISOBAR_CHECK(lr_schedule != ScheduleKind::wsd ||
                   static_cast<double>(wsd_samples) <= static_cast<double>(*decay_samples) - warmup_samples,
               origins.where("wsd_samples"), " must be at most the samples between warmup_samples and decay_samples, ",
               "not ", wsd_samples);
}

ScheduleOptions ScheduleOptions::of_run(std::int64_t iterations_per_epoch) const {
  if (!num_epochs && !decay_epochs) return *this;
  ScheduleOptions schedule = *this;
  const auto take = [&](const char* key, std::optional<std::int64_t>& epochs, auto& iterations) {
    if (epochs) iterations = checked_product({*epochs, iterations_per_epoch}, key);
    epochs.reset();
  };
  take("config key num_epochs", schedule.num_epochs, schedule.num_iters);
  take("config key decay_epochs", schedule.decay_epochs, schedule.decay_iters);
  schedule.keys().check({});
  return schedule;
}

LearningRate ScheduleOptions::learning_rate(std::int64_t global_batch_size, std::int64_t iterations_per_epoch) const {
  const std::int64_t interval = lr_step == RateStep::epoch && !decay_samples ? iterations_per_epoch : 1;
  const bool is_scaled = batch_lr_scaling != BatchScaling::none && global_batch_size > reference_batch_size;
  return {.kind = lr_schedule,
          .base = scaled_rate(lr, batch_lr_scaling, global_batch_size, reference_batch_size),
          .end = end_lr,
          .rule = warmup_rule,
          .warmup = decay_samples                                   ? warmup_samples
                    : warmup_rule == WarmupRule::unet && !is_scaled ? 0.0
                                                                    : static_cast<double>(warmup),
          .warmup_lr = warmup_lr,
          .steps = decay_samples ? *decay_samples : decay_iters.value_or(num_iters),
          .interval = interval,
          .gamma = lr_gamma,
          .every = lr_decay_every * interval,
          .wsd = wsd_decay,
          .wsd_iters = decay_samples ? wsd_samples : wsd_iters,
          .by_samples = decay_samples.has_value()};
}

}  // namespace isobar
