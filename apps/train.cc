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
#include "apps/train/fit.h"
#include "apps/train/from_data.h"
#include "apps/train/model_file.h"
#include "apps/train/run.h"
#include "apps/train/run_folder.h"
#include "apps/train/signals.h"
#include "engine/files/checkpoint.h"
#include "engine/yaml_config.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr int kStoppedStatus = 75;  // EX_TEMPFAIL: run again with --resume

struct TrainOptions {
  ConfigOptions config;
  std::string data, run_dir, init, run_num = "00";
  bool resume = false, overwrite = false, list_keys = false, list_configs = false;
  int ranks = 1;

  // The tutorial's flags; an empty one was not given.
  std::string amp_mode, data_loader_config, parallel_order = "tp-cp-dp", yaml_config;
  std::optional<std::int64_t> local_batch_size, num_iters, num_data_workers;
  bool enable_fused = false, enable_jit = false, noddp = false, disable_broadcast_buffers = false;
  double bucket_cap_mb = 25;
  int tensor_parallel = 1, context_parallel = 1;
};

void add_tutorial_flags(CLI::App& train, TrainOptions& o) {
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
  option("--parallel-order", o.parallel_order, "the order of ranks");
  option("--bucket-cap-mb", o.bucket_cap_mb, "size of gradient buckets among ranks; unused on one device");
  flag("--noddp", o.noddp, "nothing to switch off on one device");
  flag("--disable-broadcast-buffers", o.disable_broadcast_buffers, "the model has no buffers to broadcast");
  option("--yaml-config", o.yaml_config, "a YAML file: --config then names a config in it");
}

// One line for every flag that is accepted and changes nothing.
void explain_flags(const TrainOptions& o, const Config& config) {
  const auto say = [](bool given, const char* sentence) {
    if (given) std::cout << sentence << std::endl;
  };
  say(config.enable_fused, "enable_fused: isobar's Adam is one fused kernel always");
  say(config.enable_jit, "enable_jit: isobar's kernels are compiled ahead and fused by hand");
  say(config.data_loader_config == LoaderKind::dali, "data_loader_config dali: isobar has one loader, with threads");
  say(o.noddp, "--noddp: one device makes no gradient exchange");
  say(o.disable_broadcast_buffers, "--disable-broadcast-buffers: the model has no buffers");
}

void check_single_device(const TrainOptions& o) {
  ISOBAR_CHECK(o.ranks == 1, "--ranks ", o.ranks, ": this version trains on one device, as one rank");
  ISOBAR_CHECK(o.tensor_parallel == 1, "--tensor-parallel ", o.tensor_parallel, ": this version trains on one device");
  ISOBAR_CHECK(o.context_parallel == 1, "--context-parallel ", o.context_parallel,
               ": this version trains on one device");
  refuse_several_tasks();
}

// --data DIR: the tutorial's layout, or a flat folder of files and statistics.
void set_data_folder(ConfigEntries& entries, const fs::path& folder) {
  ISOBAR_CHECK(fs::is_directory(folder), "--data ", folder.string(), " is not a folder");
  const auto set = [&](const char* key, const fs::path& path) {
    entries[key] = {fs::absolute(path).lexically_normal().string(), "--data"};
  };
  const bool flat = !fs::is_directory(folder / "train");
  ISOBAR_CHECK(!flat || holds_h5_files(folder.string()), "--data ", folder.string(),
               " holds neither train/ and valid/, as the tutorial's data, nor .h5 files");
  const fs::path statistics = fs::is_directory(folder / "stats") ? folder / "stats" : folder;
  set("train_data_path", flat ? folder : folder / "train");
  set("valid_data_path", flat ? folder : folder / "valid");
  set("inf_data_path", flat ? folder : folder / "test");
  set("global_means_path", statistics / "global_means.npy");
  set("global_stds_path", statistics / "global_stds.npy");
  set("time_means_path", statistics / "time_means.npy");
}

// The config to start from. A run that is resumed brings its own.
NamedConfig base_config(const TrainOptions& o) {
  const std::string& name = o.config.config;
  if (!o.yaml_config.empty()) return load_yaml_config(o.yaml_config, name.empty() ? "base" : name);
  const fs::path kept = fs::path(o.run_dir) / "config.json";
  const bool own = o.resume && name.empty() && !o.run_dir.empty() && fs::exists(kept);
  NamedConfig named = load_config(own ? kept.string() : name.empty() ? "base" : name, config_search_path());
  // A run of before there was this key goes on with the samples it began with.
  if (own) named.entries.try_emplace("allow_overlap", ConfigEntry{true, kept.string()});
  return named;
}

// --set wins over the flags that set a key, and these over the config.
NamedConfig read_config(const TrainOptions& o) {
  NamedConfig named = base_config(o);
  const auto set = [&](const char* key, const char* flag, const auto& value) { named.entries[key] = {value, flag}; };
  if (!o.data.empty()) set_data_folder(named.entries, o.data);
  if (!o.amp_mode.empty()) set("amp_mode", "--amp-mode", o.amp_mode);
  if (!o.data_loader_config.empty()) set("data_loader_config", "--data-loader-config", o.data_loader_config);
  if (o.local_batch_size) set("global_batch_size", "--local-batch-size", *o.local_batch_size);
  if (o.num_iters) set("num_iters", "--num-iters", *o.num_iters);
  if (o.num_data_workers) set("num_data_workers", "--num-data-workers", *o.num_data_workers);
  if (o.enable_fused) set("enable_fused", "--enable-fused", true);
  if (o.enable_jit) set("enable_jit", "--enable-jit", true);
  for (const std::string& assignment : o.config.assignments) set_from_assignment(named.entries, assignment);
  return named;
}

// config.json repeats the run from any folder.
void make_paths_absolute(Config& config) {
  for (std::string* path : {&config.train_data_path, &config.valid_data_path, &config.inf_data_path,
                            &config.global_means_path, &config.global_stds_path, &config.time_means_path})
    *path = fs::absolute(*path).lexically_normal().string();
}

fs::path run_folder_of(const TrainOptions& o, const NamedConfig& named, Device device) {
  if (!o.run_dir.empty()) return o.run_dir;
  std::string expdir = Config().expdir;
  read_entry(named.entries, "expdir", expdir);
  return fs::path(expdir) / named.name / (device.kind == DeviceKind::cuda ? "1GPU" : "CPU") / o.run_num;
}

std::optional<Checkpoint> checkpoint_to_resume(const RunFolder& folder) {
  const FoundCheckpoint found = find_newest_whole(folder.path());
  for (const std::string& damaged : found.skipped) std::cerr << "isobar: passed over: " << damaged << std::endl;
  if (!found.checkpoint) std::cout << "no checkpoint in " << folder.path().string() << ": starting" << std::endl;
  return found.checkpoint;
}

bool is_finished(const RunFolder& folder, const std::optional<Checkpoint>& checkpoint, const Config& config) {
  const nlohmann::ordered_json summary = folder.read_summary();
  return checkpoint && checkpoint->step >= config.num_iters && summary.is_object() &&
         summary.value("iterations", nlohmann::ordered_json()) == checkpoint->step;
}

void print_configs() {
  for (const ListedConfig& listed : list_configs(config_search_path()))
    std::cout << std::left << std::setw(12) << listed.name << ' ' << listed.file.string() << '\n';
}

// Where nobody has made statistics, or the run's own are to be made anew, they are made from the training steps and kept
// in the run folder, which the config then names.
StatisticsFrom choose_statistics(Config& config, const RunFolder& folder) {
  const fs::path own = fs::absolute(folder.statistics()).lexically_normal();
  const bool anew = !folder.is_resumed() && fs::path(config.global_means_path).parent_path() == own;
  if (!anew && !statistics_are_missing(config)) return StatisticsFrom::files;
  const fs::path looked_in = fs::path(config.global_means_path).parent_path();
  bool kept = folder.is_resumed();
  for (std::string* path : {&config.global_means_path, &config.global_stds_path, &config.time_means_path}) {
    *path = (own / fs::path(*path).filename()).string();
    kept = kept && fs::exists(*path);
  }
  std::cout << "no statistics in " << looked_in.string() << ": "
            << (kept ? "the run's own are taken, " : "they are made from the training steps and kept in ")
            << own.string() << std::endl;
  return kept ? StatisticsFrom::files : StatisticsFrom::training_steps;
}

// A run that fails before its first iteration leaves nothing that the next start would have to overwrite.
TrainingRun::End run_or_discard(RunFolder& folder, TrainingData& data, Forecaster& forecaster, Trainer& trainer,
                                const std::optional<Checkpoint>& checkpoint) {
  try {
    TrainingRun run(folder, data, forecaster, trainer, checkpoint);
    return run.train();
  } catch (...) {
    if (trainer.iteration() == 0 && !folder.is_resumed()) folder.discard();
    throw;
  }
}

void train(const TrainOptions& o) {
  if (o.list_keys) std::cout << describe_keys();
  if (o.list_configs) print_configs();
  if (o.list_keys || o.list_configs) return;
  note_stop_signals();
  check_single_device(o);
  NamedConfig named = read_config(o);
  const Device device = o.config.use_device();
  RunFolder folder(run_folder_of(o, named, device),
                   o.resume ? ExistingRun::resume : (o.overwrite ? ExistingRun::overwrite : ExistingRun::refuse));
  for (const std::string& sentence : fill_from_data(named.entries)) std::cout << sentence << std::endl;
  Config config = config_from(named.entries);
  make_paths_absolute(config);
  explain_flags(o, config);

  const std::optional<Checkpoint> checkpoint = o.resume ? checkpoint_to_resume(folder) : std::nullopt;
  if (is_finished(folder, checkpoint, config)) {
    // What a run that failed at its very end could not remove any more.
    CheckpointStore(folder.path(), config.keep_checkpoints).remove_old(checkpoint->step);
    std::cout << "the run in " << folder.path().string() << " is finished" << std::endl;
    return;
  }
  const StatisticsFrom statistics = choose_statistics(config, folder);
  TrainingData data(config, device, statistics);
  if (checkpoint) check_same_data(checkpoint->folder / "model.safetensors", data.train(), data.grid());
  if (!o.init.empty()) check_weights_fit(o.init, data.train(), data.grid());
  config.channel_names = data.grid().channel_names;
  Forecaster forecaster(config, data.grid(), device);
  if (!o.init.empty()) read_model(o.init, forecaster);
  Trainer trainer(forecaster);

  if (!folder.is_resumed()) data.try_first_batches();  // before a run that is there is overwritten

  folder.prepare(to_json(config));
  if (const auto& made = data.made_statistics())
    write_statistics(*made, data.train().height(), data.train().width(), folder.statistics().string());
  if (run_or_discard(folder, data, forecaster, trainer, checkpoint) == TrainingRun::End::stopped)
    throw CLI::RuntimeError(kStoppedStatus);
}

}  // namespace

void register_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a forecaster");
  add_config_options(*command, options->config);
  command->add_option("--data", options->data, "a folder with train/, valid/ and stats/, or with all files in it");
  command->add_option("--run-dir", options->run_dir, "where the run goes; default expdir/config/devices/run-num");
  command->add_option("--init", options->init, "a safetensors file of weights to start from");
  auto* resume = command->add_flag("--resume", options->resume,
                                   "go on from the newest whole checkpoint, if any, with the run's config");
  command->add_flag("--overwrite", options->overwrite, "replace the run that is there")->excludes(resume);
  command->add_flag("--list-keys", options->list_keys, "print the config keys, with defaults, and end");
  command->add_flag("--list-configs", options->list_configs, "print the named configs, and end");
  command->add_option("--ranks", options->ranks, "ranks as threads; 1 in this version")->capture_default_str();
  add_tutorial_flags(*command, *options);
  command->callback([options] { train(*options); });
}

}  // namespace isobar
