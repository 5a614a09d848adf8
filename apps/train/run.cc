#include "apps/train/run.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "apps/train/model_file.h"
#include "apps/train/run_state.h"
#include "apps/train/signals.h"
#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/notices.h"
#include "kernels/cuda/runtime.h"
#include "models/staged_task.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

constexpr std::int64_t kProfiledEpoch = 4;  // as the tutorial: the fourth
constexpr std::int64_t kMaxEpochs = std::int64_t{1} << 53;
constexpr double kLargest = std::numeric_limits<double>::max();

std::string memory_line(const char* when) {
  std::string report = memory_report();
  while (report.ends_with('\n')) report.pop_back();
  return concat("Memory ", when, ":\n", report);
}

// Between steps: weights, gradients, moments, and what else is there.
std::size_t bytes_held(const StepPrediction& step) {
  std::size_t bytes = 0;
  for (const MemoryUse& use : step.memory) bytes += use.bytes;
  return bytes;
}

Tally tally_from(const ordered_json& state) {
  return {.iterations = whole_number_in(state, "iterations", 0),
          .seconds = number_in(state, "seconds", 0),
          .data_seconds = state.contains("data_seconds") ? number_in(state, "data_seconds", 0) : 0,
          .loss = number_in(state, "loss", -kLargest),
          .missing = state.contains("missing") ? whole_number_in(state, "missing", 0) : 0};
}

// ", 1000 of them frozen,"; empty: none is.
std::string about_frozen(const Parameters& parameters) {
  const std::int64_t frozen = parameters.frozen_count();
  return frozen > 0 ? concat(", ", frozen, " of them frozen,") : "";
}

bool profiling_is_on() {
  const char* value = std::getenv("ENABLE_PROFILING");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

TrainingRun::TrainingRun(RunFolder* folder, RunSetup setup, const Parallel& parallel, Loaders& loaders,
                         const JudgedSets& sets, Task& task, Trainer& trainer,
                         const std::optional<Checkpoint>& checkpoint)
    : setup_(std::move(setup)),
      parallel_(parallel),
      loaders_(loaders),
      test_(sets.test),
      task_(task),
      trainer_(trainer),
      lines_(make_log_lines(task.log_style())),
      first_iteration_(checkpoint ? checkpoint->step : 0),
      stage_(&stage_after(setup_.stages, first_iteration_)),
      metrics_(task.metrics()),
      also_metrics_(sets.also_valid != nullptr ? task.also_metrics() : nullptr) {
  // One sample a rank: they are longer.
  if (also_metrics_) also_.reset(new EvaluationSet(loaders.judged(*sets.also_valid, parallel.dp.size())));
  if (setup_.agrees_late) agreement_.emplace(parallel_.world, 2, task_.device());
  if (folder != nullptr) begin_record(*folder, checkpoint);
  begin_megatron();
  parallel_.world.barrier();  // the store has put the checkpoint back under its own name
  if (checkpoint) restore({checkpoint->step, checkpoint_folder(setup_.folder, checkpoint->step)});
  validation_pending_ = validation_pending_ && validates();
  if (!record_) return;
  if (checkpoint) record_->store.remove_old(checkpoint->step);
  folder->cut_metrics(checkpoint ? checkpoint->step : -1, !validation_pending_);
  log(concat(task_.network(), " with ", task_.parameters().count(), " parameters", about_frozen(task_.parameters()),
             " on ", name_of(task_.device().kind), "; ", loaders_.train_samples(), " training samples, ",
             loaders_.iterations_per_epoch(), " iterations an epoch, ", loaders_.valid().samples(),
             " validation samples"));
  for (const TrainingStage& stage : setup_.stages)
    if (setup_.stages.size() > 1) log(concat("from iteration ", stage.from_iteration + 1, " on: ", stage.sentence));
  log(concat("memory of a step, predicted", parallel_.world.size() > 1 ? " for rank 0: " : ": ",
             memory_text(setup_.step)));
  log(memory_line("before the first iteration"), /*show=*/false);
}

void TrainingRun::begin_record(RunFolder& folder, const std::optional<Checkpoint>& checkpoint) {
  const auto samples = static_cast<double>(setup_.global_batch_size);
  const auto purge_step = folder.is_resumed() ? std::optional(checkpoint ? first_iteration_ + 1 : 0) : std::nullopt;
  record_.emplace(folder, setup_.options.keep_checkpoints,
                  RunFacts{.samples_per_iteration = samples,
                           .has_loss_scale = task_.parameters().activation_dtype() == DType::fp16,
                           .precision = setup_.precision,
                           .log_style = task_.log_style()},
                  purge_step,
                  Progress::Options{.first = first_iteration_,
                                    .total = setup_.num_iters,
                                    .samples_per_iteration = samples,
                                    .is_shown = !setup_.megatron},
                  setup_.megatron ? CheckpointNames::megatron : CheckpointNames::isobar);
  if (setup_.megatron)
    record_->megatron.emplace(
        *setup_.megatron, setup_.config, [&folder](const std::string& line) { folder.say(line); }, purge_step,
        first_iteration_);
  folder.keep_layout({parallel_.dp.size(), parallel_.tp.size(), parallel_.cp.size(), parallel_.pp.size()});
  log("Configuration: " + setup_.config.dump(), /*show=*/false);
  record_->journal.config(setup_.config, first_iteration_);
  if (const std::string ranks = lines_->ranks(parallel_.world.size()); !ranks.empty()) log(ranks);
  if (parallel_.world.size() > 1) {
    const auto size = [&](const Communicator& group) { return group.size(); };
    log(concat("Setting DP = ", size(parallel_.dp), ", TP = ", size(parallel_.tp), ", CP = ", size(parallel_.cp),
               ", PP = ", size(parallel_.pp)));
    log("Ranks:\n" + setup_.rank_map);
  }
  log("rank 0, data loader initialized");
  for (const std::string& note : setup_.notes) log(note);
}

// All ranks tell what they hold, those of other data-parallel ranks the same as the first ones.
void TrainingRun::begin_megatron() {
  if (!setup_.megatron) return;
  const auto held = static_cast<double>(task_.parameters().held());
  std::vector<double> of_ranks(3 * static_cast<std::size_t>(parallel_.world.size()), 0.0);
  const auto mine = 3 * static_cast<std::size_t>(parallel_.world.rank());
  if (parallel_.dp.rank() == 0 && parallel_.cp.rank() == 0) of_ranks[mine + 2] = held;
  of_ranks[mine] = static_cast<double>(parallel_.tp.rank());
  of_ranks[mine + 1] = static_cast<double>(parallel_.pp.rank());
  parallel_.world.all_reduce(of_ranks);
  if (!record_) return;
  MegatronRun run{
      .iterations = setup_.num_iters,
      .samples = {loaders_.train_samples(), loaders_.valid().samples(), test_ == nullptr ? 0 : test_->samples()}};
  for (std::size_t at = 0; at < of_ranks.size(); at += 3)
    if (of_ranks[at + 2] > 0)
      run.parameters.push_back({static_cast<std::int64_t>(of_ranks[at]), static_cast<std::int64_t>(of_ranks[at + 1]),
                                static_cast<std::int64_t>(of_ranks[at + 2])});
  record_->megatron->begin(run);
  record_->megatron->predicts(setup_.step.peak_bytes, bytes_held(setup_.step));
}

void TrainingRun::log(const std::string& line, bool show) const {
  if (record_) record_->folder.log(line, show);
}

void TrainingRun::restore(const Checkpoint& checkpoint) {
  read_model(checkpoint.folder / kModelFile, task_);
  trainer_.read_optimizer(checkpoint.folder / "optimizer.safetensors");
  const std::filesystem::path file = checkpoint.folder / "state.json";
  const ordered_json state = read_json<ordered_json>(file);
  try {
    trainer_.set_state(state.at("trainer"));
    ISOBAR_CHECK(trainer_.iteration() == checkpoint.step, "iteration is ", trainer_.iteration(), ", but the folder's ",
                 checkpoint.step);
    const std::int64_t samples = whole_number_in(state, "samples", 1);
    const ordered_json& cursor_in = state.at("cursor");
    const Cursor cursor{whole_number_in(cursor_in, "epoch", 0, kMaxEpochs),
                        whole_number_in(cursor_in, "batch", 0, loaders_.parts_of(samples))};
    loaders_.seek(samples == loaders_.train_samples() ? cursor : loaders_.moved(cursor, samples));
    epoch_ = tally_from(state.at("epoch"));
    if (!state.at("best_loss").is_null()) best_loss_ = number_in(state, "best_loss", -kLargest);
    if (state.contains("best_iteration")) best_iteration_ = whole_number_in(state, "best_iteration", -1);
    validation_pending_ = state.value("validation_is_owed", false);
    earlier_seconds_ = number_in(state, "wall_seconds", 0);
    if (state.contains("algorithms")) algorithms_ = algorithms_from(state.at("algorithms"));
  } catch (const Error& error) {
    throw_error(file.string(), " is not the state of this run: ", error.what());
  } catch (const ordered_json::exception&) {
    throw_error(file.string(), " is not the state of this run: a key is missing, or of another kind");
  }
  saved_iteration_ = trainer_.iteration();
  log(lines_->resumed(checkpoint.folder.string(), trainer_.iteration()));
  if (record_ && record_->megatron) record_->megatron->loaded(trainer_.iteration(), setup_.folder.string());
}

TrainingRun::End TrainingRun::train() {
  take_notices();  // on all ranks: from now on they wait for the log of the first one
  choose_algorithms();
  log(lines_->loop_begins());
  stop_ = is_true_on_any(parallel_.world, stop_requested());
  if (validation_pending_) {
    make_up_for_validation();
  } else if (saved_iteration_ < 0 && setup_.options.validate_at_start) {
    validate();
  }
  if (record_ && record_->megatron) record_->megatron->training_begins();
  while (!at_end() && !stop_ && !pauses()) {
    step();
    if (due(0) && record_) record_->journal.epoch_end(trainer_.iteration(), epoch(), epoch_, trainer_.lr_after());
    if (due(setup_.options.validate_every)) validate();
    if (due(setup_.options.checkpoint_every)) save();
  }
  if (saved_iteration_ != trainer_.iteration()) save();
  log_notices();  // of the last validation
  if (setup_.comm_report) report_communication();
  report_uncounted();
  if (at_end() && !validation_pending_ && finish()) return End::finished;
  const std::string after = concat(" after iteration ", trainer_.iteration(), " of ", setup_.num_iters);
  if (!stop_ && !pause_.empty()) return stop(concat("paused", after, ", ", pause_), End::paused);
  const std::string signal = stop_signal_name();
  return stop(concat("stopped by ", signal.empty() ? "a signal to another rank" : signal, after), End::stopped);
}

TrainingRun::End TrainingRun::stop(const std::string& why, End end) {
  if (record_) record_->progress.finish();
  log(concat(why, "; a checkpoint is written to ", setup_.folder.string(), ": run again with --resume"));
  if (record_) record_->folder.mark_stopped(why);
  if (record_ && record_->megatron)
    record_->megatron->exits(end == End::stopped ? "exiting program after receiving SIGTERM."
                                                 : concat("exiting program ", pause_));
  return end;
}

// Between two iterations; all ranks decide alike.
bool TrainingRun::pauses() {
  const RunOptions& options = setup_.options;
  const bool has_stepped = trainer_.iteration() > first_iteration_;
  if (options.exit_interval && has_stepped && trainer_.iteration() % *options.exit_interval == 0)
    pause_ = concat("at iteration ", trainer_.iteration());
  if (options.exit_duration_mins > 0 && has_stepped) {
    constexpr double kSecondsPerMinute = 60;
    const double minutes = seconds_since(start_) / kSecondsPerMinute;
    if (is_true_on_any(parallel_.world, minutes > options.exit_duration_mins))
      pause_ = concat("after ", minutes, " minutes");
  }
  return !pause_.empty();
}

void TrainingRun::choose_algorithms() {
  if (task_.device().kind != DeviceKind::cuda) return;
  if (!setup_.autotune) {
    algorithms_ = {};
    return choose_no_algorithms(task_.device());
  }
  algorithms_ = isobar::choose_algorithms(
      algorithms_, task_.device(), parallel_.world, [this] { trainer_.rehearse(loaders_); },
      [this](const std::string& line) { log(line); });
  log_notices();
}

void TrainingRun::log_notices() const {
  if (!record_) return;
  for (const std::string& line : take_notices()) log(line);
}

// Another stage begins with the next iteration, or none. No rank has read ahead for it.
void TrainingRun::begin_stage() {
  const TrainingStage& stage = stage_after(setup_.stages, trainer_.iteration());
  if (&stage == stage_) return;
  stage_ = &stage;
  loaders_.use(*stage.samples);
  trainer_.begin_stage();
  log(concat("iteration ", trainer_.iteration() + 1, " begins a stage: ", stage.sentence));
}

void TrainingRun::step() {
  begin_stage();
  mark_profiler_window();
  begin_trace();
  if (consumed(trainer_.iteration()) % samples_per_epoch() == 0) epoch_ = {};
  const Clock::time_point start = Clock::now();
  const CommLedger before = setup_.comm_report ? parallel_.world.ledger() : CommLedger();
  const double waited_before = trainer_.waited_seconds();
  const StepResult result = trainer_.step([this] { return loaders_.next(); },
                                          [this](bool for_next_step) {
                                            if (!for_next_step || is_followed()) loaders_.read_ahead();
                                          });
  end_trace();
  waited_ += trainer_.waited_seconds() - waited_before;
  log_notices();
  is_validated_ = false;
  if (step_) agree(agreement_->values());  // on the step before: the host has just waited for the device
  step_ = Step{.iteration = trainer_.iteration(), .result = result};
  const std::array<double, 2> mine{result.loss, stop_requested() ? 1.0 : 0.0};
  if (setup_.agrees_late && !stop_ && may_agree_late()) {
    agreement_->begin(mine);
    step_->seconds = seconds_since(start);
  } else {
    std::array<double, 2> sums = mine;
    parallel_.world.all_reduce(sums);
    step_->seconds = seconds_since(start);
    agree(sums);
  }
  if (setup_.comm_report) {
    traffic_ += parallel_.world.ledger().since(before);
    predicted_ += predicted_traffic();
  }
}

// Before a step; on the first rank only.
void TrainingRun::begin_trace() {
  if (!record_ || has_traced_ || !setup_.trace || !setup_.trace->has(trainer_.iteration())) return;
  if (!trace_)
    trace_ = std::make_unique<Trace>([device = task_.device()] {
      if (device.kind != DeviceKind::cpu) gpu::synchronize(device, current_stream());
    });
  trace_->open(TraceEvent::Kind::range, concat(kStepInTrace, trainer_.iteration()));
}

void TrainingRun::end_trace() {
  if (!trace_) return;
  trace_->close();
  const bool is_wanted = setup_.trace->has(trainer_.iteration()) && !at_end();
  if (is_wanted && !trace_->is_full()) return;
  const std::vector<TraceEvent> events = trace_->events();
  trace_.reset();
  has_traced_ = true;
  if (is_wanted)
    log(concat("trace: of the iterations before ", trainer_.iteration(), ", whose ", events.size(),
               " events are as many as viewers open"));
  const std::filesystem::path file = write_trace(setup_.trace->folder, events, task_.device());
  for (const std::string& line : kernel_table(events)) log(line);
  log(concat("trace: ", file.string()));
}

// During a step: whether the next one reads the same view of the samples.
bool TrainingRun::is_followed() const {
  const std::int64_t next = trainer_.iteration() + 1;
  return next < setup_.num_iters && &stage_after(setup_.stages, next) == stage_;
}

// Of a step of this stage, and of agree().
CommLedger TrainingRun::predicted_traffic() const {
  CommLedger predicted = setup_.traffic_of_step[static_cast<std::size_t>(stage_ - setup_.stages.data())];
  if (parallel_.world.size() > 1) predicted.add("world", Verb::all_reduce, 1, 2 * sizeof(double));
  return predicted;
}

// Nobody asks at once for the loss of this iteration, nor does anything happen behind it.
bool TrainingRun::may_agree_late() const {
  const RunOptions& options = setup_.options;
  return parallel_.world.size() > 1 && trainer_.iteration() % options.log_every != 0 &&
         trainer_.iteration() > first_iteration_ + 1 && !due(0) && !due(options.validate_every) &&
         !due(options.checkpoint_every);
}

// The loss becomes the mean over all ranks that have one, and a stop signal to one of them a stop of all.
void TrainingRun::agree(std::span<const double> sums) {
  Step step = *std::exchange(step_, std::nullopt);
  step.result.loss = sums[0] / parallel_.ranks_with_loss();
  stop_ = stop_ || sums[1] > 0;
  note(step);
}

void TrainingRun::note(const Step& step) {
  const auto& [iteration, result, seconds] = step;
  if (result.uncounted > 0 && total_.uncounted == 0)
    log(concat("iteration ", iteration, " has samples without weight: ", task_.describe_uncounted()));
  for (Tally* tally : {&epoch_, &since_line_, &total_}) tally->add(result, seconds);
  const bool is_logged = iteration % setup_.options.log_every == 0 || iteration >= setup_.num_iters;
  if (record_ && iteration == 1) record_->journal.initial_loss(result.loss);
  if (record_ && is_logged) record_->journal.train(iteration, epoch_of(iteration), result, since_line_);
  if (is_logged) since_line_ = {};
  if (setup_.megatron) tell_megatron(step);
  if (record_) record_->progress.update(iteration, result.loss);
  if (total_.iterations == 1) log(memory_line("after the first iteration"), /*show=*/false);
}

// All ranks have their part in it.
void TrainingRun::tell_megatron(const Step& step) {
  const MegatronVoice& voice = *setup_.megatron;
  const std::int64_t iteration = step.iteration;
  phases_.add(step.result);
  const bool ends = iteration % voice.log_every == 0;
  const bool draws = !voice.tensorboard_folder.empty() && iteration % voice.tensorboard_every == 0;
  MegatronIteration told{.iteration = iteration,
                         .samples = step.result.samples,
                         .consumed_samples = consumed(iteration),
                         .result = step.result,
                         .seconds = step.seconds};
  if (voice.params_norm && (ends || draws)) told.params_norm = trainer_.weights_norm();
  if (voice.zeros && (ends || draws)) told.zeros = trainer_.gradient_zeros();
  const std::vector<MegatronTimer> timers = ends ? timers_of_interval() : std::vector<MegatronTimer>();
  if (record_) record_->megatron->iteration(told, timers);
}

// For an iteration, in the mean over the interval.
std::vector<MegatronTimer> TrainingRun::timers_of_interval() {
  const MegatronVoice& voice = *setup_.megatron;
  std::vector<double> most = of_level(std::exchange(phases_, {}), voice.timing_level), least;
  for (double& seconds : most) seconds *= 1000 / static_cast<double>(voice.log_every);
  for (const double seconds : most) least.push_back(-seconds);
  if (most.empty()) return {};
  parallel_.world.all_reduce(most, Reduce::max);
  parallel_.world.all_reduce(least, Reduce::max);
  const std::vector<std::string> names = megatron_timer_names(voice.timing_level);
  std::vector<MegatronTimer> timers;
  for (std::size_t i = 0; i < names.size(); ++i) timers.push_back({names[i], -least[i], most[i]});
  return timers;
}

// Of the iterations of this process.
void TrainingRun::report_uncounted() const {
  if (total_.uncounted == 0) return;
  log(concat("iterations ", trainer_.iteration() - total_.iterations + 1, " to ", trainer_.iteration(), ": ",
             total_.uncounted, " of ",
             consumed(trainer_.iteration()) - consumed(trainer_.iteration() - total_.iterations) - total_.missing,
             " samples had no weight: ", task_.describe_uncounted()));
}

// All ranks have their part in it.
void TrainingRun::report_communication() const {
  log(report_traffic(predicted_, traffic_, trainer_.iteration() - first_iteration_, trainer_.holds(), parallel_.world));
  if (parallel_.pp.size() == 1) return;
  const double waited = waited_ / std::max(total_.seconds, 1e-9);
  log(report_pipeline(task_.staged()->staged_network().share()->cut(), trainer_.parts(), parallel_, waited));
}

// Once it is made, the checkpoint knows of it too: what is killed before the next one does not validate again.
void TrainingRun::make_up_for_validation() {
  validate();
  if (!validation_pending_) save();
}

// By one of the trainer's two functions, and shows how far it is. False where a stop signal interrupted it.
bool TrainingRun::judge(EvaluationSet& set, Metrics& metrics, const std::string& label, Judging by) {
  if (record_) record_->progress.begin_validation(set.samples(), label);
  const bool is_whole = (trainer_.*by)(set, metrics, stop_requested, [this](std::int64_t samples) {
    if (record_) record_->progress.validated(samples);
  });
  if (record_) record_->progress.end_validation();
  return is_whole;
}

// False where a stop signal interrupted it.
bool TrainingRun::run_validation() {
  is_validated_ = judge(loaders_.valid(), *metrics_, "valid", &Trainer::validate) &&
                  (!also_ || judge(*also_, *also_metrics_, "leads", &Trainer::judge));
  if (!is_validated_) stop_ = true;
  return is_validated_;
}

void TrainingRun::validate() {
  if (!validates()) return end_unvalidated();
  if (record_) record_->progress.pause();
  trainer_.check_finite();
  const Clock::time_point start = Clock::now();
  const Trainer::AveragedWeights averaged(trainer_);
  validation_pending_ = !run_validation();
  if (validation_pending_) return;
  show_validation(seconds_since(start));
  // All ranks have the same loss; asked together, they cannot part even so.
  if (is_true_on_any(parallel_.world, !best_loss_ || metrics_->loss() < *best_loss_)) {
    best_loss_ = metrics_->loss();
    best_iteration_ = trainer_.iteration();
    save_best();
  }
  if (record_) record_->progress.resume();
}

// What the last validation tells besides its figures.
void TrainingRun::end_unvalidated() {
  if (at_end() && record_ && record_->megatron) record_->megatron->training_ends();
}

void TrainingRun::show_validation(double seconds) {
  if (record_) record_->journal.valid(trainer_.iteration(), epoch(), {metrics_.get(), also_metrics_.get()}, seconds);
  if (record_ && record_->megatron) tell_megatron_validation();
  if (parallel_.dp.rank() != 0) return;
  const Working work(parallel_.world, "making pictures");
  // All ranks that share the first rank's samples compute the pictures, and the first one shows them.
  const Batch first = to_device(loaders_.valid().first_samples(task_.picture_samples()), task_.device());
  const std::vector<Picture> pictures = task_.pictures(first, trainer_.iteration());
  if (record_) record_->journal.pictures(trainer_.iteration(), pictures);
}

void TrainingRun::tell_megatron_validation() {
  MegatronJournal& told = *record_->megatron;
  const std::int64_t iteration = trainer_.iteration(), every = setup_.options.validate_every;
  if (!at_end() || (every > 0 && iteration % every == 0))
    told.validated(iteration, consumed(iteration), metrics_->loss());
  if (!at_end()) return;
  told.training_ends();
  if (told.voice().format == MegatronFormat::legacy)
    told.validated_at_end(iteration, consumed(iteration), metrics_->loss());
}

// Weights that ranks hold in parts are put together on the first one, so all have their part in what it writes. Where
// the disk refuses, its error ends them all.
void TrainingRun::save_best() {
  const auto work = work_of_first("writing the best weights");
  if (record_)
    record_->store.save_best([this](const std::filesystem::path& folder) { write_files(folder); });
  else
    write_files({});
}

void TrainingRun::save() {
  if (record_) record_->progress.pause();
  trainer_.check_finite();
  if (!setup_.ranks_differ) trainer_.check_replicas();
  const auto work = work_of_first("writing a checkpoint");
  MegatronJournal* const told = record_ && record_->megatron ? &*record_->megatron : nullptr;
  if (told != nullptr) told->saving(trainer_.iteration(), setup_.folder.string());
  if (record_)
    record_->store.save(trainer_.iteration(), [this](const std::filesystem::path& folder) { write_files(folder); });
  else
    write_files({});
  if (told != nullptr) told->saved(trainer_.iteration(), setup_.folder.string());
  saved_iteration_ = trainer_.iteration();
  if (record_) record_->progress.resume();
}

// What the first rank alone does, from here on, while the others wait for it; null on these.
std::unique_ptr<Working> TrainingRun::work_of_first(const char* what) const {
  return record_ ? std::make_unique<Working>(parallel_.world, what) : nullptr;
}

// Scores the test set with the best weights, those that `isobar evaluate` takes of the run, which are the task's from
// here on; or with the last ones, as test_weights has it. False where a stop signal interrupted it.
bool TrainingRun::score_test() {
  const bool takes_best = setup_.options.test_weights == TestWeights::best;
  std::optional<Trainer::AveragedWeights> averaged;
  if (takes_best) {
    parallel_.world.barrier();  // the first rank has put the best weights in their place
    read_model(setup_.folder / "best" / kModelFile, task_);
  } else {
    averaged.emplace(trainer_);
  }
  EvaluationSet set = loaders_.judged(*test_);
  tested_ = task_.metrics();
  return judge(set, *tested_, "test", &Trainer::judge);
}

// Writes the summary; false where a stop signal came before there was a validation to sum up, or the test.
bool TrainingRun::finish() {
  if (validates() && !is_validated_) {
    const Trainer::AveragedWeights averaged(trainer_);
    if (!run_validation()) return false;
    if (record_ && record_->megatron) tell_megatron_validation();
  }
  if (validates() && record_ && record_->megatron && setup_.megatron->format == MegatronFormat::core)
    record_->megatron->validated_at_end(trainer_.iteration(), consumed(trainer_.iteration()), metrics_->loss());
  if (test_ != nullptr && !score_test()) return false;
  if (record_ && record_->megatron && tested_) record_->megatron->tested(trainer_.iteration(), tested_->loss());
  auto memory = static_cast<double>(peak_memory_bytes());
  parallel_.world.all_reduce({&memory, 1}, Reduce::max);
  if (!record_) return true;
  const auto work = work_of_first("writing the summary");
  record_->progress.finish();
  Journal::Result result{.iterations = trainer_.iteration(),
                         .train_loss = epoch_.mean_loss(),
                         .samples_per_second = total_.samples_per_second(static_cast<double>(setup_.global_batch_size)),
                         .data_seconds = total_.data_seconds,
                         .wall_seconds = wall_seconds()};
  if (parallel_.world.size() > 1) result.largest_rank_bytes = static_cast<std::int64_t>(memory);
  result.layout = {{"dp", parallel_.dp.size()},
                   {"tp", parallel_.tp.size()},
                   {"cp", parallel_.cp.size()},
                   {"pp", parallel_.pp.size()}};
  result.test = tested_.get();
  result.test_iteration = setup_.options.test_weights == TestWeights::best ? best_iteration_ : trainer_.iteration();
  result.test_is_of_best = setup_.options.test_weights == TestWeights::best;
  record_->journal.summary(result, {validates() ? metrics_.get() : nullptr, also_metrics_.get()}, task_);
  if (best_loss_)
    log(concat("best validation loss ", *best_loss_,
               best_iteration_ < 0 ? "" : concat(", of iteration ", best_iteration_), ": ",
               (std::filesystem::absolute(setup_.folder).lexically_normal() / "best").string()));
  log(lines_->run_ends());
  return true;
}

void TrainingRun::write_files(const std::filesystem::path& folder) const {
  const Trainer::AveragedWeights averaged(trainer_);
  write_model(folder / kModelFile, task_, setup_.config, parallel_.world);
  trainer_.write_optimizer(folder / "optimizer.safetensors");
  if (record_) write_file_atomically(folder / "state.json", state().dump(2) + "\n");
}

ordered_json TrainingRun::state() const {
  const Cursor cursor = loaders_.cursor();
  ordered_json state{{"trainer", trainer_.state()},
                     {"samples", loaders_.train_samples()},
                     {"cursor", {{"epoch", cursor.epoch}, {"batch", cursor.batch}}},
                     {"epoch",
                      {{"iterations", epoch_.iterations},
                       {"seconds", epoch_.seconds},
                       {"data_seconds", epoch_.data_seconds},
                       {"loss", epoch_.loss}}},
                     {"best_loss", best_loss_ ? ordered_json(*best_loss_) : ordered_json()},
                     {"best_iteration", best_iteration_},
                     {"validation_is_owed", validation_pending_},
                     {"wall_seconds", wall_seconds()}};
  if (!validates()) state[kUnvalidated] = true;
  if (epoch_.missing > 0) state["epoch"]["missing"] = epoch_.missing;
  if (record_) state["run_id"] = record_->folder.run_id();
  if (!algorithms_.platform.empty()) state["algorithms"] = to_json(algorithms_);
  return state;
}

std::int64_t TrainingRun::epoch_of(std::int64_t iteration) const {
  return (consumed(iteration) + samples_per_epoch() - 1) / samples_per_epoch();
}

// Whether this iteration is one of every `every`-th, of epoch ends where that is 0, or the last.
bool TrainingRun::due(std::int64_t every) const {
  const std::int64_t iteration = trainer_.iteration();
  return (every > 0 ? iteration % every : consumed(iteration) % samples_per_epoch()) == 0 || at_end();
}

// ENABLE_PROFILING=1: the window that `nsys -c cudaProfilerApi` records is one epoch, the fourth or the last.
void TrainingRun::mark_profiler_window() const {
  static const bool on = profiling_is_on() && task_.device().kind == DeviceKind::cuda;
  if (!on) return;
  const std::int64_t per_epoch = loaders_.iterations_per_epoch();
  const std::int64_t last_epoch = (setup_.num_iters + per_epoch - 1) / per_epoch;
  const std::int64_t first = (std::min(kProfiledEpoch, last_epoch) - 1) * per_epoch;
  if (trainer_.iteration() == first) gpu::profiler_start();
  if (trainer_.iteration() == std::min(first + per_epoch, setup_.num_iters) - 1) gpu::profiler_stop();
}

double TrainingRun::wall_seconds() const {
  return earlier_seconds_ + seconds_since(start_);
}

}  // namespace isobar
