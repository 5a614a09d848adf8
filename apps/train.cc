// isobar train: command line -> config -> data, model, run folder -> the loop (apps/train/run.h).
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/launcher.h"
#include "apps/train/config.h"
#include "apps/train/config_file.h"
#include "apps/train/model_file.h"
#include "apps/train/run.h"
#include "apps/train/run_folder.h"
#include "apps/train/signals.h"
#include "apps/train/yaml_config.h"
#include "comm/parallel.h"
#include "comm/thread_ranks.h"
#include "engine/files/checkpoint.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr int kStoppedStatus = 75;  // EX_TEMPFAIL: run again with --resume

struct TrainFlags {
  ConfigOptions config;
  std::string data, run_dir, init, run_num = "00";
  bool resume = false, overwrite = false, list_keys = false, list_configs = false;
  int ranks = 1;
  std::string backend = "auto";
  double comm_timeout = 600;

  // The tutorial's flags; an empty one was not given.
  std::string amp_mode, data_loader_config, parallel_order = "tp-cp-dp", yaml_config;
  std::optional<std::int64_t> local_batch_size, num_iters, num_data_workers;
  bool enable_fused = false, enable_jit = false, noddp = false, disable_broadcast_buffers = false;
  double bucket_cap_mb = 25;
  int tensor_parallel = 1, context_parallel = 1;
};

void add_tutorial_flags(CLI::App& train, TrainFlags& o) {
  const std::string group = "The tutorial's flags";
  const auto option = [&](const char* name, auto& value, const char* help) {
    return train.add_option(name, value, help)->group(group);
  };
  const auto flag = [&](const char* name, bool& value, const char* help) {
    train.add_flag(name, value, help)->group(group);
  };
  option("--run-num", o.run_num, "names the run's folder within expdir/config/devices")->capture_default_str();
  option("--amp-mode", o.amp_mode, "sets amp_mode: none, bf16, fp16");
  option("--local-batch-size", o.local_batch_size, "samples a batch on each data-parallel rank");
  option("--num-iters", o.num_iters, "sets num_iters");
  option("--num-data-workers", o.num_data_workers, "sets num_data_workers");
  option("--data-loader-config", o.data_loader_config, "sets data_loader_config: pytorch, dali (one loader here)");
  flag("--enable-fused", o.enable_fused, "nothing to switch on: Adam is always fused");
  flag("--enable-jit", o.enable_jit, "nothing to switch on: kernels are compiled ahead");
  option("--tensor-parallel", o.tensor_parallel, "1 in this version");
  option("--context-parallel", o.context_parallel, "1 in this version");
  option("--parallel-order", o.parallel_order, "which coordinate of a rank varies fastest, first to last")
      ->capture_default_str();
  option("--bucket-cap-mb", o.bucket_cap_mb, "least size of a bucket of gradients that ranks exchange")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  flag("--noddp", o.noddp, "gradients are not exchanged: each rank trains for itself");
  flag("--disable-broadcast-buffers", o.disable_broadcast_buffers, "the model has no buffers to broadcast");
  option("--yaml-config", o.yaml_config, "a YAML file: --config then names a config in it");
}

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
  say(o.disable_broadcast_buffers, "--disable-broadcast-buffers: the model has no buffers");
}

void check_layout(const TrainFlags& o) {
  ISOBAR_CHECK(o.ranks >= 1, "--ranks ", o.ranks, ": at least one rank is needed");
  ISOBAR_CHECK(o.tensor_parallel == 1, "--tensor-parallel ", o.tensor_parallel,
               ": this version knows data-parallel ranks only");
  ISOBAR_CHECK(o.context_parallel == 1, "--context-parallel ", o.context_parallel,
               ": this version knows data-parallel ranks only");
  refuse_several_tasks();
}

MeshSizes sizes_of(const TrainFlags& o) {
  return {.dp = o.ranks / (o.tensor_parallel * o.context_parallel), .tp = o.tensor_parallel, .cp = o.context_parallel};
}

// The config to start from. A run that is resumed brings its own.
NamedConfig base_config(const TrainFlags& o) {
  const std::string& name = o.config.config;
  if (!o.yaml_config.empty()) return load_yaml_config(o.yaml_config, name.empty() ? "base" : name);
  const fs::path kept = fs::path(o.run_dir) / "config.json";
  const bool own = o.resume && name.empty() && !o.run_dir.empty() && fs::exists(kept);
  NamedConfig named = load_config(own ? kept.string() : name.empty() ? "base" : name, config_search_path());
  if (own) add_older_values(named.entries, kept.string());
  return named;
}

// --set wins over the flags that set a key, and these over the config.
NamedConfig named_config(const TrainFlags& o) {
  NamedConfig named = base_config(o);
  const auto set = [&](const char* key, const char* flag, const auto& value) { named.entries[key] = {value, flag}; };
  if (!o.data.empty())
    for (const auto& [key, path] : make_recipe(task_of(named.entries))->paths_in(o.data))
      set(key.c_str(), "--data", fs::absolute(path).lexically_normal().string());
  if (!o.amp_mode.empty()) set("amp_mode", "--amp-mode", o.amp_mode);
  if (!o.data_loader_config.empty()) set("data_loader_config", "--data-loader-config", o.data_loader_config);
  if (o.local_batch_size) {
    const std::int64_t local = *o.local_batch_size;  // below 1: the key's own check refuses it
    set("global_batch_size", "--local-batch-size",
        local > 0 ? checked_product({local, sizes_of(o).dp}, "--local-batch-size") : local);
  }
  if (o.num_iters) set("num_iters", "--num-iters", *o.num_iters);
  if (o.num_data_workers) set("num_data_workers", "--num-data-workers", *o.num_data_workers);
  if (o.enable_fused) set("enable_fused", "--enable-fused", true);
  if (o.enable_jit) set("enable_jit", "--enable-jit", true);
  for (const std::string& assignment : o.config.assignments) set_from_assignment(named.entries, assignment);
  return named;
}

fs::path run_folder_of(const TrainFlags& o, const std::string& config_name, const std::string& expdir, Device device) {
  if (!o.run_dir.empty()) return o.run_dir;
  const std::string devices = device.kind == DeviceKind::cuda ? concat(o.ranks, "GPU") : "CPU";
  return fs::path(expdir) / config_name / devices / o.run_num;
}

std::optional<Checkpoint> checkpoint_to_resume(const RunFolder& folder) {
  const FoundCheckpoint found = find_newest_whole(folder.path());
  for (const std::string& damaged : found.skipped) std::cerr << "isobar: passed over: " << damaged << std::endl;
  if (!found.checkpoint) std::cout << "no checkpoint in " << folder.path().string() << ": starting" << std::endl;
  return found.checkpoint;
}

bool is_finished(const RunFolder& folder, const std::optional<Checkpoint>& checkpoint, std::int64_t num_iters) {
  const nlohmann::ordered_json summary = folder.read_summary();
  return checkpoint && checkpoint->step >= num_iters && summary.is_object() &&
         summary.value("iterations", nlohmann::ordered_json()) == checkpoint->step;
}

void print_configs() {
  for (const ListedConfig& listed : list_configs(config_search_path()))
    std::cout << std::left << std::setw(12) << listed.name << ' ' << listed.file.string() << '\n';
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::cout << line << std::endl;
}

std::string precision_of(const ComputeOptions& compute, Device device) {
  if (compute.amp_mode != AmpMode::none) return name_of_enum(compute.amp_mode);
  const bool tf32 = compute.dtype == ArithmeticType::fp32 && compute.tf32 && device.kind == DeviceKind::cuda;
  return tf32 ? "tf32" : name_of_enum(compute.dtype);
}

// The data are opened, and weights that the run starts or goes on from are compared with them.
void open_data(Recipe& recipe, const RunFolder& folder, const std::optional<Checkpoint>& checkpoint,
               const std::string& init) {
  print_lines(recipe.open(folder.statistics(), folder.is_resumed()));
  if (checkpoint) recipe.check_resume(describe_model(checkpoint->folder / kModelFile).weights);
  if (!init.empty()) recipe.check_start(describe_model(init).weights);
}

RunSetup setup_of(RunConfig& config, const TrainFlags& o, const fs::path& folder, Device device) {
  return {.folder = folder,
          .options = config.run,
          .num_iters = config.schedule.num_iters,
          .global_batch_size = config.batch.global_batch_size,
          .precision = precision_of(config.compute, device),
          .notes = config.recipe->notes(),
          .config = to_json(config),
          .ranks_differ = o.noddp};
}

// What all ranks of this process share: all of it is only read, but for the folder, which is the first rank's.
struct OpenedRun {
  RunConfig& config;
  RunFolder& folder;
  std::optional<Checkpoint> checkpoint;
  RunSetup setup;
  Device device;
};

// How far the first rank has come, for whoever cleans up after an error.
struct Outcome {
  bool prepared = false;  // the folder is this run's
  std::int64_t iterations = 0;
  TrainingRun::End end = TrainingRun::End::finished;
};

// The part of one rank in a run. outcome: null on all ranks but the first.
void train_as_rank(const Communicator& world, const TrainFlags& o, OpenedRun& run, Outcome* outcome) {
  const Parallel parallel = Parallel::start(world, sizes_of(o), o.parallel_order);
  use_in_this_thread(run.device);
  // A stream of its own: the default one cannot be captured in a graph, and other streams may be kept waiting by it.
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(run.device));
  const RunConfig& config = run.config;
  const Recipe& recipe = *config.recipe;
  const std::unique_ptr<Task> task = recipe.make_task(config.compute, run.device);
  if (!o.init.empty()) read_model(o.init, *task);
  const ExchangeOptions exchange{.bucket_bytes = static_cast<std::size_t>(o.bucket_cap_mb * (1 << 20)), .off = o.noddp};
  Trainer trainer(*task, {config.batch, config.optimizer, config.schedule, config.compute}, parallel, exchange);
  Loaders loaders(recipe.train(), recipe.valid(), config.reading, config.batch, config.compute.seed, run.device,
                  {parallel.dp.rank(), parallel.dp.size()});
  if (!run.folder.is_resumed()) loaders.try_first_batches();
  world.barrier();  // nobody has found an error: an existing run may be overwritten
  if (outcome != nullptr) {
    run.folder.prepare(run.setup.config, run.config.keys_free_on_resume());
    outcome->prepared = true;
    recipe.keep(run.folder.statistics());
  }
  try {
    TrainingRun training(outcome != nullptr ? &run.folder : nullptr, run.setup, parallel, loaders, *task, trainer,
                         run.checkpoint);
    const TrainingRun::End end = training.train();
    if (outcome != nullptr) outcome->end = end;
  } catch (...) {
    if (outcome != nullptr) outcome->iterations = trainer.iteration();
    throw;
  }
}

// Trains on all ranks of this process. A run that fails before its first iteration leaves nothing that the next start
// would have to overwrite.
TrainingRun::End train_in(OpenedRun& run, const TrainFlags& o) {
  Outcome outcome;
  const ThreadRanks ranks{
      .ranks = o.ranks, .threads_per_rank = o.config.threads_of(o.ranks), .timeout_seconds = o.comm_timeout};
  try {
    run_ranks(ranks,
              [&](const Communicator& world) { train_as_rank(world, o, run, world.rank() == 0 ? &outcome : nullptr); });
  } catch (...) {
    if (outcome.prepared && outcome.iterations == 0 && !run.folder.is_resumed()) run.folder.discard();
    throw;
  }
  return outcome.end;
}

void train(const TrainFlags& o) {
  if (o.list_keys) std::cout << describe_keys();
  if (o.list_configs) print_configs();
  if (o.list_keys || o.list_configs) return;
  install_stop_handlers();
  check_layout(o);
  const NamedConfig named = named_config(o);
  RunConfig config = read_config(named.entries);
  const Device device = o.config.use_device();
  RunFolder folder(run_folder_of(o, named.name, config.run.expdir, device),
                   o.resume ? ExistingRun::resume : (o.overwrite ? ExistingRun::overwrite : ExistingRun::refuse));
  print_lines(config.complete_and_check());
  config.batch.part(sizes_of(o).dp);  // before so many ranks are made
  config.make_paths_absolute();
  explain_flags(o, config.tutorial);

  const std::optional<Checkpoint> checkpoint = o.resume ? checkpoint_to_resume(folder) : std::nullopt;
  if (is_finished(folder, checkpoint, config.schedule.num_iters)) {
    // What a run that failed at its very end could not remove any more.
    CheckpointStore(folder.path(), config.run.keep_checkpoints).remove_old(checkpoint->step);
    std::cout << "the run in " << folder.path().string() << " is finished" << std::endl;
    return;
  }
  open_data(*config.recipe, folder, checkpoint, o.init);
  OpenedRun run{config, folder, checkpoint, setup_of(config, o, folder.path(), device), device};
  if (train_in(run, o) == TrainingRun::End::stopped) throw CLI::RuntimeError(kStoppedStatus);
}

}  // namespace

void register_train(CLI::App& app) {
  auto options = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  add_config_options(*command, options->config);
  command->add_option("--data", options->data, "a folder with train/, valid/ and stats/, or with all files in it");
  command->add_option("--run-dir", options->run_dir, "where the run goes; default expdir/config/devices/run-num");
  command->add_option("--init", options->init, "a safetensors file of weights to start from");
  auto* resume = command->add_flag("--resume", options->resume,
                                   "go on from the newest whole checkpoint, if any, with the run's config");
  command->add_flag("--overwrite", options->overwrite, "replace the run that is there")->excludes(resume);
  command->add_flag("--list-keys", options->list_keys, "print the config keys, with defaults, and end");
  command->add_flag("--list-configs", options->list_configs, "print the named configs, and end");
  command->add_option("--ranks", options->ranks, "ranks, as threads of this process")->capture_default_str();
  command->add_option("--backend", options->backend, "how ranks exchange data")
      ->check(CLI::IsMember({"auto", "thread"}))
      ->capture_default_str();
  command->add_option("--comm-timeout", options->comm_timeout, "seconds that a rank waits for the others")
      ->check(CLI::Range(1e-3, 1e6))
      ->capture_default_str();
  add_tutorial_flags(*command, *options);
  command->callback([options] { train(*options); });
}

}  // namespace isobar
