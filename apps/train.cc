// isobar train: command line -> config -> data, model, run folder -> the loop (models/training_run.h).
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "engine/checkpoint.h"
#include "engine/signals.h"
#include "kernels/common/check.h"
#include "models/run_folder.h"
#include "models/training_run.h"
#include "models/weights.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr int kStoppedStatus = 75;  // EX_TEMPFAIL: run again with --resume

struct TrainOptions {
  ConfigOptions config;
  std::string data, run_dir, init, run_num = "00";
  bool resume = false, overwrite = false;
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
  option("--yaml-config", o.yaml_config, "configs are JSON here: --config finds the tutorial's by their names");
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
  say(!o.yaml_config.empty(), "--yaml-config: isobar reads JSON; --config finds the tutorial's configs by name");
}

void check_single_device(const TrainOptions& o) {
  ISOBAR_CHECK(o.ranks == 1, "--ranks ", o.ranks, ": this version trains on one device, as one rank");
  ISOBAR_CHECK(o.tensor_parallel == 1, "--tensor-parallel ", o.tensor_parallel, ": this version trains on one device");
  ISOBAR_CHECK(o.context_parallel == 1, "--context-parallel ", o.context_parallel,
               ": this version trains on one device");
}

// --data DIR: the tutorial's layout, or a flat folder of files and statistics.
void set_data_folder(ConfigEntries& entries, const fs::path& folder) {
  ISOBAR_CHECK(fs::is_directory(folder), "--data ", folder.string(), " is not a folder");
  const auto set = [&](const char* key, const fs::path& path) {
    entries[key] = {fs::absolute(path).lexically_normal().string(), "--data"};
  };
  const bool flat = !fs::is_directory(folder / "train");
  const fs::path statistics = fs::is_directory(folder / "stats") ? folder / "stats" : folder;
  set("train_data_path", flat ? folder : folder / "train");
  set("valid_data_path", flat ? folder : folder / "valid");
  set("inf_data_path", flat ? folder : folder / "test");
  set("global_means_path", statistics / "global_means.npy");
  set("global_stds_path", statistics / "global_stds.npy");
  set("time_means_path", statistics / "time_means.npy");
}

NamedConfig read_config(const TrainOptions& o) {
  NamedConfig named = load_config(o.config.config.empty() ? "base" : o.config.config, config_search_path());
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

fs::path run_folder_of(const TrainOptions& o, const Config& config, const std::string& config_name, Device device) {
  if (!o.run_dir.empty()) return o.run_dir;
  return fs::path(config.expdir) / config_name / (device.kind == DeviceKind::cuda ? "1GPU" : "CPU") / o.run_num;
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
         summary.value("iterations", std::int64_t{-1}) == checkpoint->step;
}

void train(const TrainOptions& o) {
  note_stop_signals();
  check_single_device(o);
  const NamedConfig named = read_config(o);
  Config config = config_from(named.entries);
  make_paths_absolute(config);
  explain_flags(o, config);
  const Device device = o.config.use_device();

  RunFolder folder(run_folder_of(o, config, named.name, device),
                   o.resume ? ExistingRun::resume : (o.overwrite ? ExistingRun::overwrite : ExistingRun::refuse));
  const std::optional<Checkpoint> checkpoint = o.resume ? checkpoint_to_resume(folder) : std::nullopt;
  if (is_finished(folder, checkpoint, config)) {
    // What a run that failed at its very end could not remove any more.
    CheckpointStore(folder.path(), static_cast<int>(config.keep_checkpoints)).remove_old(checkpoint->step);
    std::cout << "the run in " << folder.path().string() << " is finished" << std::endl;
    return;
  }
  TrainingData data(config, device);
  config.channel_names = data.grid().channel_names;
  Forecaster forecaster(config, data.grid(), device);
  if (!o.init.empty()) read_model(o.init, forecaster);
  Trainer trainer(forecaster);

  folder.prepare(to_json(config));
  TrainingRun run(folder, data, forecaster, trainer, checkpoint);
  if (run.train() == TrainingRun::End::stopped) throw CLI::RuntimeError(kStoppedStatus);
}

}  // namespace

void register_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a forecaster");
  add_config_options(*command, options->config);
  command->add_option("--data", options->data, "a folder with train/, valid/ and stats/, or with all files in it");
  command->add_option("--run-dir", options->run_dir, "where the run goes; default expdir/config/devices/run-num");
  command->add_option("--init", options->init, "a safetensors file of weights to start from");
  auto* resume = command->add_flag("--resume", options->resume, "go on from the newest whole checkpoint, if any");
  command->add_flag("--overwrite", options->overwrite, "replace the run that is there")->excludes(resume);
  command->add_option("--ranks", options->ranks, "ranks as threads; 1 in this version")->capture_default_str();
  add_tutorial_flags(*command, *options);
  command->callback([options] { train(*options); });
}

}  // namespace isobar
