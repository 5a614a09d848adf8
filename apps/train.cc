// isobar train: command line -> config -> data, model, run folder -> the loop (apps/train/run.h).
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/train/config.h"
#include "apps/train/fit.h"
#include "apps/train/model_file.h"
#include "apps/train/rank_map.h"
#include "apps/train/run.h"
#include "apps/train/run_folder.h"
#include "apps/train/signals.h"
#include "apps/train/unused_gpu.h"
#include "apps/train_flags.h"
#include "comm/agreement.h"
#include "comm/nccl/nccl_ranks.h"
#include "comm/process_ranks.h"
#include "comm/thread_ranks.h"
#include "engine/files/checkpoint.h"
#include "engine/files/json.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr int kStoppedStatus = 75;  // EX_TEMPFAIL: run again with --resume

// One line for every flag that is accepted and changes nothing.
void explain_flags(const TrainFlags& o, const TutorialKeys& keys) {
  const auto say = [](bool given, const char* sentence) {
    if (given) std::cout << sentence << std::endl;
  };
  say(keys.enable_fused, "enable_fused: isobar's Adam is one fused kernel always");
  say(keys.enable_jit, "enable_jit: isobar's kernels are compiled ahead and fused by hand");
  say(keys.data_loader_config == LoaderKind::dali, "data_loader_config dali: isobar has one loader, with threads");
  say(o.noddp && o.ranks == 1, "--noddp: one rank makes no gradient exchange");
  say(o.noddp && o.ranks > 1, "--noddp: gradients are not exchanged; the first rank's weights are kept");
  say(!o.shard_optimizer.empty() && o.ranks == o.tensor_parallel,
      "--shard-optimizer: one data-parallel rank holds all moments of what it trains");
  say(o.sequence_parallel && o.tensor_parallel == 1,
      "--sequence-parallel: without --tensor-parallel every rank has all rows of its samples");
  say(o.disable_broadcast_buffers, "--disable-broadcast-buffers: the model has no buffers");
}

fs::path run_folder_of(const TrainFlags& o, const std::string& config_name, const std::string& expdir, Device device) {
  if (!o.run_dir.empty()) return o.run_dir;
  const std::string devices = device.kind == DeviceKind::cuda ? concat(o.ranks, "GPU") : "CPU";
  return fs::path(expdir) / config_name / devices / o.run_num;
}

std::optional<Checkpoint> checkpoint_to_resume(const RunFolder& folder, RunConfig& config) {
  const FoundCheckpoint found = find_newest_whole(folder.path());
  for (const std::string& damaged : found.skipped) tell("passed over: " + damaged);
  if (found.checkpoint) folder.check_own(found.checkpoint->folder, config.keys_free_on_resume());
  folder.check_best(config.keys_free_on_resume());
  if (!found.checkpoint) std::cout << "no checkpoint in " << folder.path().string() << ": starting" << std::endl;
  return found.checkpoint;
}

// The iterations that the run's summary is of, where it is that of the last checkpoint; 0: it has to go on, or begin.
std::int64_t summed_up(const RunFolder& folder, const std::optional<Checkpoint>& checkpoint) {
  const nlohmann::ordered_json summary = folder.read_summary();
  const bool is_last =
      checkpoint && summary.is_object() && summary.value("iterations", nlohmann::ordered_json()) == checkpoint->step;
  return is_last ? checkpoint->step : 0;
}

// What the first process finds in the run's folder, and tells the others: it alone looks there.
struct FoundRun {
  bool is_resumed = false;
  std::optional<Checkpoint> checkpoint;
  std::int64_t summed_up = 0;
};

FoundRun tell_found_run(const FoundRun& found, const fs::path& folder, const Communicator& processes) {
  if (processes.size() == 1) return found;
  const nlohmann::ordered_json mine{{"resumed", found.is_resumed},
                                    {"step", found.checkpoint ? found.checkpoint->step : -1},
                                    {"summed_up", found.summed_up}};
  const auto told = parse_json<nlohmann::ordered_json>(processes.broadcast_text(mine.dump(), 0), "the first rank");
  FoundRun all{.is_resumed = told.at("resumed"), .checkpoint = {}, .summed_up = told.at("summed_up")};
  const std::int64_t step = told.at("step");
  if (step >= 0) all.checkpoint = Checkpoint{step, checkpoint_folder(folder, step)};
  return all;
}

std::string precision_of(const ComputeOptions& compute, Device device) {
  if (compute.amp_mode != AmpMode::none) return name_of_enum(compute.amp_mode);
  const bool tf32 = compute.dtype == ArithmeticType::fp32 && compute.may_use_tf32() && device.kind == DeviceKind::cuda;
  return tf32 ? "tf32" : name_of_enum(compute.dtype);
}

// Where the run goes and what it computes on: nobody should have to look for either.
void announce_run(RunFolder& folder, const RunConfig& config, const TrainFlags& o, Device device) {
  const int threads = o.config.threads_of(o.are_processes() ? 1 : o.ranks);
  folder.announce(concat("run folder ", fs::absolute(folder.path()).lexically_normal().string(), ": device ",
                         name_of(device.kind), ", precision ", precision_of(config.compute, device), ", ", o.ranks,
                         o.ranks == 1 ? " rank" : " ranks", " with ", threads, threads == 1 ? " thread" : " threads",
                         o.ranks == 1 ? "" : " each"));
  if (o.by_nccl) folder.announce(describe_nccl());
  if (device.kind == DeviceKind::cuda && o.launch.local_ranks > 1 && gpu::device_count() == 1)
    folder.announce(
        "each process sees one GPU: NCCL may have to go around the links between them; let each see all GPUs of its "
        "host, as scripts/slurm/gpu.sbatch does");
  folder.announce("rank 0, begin data loader init");
}

void print_configs() {
  for (const ListedConfig& listed : list_configs(config_search_path()))
    std::cout << std::left << std::setw(12) << listed.name << ' ' << listed.file.string() << '\n';
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::cout << line << std::endl;
}

// Weights that the run goes on from, or starts from.
struct FirstWeights {
  std::optional<GivenWeights> trained, init;
};

FirstWeights first_weights(const FoundRun& found, const fs::path& init) {
  FirstWeights weights;
  if (found.checkpoint) weights.trained = describe_model(found.checkpoint->folder / kModelFile).weights;
  if (!init.empty()) weights.init = describe_model(init).weights;
  return weights;
}

// The data are opened, and the weights are compared with them.
std::unique_ptr<OpenedRecipe> open_data(RunConfig& config, const OpenRequest& request, const FirstWeights& weights) {
  std::unique_ptr<OpenedRecipe> data = config.recipe->open(config.origins, request);
  print_lines(data->sentences());
  if (weights.trained) data->check_resume(*weights.trained);
  if (weights.init) data->check_start(*weights.init);
  return data;
}

// The first process looks at the data, and the others go by what it has found: a file system would not answer thousands
// of them at once. open_by: opens them with the findings of another process, or none.
template <class OpenBy>
std::unique_ptr<OpenedRecipe> open_first(const Communicator& processes, const OpenBy& open_by) {
  if (processes.size() == 1) return open_by("");
  std::unique_ptr<OpenedRecipe> data;
  {
    const Working work(processes, "looking at the data", kAnyTime);  // may compute statistics of all of them
    if (processes.rank() == 0) data = open_by("");
  }
  const std::string findings = processes.broadcast_text(data ? data->findings() : "", 0);
  return data ? std::move(data) : open_by(findings);
}

// Error where the model cannot be split in that way: before any rank is made.
std::string ranks_of(const RunConfig& config, const OpenedRecipe& data, const TrainFlags& o) {
  std::string map =
      describe_ranks(data, config.compute, config.optimizer, sizes_of(o), o.parallel_order, exchange_of(o).shards);
  map.pop_back();
  return map;
}

// Of the samples, and where the processes have met.
std::vector<std::string> notes_of(const OpenedRecipe& data) {
  std::vector<std::string> notes = data.notes();
  if (const std::string meeting = describe_meeting(); !meeting.empty()) notes.push_back(meeting);
  return notes;
}

// The config as config.json has it: with what the data say in the place of what is declared.
nlohmann::ordered_json config_of_run(RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule) {
  std::vector<FoundKey> found = data.found();
  if (config.schedule.num_epochs) found.push_back({"num_iters", schedule.num_iters});
  return to_json(config, found);
}

RunSetup setup_of(RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule, const TrainFlags& o,
                  const fs::path& folder, Device device) {
  return {.folder = folder,
          .options = config.run,
          .num_iters = schedule.num_iters,
          .global_batch_size = config.batch.global_batch_size,
          .precision = precision_of(config.compute, device),
          .rank_map = o.ranks == 1 ? "" : ranks_of(config, data, o),
          .notes = notes_of(data),
          .config = config_of_run(config, data, schedule),
          .autotune = config.compute.autotune,
          .comm_report = o.comm_report,
          .ranks_differ = o.noddp,
          .agrees_late = o.late_agreement};
}

// What all ranks of this process share: all of it is only read, but for the folder, which is the first rank's.
struct OpenedRun {
  RunConfig& config;
  const OpenedRecipe& data;
  ScheduleOptions schedule;  // of so many updates an epoch
  RunFolder* folder;         // null in all processes but the first
  FoundRun found;
  std::optional<GivenWeights> trained;  // weights that the run goes on from
  fs::path init;                        // weights to start from; empty: drawn
  RunSetup setup;
  Device device;
};

// How far the first rank has come, for whoever cleans up after an error.
struct Outcome {
  bool prepared = false;  // the folder is this run's
  std::int64_t iterations = 0;
  TrainingRun::End end = TrainingRun::End::finished;
};

// What each process has found out of its own files, before and when the model is made.
std::vector<Finding> findings_of(const OpenedRun& run) {
  std::string layout;
  for (const TensorSpec& tensor : run.data.train().layout())
    layout += concat(tensor.name, ' ', to_string(tensor.shape), ';');
  return {{"a config, completed by its data,", run.setup.config.dump()},
          {"a number of training samples", concat(run.data.train().samples())},
          {"a number of validation samples", concat(run.data.valid().samples())},
          {"a number of test samples", run.data.test() == nullptr ? "none" : concat(run.data.test()->samples())},
          {"a shape of samples", layout}};
}

std::vector<Finding> findings_of(const Task& task) {
  std::string all;
  for (const auto& [name, value] : task.settings()) all += concat(name, '=', value, '\n');
  return {{"statistics or names of the data", all}};
}

std::unique_ptr<Task> make_task(const OpenedRun& run, const Parallel& parallel) {
  const ComputeOptions& compute = run.config.compute;
  return run.trained ? run.data.make_trained_task(*run.trained, compute, run.device, parallel)
                     : run.data.make_task(compute, run.device, parallel);
}

TrainerOptions trainer_options(const OpenedRun& run) {
  const RunConfig& config = run.config;
  const std::int64_t per_epoch = config.batch.iterations_per_epoch(run.data.train().samples());
  return {config.batch, config.optimizer, run.schedule, config.compute, per_epoch, config.loss_scale};
}

// What the ranks of this process, or of all processes of this host, may take.
Room room_of(const TrainFlags& o, Device device) {
  const std::int64_t threads = o.are_processes() ? 1 : o.ranks;
  if (device.kind == DeviceKind::cuda) return {gpu::free_memory(), concat("GPU ", device.index), threads};
  const Room machine{shared_memory_bytes(), "this machine", o.are_processes() ? o.launch.local_ranks : o.ranks};
  const Room process{process_memory_bytes(), "this process", threads};
  const auto of_rank = [](const Room& room) { return room.bytes / static_cast<std::size_t>(room.ranks); };
  return of_rank(process) < of_rank(machine) ? process : machine;
}

// The part of one rank in a run. outcome: of the process; null on all its ranks but the first.
void train_as_rank(const Communicator& world, const TrainFlags& o, OpenedRun& run, Outcome* outcome) {
  const Parallel parallel = start_parallel(world, o);
  use_in_this_thread(run.device);
  // A stream of its own: the default one cannot be captured in a graph, and other streams may be kept waiting by it.
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(run.device));
  const RunConfig& config = run.config;
  check_agreement(world, findings_of(run));
  const std::unique_ptr<Task> task = make_task(run, parallel);
  check_agreement(world, findings_of(*task));
  if (!run.init.empty()) read_model(run.init, *task);
  Trainer trainer(*task, trainer_options(run), parallel);
  Loaders loaders(run.data.train(), run.data.valid(), config.reading, config.batch, config.compute.seed, run.device,
                  {parallel.dp.rank(), parallel.dp.size(), task->band()});
  if (!run.found.is_resumed) loaders.try_first_batches();
  if (run.data.test() != nullptr) loaders.judged(*run.data.test()).try_first_batch();
  world.barrier();  // nobody has found an error: an existing run may be overwritten
  RunFolder* const folder = world.rank() == 0 ? run.folder : nullptr;
  std::optional<Working> work;
  if (folder != nullptr) {
    work.emplace(world, "preparing the run's folder");
    folder->prepare(run.setup.config, run.config.keys_free_on_resume());
    outcome->prepared = true;
    run.data.keep(folder->statistics());
  }
  try {
    RunSetup setup = run.setup;
    if (setup.comm_report)
      setup.traffic_of_step =
          predict_step(run.data, trainer_options(run), planned_rank(o, world.rank()), run.device.kind).traffic;
    TrainingRun training(folder, std::move(setup), parallel, loaders, run.data.test(), *task, trainer,
                         run.found.checkpoint);
    work.reset();
    const TrainingRun::End end = training.train();
    if (outcome != nullptr) outcome->end = end;
  } catch (...) {
    if (outcome != nullptr) outcome->iterations = trainer.iteration();
    throw;
  }
}

// Trains on all ranks of this process. A run that fails before its first iteration leaves nothing that the next start
// would have to overwrite.
TrainingRun::End train_in(OpenedRun& run, const TrainFlags& o, const Communicator& processes) {
  Outcome outcome;
  const ThreadRanks ranks{
      .ranks = o.ranks, .threads_per_rank = o.config.threads_of(o.ranks), .timeout_seconds = o.comm_timeout};
  try {
    if (o.are_processes())
      train_as_rank(processes, o, run, &outcome);
    else
      run_ranks(ranks, [&](const Communicator& world) {
        train_as_rank(world, o, run, world.rank() == 0 ? &outcome : nullptr);
      });
  } catch (...) {
    if (outcome.prepared && outcome.iterations == 0 && !run.found.is_resumed) run.folder->discard();
    throw;
  }
  return outcome.end;
}

// The run, from the config on, in one process. processes: all of them, one rank each; alone where ranks are threads.
TrainingRun::End train_from(const TrainFlags& o, const Communicator& processes) {
  const NamedConfig named = named_config(o);
  RunConfig config = read_config(named.entries);
  const Device device = o.config.use_device(o.launch);
  const fs::path path = run_folder_of(o, named.name, config.run.expdir, device);
  std::optional<RunFolder> folder;
  if (processes.rank() == 0)
    folder.emplace(path, o.resume ? ExistingRun::resume : (o.overwrite ? ExistingRun::overwrite : ExistingRun::refuse));
  config.check_before_data();
  config.batch.cut(0, sizes_of(o).dp);  // before so many ranks are made
  config.make_paths_absolute();
  explain_flags(o, config.tutorial);

  FoundRun found;
  if (folder) {
    const Working work(processes, "looking for the newest whole checkpoint");
    found.is_resumed = folder->is_resumed();
    if (o.resume) found.checkpoint = checkpoint_to_resume(*folder, config);
    found.summed_up = summed_up(*folder, found.checkpoint);
  }
  found = tell_found_run(found, path, processes);
  const auto end_finished = [&] {
    // What a run that failed at its very end could not remove any more.
    if (folder) CheckpointStore(path, config.run.keep_checkpoints).remove_old(found.checkpoint->step);
    std::cout << "the run in " << path.string() << " is finished" << std::endl;
    return TrainingRun::End::finished;
  };
  if (!config.schedule.num_epochs && found.summed_up >= config.schedule.num_iters) return end_finished();
  if (folder) announce_run(*folder, config, o, device);
  fs::path init;
  if (!o.init.empty()) init = weights_at(o.init);
  const FirstWeights weights = first_weights(found, init);
  const std::unique_ptr<OpenedRecipe> data = open_first(processes, [&](const std::string& findings) {
    return open_data(config, {statistics_of(path), found.is_resumed, findings, opening_process_of(o)}, weights);
  });
  config.batch.check_fits(data->train());  // this too
  const ScheduleOptions schedule = config.schedule.of_run(config.batch.iterations_per_epoch(data->train().samples()));
  if (found.summed_up >= schedule.num_iters) return end_finished();
  if (folder)
    for (const std::string& warning : data->warnings()) tell("warning: " + warning);
  if (folder && o.config.device == "auto" && device.kind == DeviceKind::cpu)
    if (const std::string warning = about_unused_gpu(ISOBAR_HAS_CUDA); !warning.empty()) tell(warning);
  OpenedRun run{.config = config,
                .data = *data,
                .schedule = schedule,
                .folder = folder ? &*folder : nullptr,
                .found = found,
                .trained = weights.trained,
                .init = init,
                .setup = setup_of(config, *data, schedule, o, path, device),
                .device = device};
  check_room(run.data, trainer_options(run), planned_rank(o), device.kind, room_of(o, device));
  return train_in(run, o, processes);
}

// Before NCCL is loaded. What is wrong with the config is told when the ranks meet.
void keep_log_of_nccl(const TrainFlags& o, const ProcessRanks& ranks) {
  if (!o.by_nccl || !ranks.me.failure.empty()) return;
  const NamedConfig named = named_config(o);
  const fs::path folder = run_folder_of(o, named.name, read_config(named.entries).run.expdir, ranks.device);
  keep_nccl_log(fs::absolute(folder).lexically_normal().string());
}

TrainingRun::End train_as_process(TrainFlags o) {
  if (o.launch.rank > 0) silence_stdout();
  auto end = TrainingRun::End::finished;
  const ProcessRanks ranks = process_ranks_of(o);
  keep_log_of_nccl(o, ranks);
  run_process(ranks, [&](const Communicator& processes, const Launch& launch) {
    o.launch = launch;
    end = train_from(o, processes);
  });
  return end;
}

void train(TrainFlags o) {
  if (o.list_keys) std::cout << describe_keys();
  if (o.list_configs) print_configs();
  if (o.list_keys || o.list_configs) return;
  install_stop_handlers();
  find_ranks(o);
  const TrainingRun::End end = o.are_processes() ? train_as_process(o) : train_from(o, Communicator());
  if (end == TrainingRun::End::stopped) throw CLI::RuntimeError(kStoppedStatus);
}

}  // namespace

void register_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  add_train_flags(*command, *flags);
  add_run_flags(*command, *flags);
  command->callback([flags] { train(*flags); });
}

}  // namespace isobar
