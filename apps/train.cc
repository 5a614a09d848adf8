// isobar train: command line -> config -> what run there is (apps/train/found_run.h) -> data (opened_run.h) -> each
// rank's model, folder and loop (rank_of_run.h).
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/commands.h"
#include "apps/train/config.h"
#include "apps/train/fit.h"
#include "apps/train/found_run.h"
#include "apps/train/opened_run.h"
#include "apps/train/rank_map.h"
#include "apps/train/rank_of_run.h"
#include "apps/train/run.h"
#include "apps/train/run_folder.h"
#include "apps/train/signals.h"
#include "apps/train/unused_gpu.h"
#include "apps/train_command.h"
#include "apps/train_flags.h"
#include "comm/nccl/nccl_ranks.h"
#include "comm/process_ranks.h"
#include "comm/thread_ranks.h"
#include "engine/files/checkpoint.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

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
  say(!o.shard_optimizer.empty() && o.ranks == o.tensor_parallel * o.pipeline_parallel,
      "--shard-optimizer: one data-parallel rank holds all moments of what it trains");
  say(o.sequence_parallel && o.tensor_parallel == 1,
      "--sequence-parallel: without --tensor-parallel every rank has all rows of its samples");
  say(o.enable_apex, "--enable-apex: isobar's Adam is one fused kernel always");
  say(o.enable_benchy, "--enable-benchy: isobar-bench times kernels; --set volumes=synthetic reads no data");
  say(o.disable_broadcast_buffers, "--disable-broadcast-buffers: the model has no buffers");
}

fs::path run_folder_of(const TrainFlags& o, const std::string& config_name, const std::string& expdir, Device device) {
  if (!o.run_dir.empty()) return o.run_dir;
  const std::string devices = device.kind == DeviceKind::cuda ? concat(o.ranks, "GPU") : "CPU";
  return fs::path(expdir) / config_name / devices / o.run_num;
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

// Error where the model cannot be split in that way: before any rank is made.
std::string ranks_of(const RunConfig& config, const OpenedRecipe& data, const TrainFlags& o) {
  std::string map = describe_ranks(data, config.compute, config.optimizer, sizes_of(o), o.parallel_order,
                                   exchange_of(o).shards, pipeline_options(o.pipeline_chunks, o.pipeline_split));
  map.pop_back();
  return map;
}

// Of the samples, how weights begin, and where the processes have met.
std::vector<std::string> notes_of(const RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule,
                                  const std::optional<PartialStart>& partial) {
  std::vector<std::string> notes = data.notes();
  if (const std::string repeated = about_repeated_samples(config, data, schedule); !repeated.empty())
    notes.push_back(repeated);
  if (partial) notes.insert(notes.end(), partial->lines().begin(), partial->lines().end());
  if (const std::string meeting = describe_meeting(); !meeting.empty()) notes.push_back(meeting);
  return notes;
}

RunSetup setup_of(RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule,
                  const std::optional<PartialStart>& partial, const TrainFlags& o, const fs::path& folder,
                  Device device) {
  return {.folder = folder,
          .options = config.run,
          .num_iters = schedule.num_iters,
          .global_batch_size = config.batch.global_batch_size,
          .precision = precision_of(config.compute, device),
          .rank_map = o.ranks == 1 ? "" : ranks_of(config, data, o),
          .notes = notes_of(config, data, schedule, partial),
          .config = config_of_run(config, data, schedule),
          .autotune = config.compute.autotune,
          .comm_report = o.comm_report,
          .ranks_differ = o.noddp,
          .agrees_late = o.late_agreement,
          .ramp = config.batch.ramp(),
          .trace = o.trace,
          .megatron = o.megatron};
}

// The memory that the ranks of this process, or of all processes of this host, may use.
Room room_of(const TrainFlags& o, Device device) {
  const std::int64_t threads = o.are_processes() ? 1 : o.ranks;
  if (device.kind == DeviceKind::cuda) return {gpu::free_memory(), concat("GPU ", device.index), threads};
  const Room machine{shared_memory_bytes(), "this machine", o.are_processes() ? o.launch.local_ranks : o.ranks};
  const Room process{process_memory_bytes(), "this process", threads};
  const auto of_rank = [](const Room& room) { return room.bytes / static_cast<std::size_t>(room.ranks); };
  return of_rank(process) < of_rank(machine) ? process : machine;
}

// One rank, on its device and its stream.
void train_on_device(const Communicator& world, const TrainFlags& o, OpenedRun& run, Outcome* outcome) {
  const Parallel parallel = start_parallel(world, o);
  use_in_this_thread(run.device);
  // A stream of its own: the default one cannot be captured in a graph, and other streams may be kept waiting by it.
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(run.device));
  train_as_rank(parallel, planned_rank(o, world.rank()), run, outcome);
}

// Trains on all ranks of this process. A run that fails before its first iteration leaves nothing that the next start
// would have to overwrite.
TrainingRun::End train_in(OpenedRun& run, const TrainFlags& o, const Communicator& processes) {
  Outcome outcome;
  const ThreadRanks ranks{
      .ranks = o.ranks, .threads_per_rank = o.config.threads_of(o.ranks), .timeout_seconds = o.comm_timeout};
  try {
    if (o.are_processes())
      train_on_device(processes, o, run, &outcome);
    else
      run_ranks(ranks, [&](const Communicator& world) {
        train_on_device(world, o, run, world.rank() == 0 ? &outcome : nullptr);
      });
  } catch (...) {
    if (outcome.prepared && outcome.iterations == 0 && !run.found.is_resumed) run.folder->discard();
    throw;
  }
  return outcome.end;
}

bool resumes(const TrainFlags& o, const RunConfig& config) {
  return o.resume || (config.run.resume == Resuming::automatic && !o.overwrite);
}

ExistingRun existing_run(const TrainFlags& o, const RunConfig& config) {
  if (o.overwrite) return ExistingRun::overwrite;
  return resumes(o, config) ? ExistingRun::resume : ExistingRun::refuse;
}

RunFolderFlags folder_flags(const TrainFlags& o, const fs::path& folder) {
  if (!o.megatron) return {};
  return {.go_on = "--load " + folder.string(), .folder = "--save", .choices = "--save", .place = "--save DIR"};
}

// The run, from the config on, in one process. processes: all of them, one rank each; alone where ranks are threads.
TrainingRun::End train_from(const TrainFlags& o, const Communicator& processes) {
  const NamedConfig named = named_config(o);
  RunConfig config = read_config(named.entries);
  const Device device = o.config.use_device(o.launch);
  const fs::path path = run_folder_of(o, named.name, config.run.expdir, device);
  std::optional<RunFolder> folder;
  if (processes.rank() == 0) folder.emplace(path, existing_run(o, config), folder_flags(o, path));
  config.check_before_data();
  config.batch.cut(0, sizes_of(o).dp);  // before so many ranks are made
  config.make_paths_absolute();
  explain_flags(o, config.tutorial);
  print_left_out(config);
  for (const std::string& note : named.notes) std::cout << note << std::endl;

  const FoundRun found =
      find_run(folder ? &*folder : nullptr, path, resumes(o, config), config.keys_free_on_resume(), processes);
  const auto end_finished = [&] {
    // What a run that failed at its very end could not remove any more.
    if (folder) CheckpointStore(path, config.run.keep_checkpoints).remove_old(found.checkpoint->step);
    std::cout << "the run in " << path.string() << " is finished";
    if (!config.schedule.num_epochs)
      std::cout << ", after " << found.summed_up << " iterations; "
                << (o.megatron ? "--train-iters N" : "--set num_iters=N") << " makes it longer";
    std::cout << std::endl;
    return TrainingRun::End::finished;
  };
  if (!config.schedule.num_epochs && found.summed_up >= config.schedule.num_iters) return end_finished();
  if (folder) announce_run(*folder, config, o, device);
  if (folder && o.megatron)
    for (const std::string& line : o.megatron->start_lines()) folder->say(line);
  fs::path init;
  if (!o.init.empty()) init = weights_at(o.init);
  const FirstWeights weights = first_weights(found, init, o.init_partial);
  const OpenRequest request{.kept = statistics_of(path),
                            .resumed = found.is_resumed,
                            .process = opening_process_of(o),
                            .global_batch_size = config.batch.global_batch_size,
                            .iterations = config.schedule.iterations()};
  const std::unique_ptr<OpenedRecipe> data = open_data_of_run(config, request, weights, processes);
  config.batch.check_fits(data->train());  // this too
  const ScheduleOptions schedule = config.schedule.of_run(config.batch.iterations_per_epoch(data->train().samples()));
  if (found.summed_up >= schedule.num_iters) return end_finished();
  if (folder)
    for (const std::string& warning : data->warnings()) print_line("warning: " + warning);
  const std::string about_gpu = about_unused_gpu(o.config.device, device, ISOBAR_HAS_CUDA);
  if (folder && !about_gpu.empty()) print_line(about_gpu);
  const std::optional<PartialStart> partial = partial_start(weights, config, *data);
  OpenedRun run{.config = config,
                .data = *data,
                .folder = folder ? &*folder : nullptr,
                .found = found,
                .trained = weights.trained,
                .init = o.init_partial ? fs::path() : init,
                .init_moments = o.init_moments,
                .partial = partial,
                .setup = setup_of(config, *data, schedule, partial, o, path, device),
                .device = device};
  run.setup.step = check_room(run.data, trainer_options(run), planned_rank(o), device.kind, room_of(o, device));
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
  find_ranks(o);
  train_on_ranks(std::move(o));
}

}  // namespace

void train_on_ranks(TrainFlags o) {
  install_stop_handlers();
  const TrainingRun::End end = o.are_processes() ? train_as_process(std::move(o)) : train_from(o, Communicator());
  if (end == TrainingRun::End::stopped) throw CLI::RuntimeError(kStoppedStatus);
}

void register_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  add_train_flags(*command, *flags);
  add_run_flags(*command, *flags);
  command->callback([flags] { train(*flags); });
}

}  // namespace isobar
