#include "apps/train_flags.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <span>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "apps/train/config.h"
#include "apps/train/reference_names.h"
#include "apps/train/yaml_config.h"
#include "comm/mpi_backend.h"
#include "comm/process_ranks.h"
#include "engine/files/checksum.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/common/sentence.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/identity.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kAllShards = "all";  // the value of --shard-optimizer given without a number

constexpr const char* kTutorial = "The tutorial's flags";

void add_tutorial_flags(CLI::App& command, TrainFlags& o) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(kTutorial);
  };
  option("--amp-mode", o.amp_mode, "sets amp_mode: none, bf16, fp16");
  option("--local-batch-size", o.local_batch_size, "samples a batch on each data-parallel rank");
  option("--num-iters", o.num_iters, "sets num_iters");
  option("--num-epochs", o.num_epochs, "sets num_epochs");
  option("--num-data-workers", o.num_data_workers, "sets num_data_workers");
  option("--data-loader-config", o.data_loader_config,
         "pytorch, dali (one loader here); of volumes: synthetic, inmem, lowmem, dali-lowmem");
  option("--tensor-parallel", o.tensor_parallel, "ranks that share each block's heads and hidden channels")
      ->capture_default_str();
  option("--context-parallel", o.context_parallel, "ranks that hold bands of rows of the same samples")
      ->capture_default_str();
  const auto& forms = EnumNames<ContextForm>::names;
  option("--context-form", o.context_form, "how such ranks compute attention; automatic: all-to-all, or gather")
      ->check(CLI::IsMember(std::vector<std::string>(forms.begin(), forms.end())))
      ->capture_default_str();
  option("--parallel-order", o.parallel_order, "which coordinate of a rank varies fastest, first to last")
      ->capture_default_str();
  option("--bucket-cap-mb", o.bucket_cap_mb, "least size of a bucket of gradients that ranks exchange")
      ->check(number_between(1e-6, 1e6))
      ->capture_default_str();
  option("--yaml-config", o.yaml_config, "a YAML file: --config then names a config in it");
}

void add_tutorial_run_flags(CLI::App& command, TrainFlags& o) {
  const auto flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group(kTutorial);
  };
  command.add_option("--run-num", o.run_num, "names the run's folder within expdir/config/devices")
      ->group(kTutorial)
      ->capture_default_str();
  command.add_option("--root-dir", o.root_dir, "sets expdir")->group(kTutorial);
  flag("--enable-fused", o.enable_fused, "nothing to switch on: Adam is always fused");
  flag("--enable-amp", o.enable_amp, "sets amp_mode=fp16");
  flag("--enable-apex", o.enable_apex, "nothing to switch on: Adam is always fused");
  flag("--enable-benchy", o.enable_benchy, "nothing to switch on: isobar-bench times kernels");
  flag("--enable-jit", o.enable_jit, "nothing to switch on: kernels are compiled ahead");
  flag("--noddp", o.noddp, "gradients are not exchanged: each rank trains for itself");
  flag("--disable-broadcast-buffers", o.disable_broadcast_buffers, "the model has no buffers to broadcast");
}

// The config to start from. A resumed run uses its own.
NamedConfig base_config(const TrainFlags& o) {
  if (o.own_config) return *o.own_config;
  const std::string& name = o.config.config;
  if (!o.yaml_config.empty())
    return read_reference_names(load_yaml_config(o.yaml_config, name.empty() ? "base" : name), config_search_path());
  const fs::path kept = fs::path(o.run_dir) / "config.json";
  const bool own = o.resume && name.empty() && !o.run_dir.empty() && fs::exists(kept);
  NamedConfig named = load_config(own ? kept.string() : name.empty() ? "base" : name, config_search_path());
  if (own) add_older_values(named.entries, kept.string());
  return named;
}

// Of text, or a token file: other data have bytes of 0 at their beginning.
bool is_of_text(const fs::path& data) {
  if (fs::exists(data.string() + ".idx")) return true;
  if (!fs::is_regular_file(data)) return false;
  std::array<char, 4096> begin{};
  const std::size_t bytes = FileReader(data).read_up_to_end(0, std::as_writable_bytes(std::span(begin)));
  return std::string_view(begin.data(), bytes).find('\0') == std::string_view::npos;
}

// Sets what --data stands for. Whoever names a text, and no config, wants no weather model, the default.
void set_training_data(ConfigEntries& entries, const Recipe& recipe, const std::string& data, const std::string& task) {
  try {
    set_data(entries, recipe, data, DataUse::training);
  } catch (const Error& error) {
    if (task == "language_model" || !is_of_text(data)) throw;
    throw_error(error.what(), ", which the task ", task,
                " takes; a language model is trained on a text: --config shakespeare, or another of its configs");
  }
}

}  // namespace

void add_shard_option(CLI::App& command, std::string& value) {
  command
      .add_option("--shard-optimizer", value,
                  "each data-parallel rank holds and updates its part of Adam's moments (ZeRO-1); N: groups of N ranks "
                  "deal them out, and hold the same beyond")
      ->expected(0, 1)
      ->default_str(kAllShards)
      ->option_text("[N]");
}

std::int64_t shards_named(const std::string& value) {
  if (value.empty()) return 1;
  if (value == kAllShards) return ExchangeOptions::kAll;
  std::int64_t shards = 0;
  ISOBAR_CHECK(CLI::detail::lexical_cast(value, shards) && shards >= 1, "--shard-optimizer ", value,
               ": a number of ranks from 1 on is needed, or none for all of them");
  return shards;
}

void add_pipeline_options(CLI::App& command, std::int64_t& chunks, std::string& split) {
  command.add_option("--pipeline-chunks", chunks, "pieces of the network on each rank of a pipeline (interleaved)")
      ->capture_default_str();
  command
      .add_option("--pipeline-split", split,
                  "which piece has how many blocks: balanced (by their work), even, or a number each, \"4,4,3\"")
      ->capture_default_str();
}

void add_train_flags(CLI::App& command, TrainFlags& o) {
  add_config_options(command, o.config);
  command.add_option("--data", o.data,
                     "a folder with train/, valid/ and stats/, or with all files in it; of a language model a file of "
                     "text, or a token file");
  command
      .add_option("--ranks", o.ranks, "ranks, as threads of this process; a launcher (mpirun, srun) starts processes")
      ->capture_default_str();
  command.add_option("--backend", o.backend, "how ranks exchange data")
      ->check(CLI::IsMember({"auto", "thread", "mpi", "nccl"}))
      ->capture_default_str();
  add_shard_option(command, o.shard_optimizer);
  command
      .add_option("--pipeline-parallel", o.pipeline_parallel,
                  "ranks that hold consecutive blocks of the network; the parts of grad_accumulation pass through them")
      ->capture_default_str();
  add_pipeline_options(command, o.pipeline_chunks, o.pipeline_split);
  command.add_option("--comm-timeout", o.comm_timeout, "seconds that a rank waits for the others")
      ->check(number_between(1e-3, 1e6))
      ->capture_default_str();
  command.add_flag("--sequence-parallel", o.sequence_parallel,
                   "tensor-parallel ranks share out the rows between the branches of a block too");
  add_tutorial_flags(command, o);
}

void add_run_flags(CLI::App& command, TrainFlags& o) {
  command.add_option("--run-dir", o.run_dir, "where the run goes; default expdir/config/devices/run-num");
  CLI::Option* init = command.add_option(
      "--init", o.init, "weights to start from: a safetensors file, or a run's folder (its best ones)");
  CLI::Option* partial =
      command
          .add_flag(
              "--init-partial", o.init_partial,
              "with --init: from weights of other channels, another grid or other patches too: what fits is taken")
          ->needs(init);
  command
      .add_option("--init-moments", o.init_moments,
                  "with --init: Adam's moments to start from, a file of tools/megatron_checkpoint.py; rates begin anew")
      ->needs(init)
      ->excludes(partial);
  auto* resume =
      command.add_flag("--resume", o.resume, "go on from the newest whole checkpoint, if any, with the run's config");
  command.add_flag("--overwrite", o.overwrite, "replace the run that is there")->excludes(resume);
  command.add_flag("--list-keys", o.list_keys, "print the config keys, with defaults, and end");
  command.add_flag("--list-configs", o.list_configs, "print the named configs, and end");
  command.add_flag("--comm-report", o.comm_report,
                   "at the end: what ranks told each other and what each holds, predicted beside counted");
  command.add_flag(
      "--late-agreement", o.late_agreement,
      "ranks agree on a loss and on stopping an iteration later, where nothing is logged or saved: no wait");
  add_tutorial_run_flags(command, o);
}

namespace {

// Error if flags contradict each other or the number of ranks.
void check_layout(const TrainFlags& o) {
  ISOBAR_CHECK(o.ranks >= 1, "--ranks ", o.ranks, ": at least one rank is needed");
  ISOBAR_CHECK(o.tensor_parallel >= 1, "--tensor-parallel ", o.tensor_parallel, ": at least one rank is needed");
  ISOBAR_CHECK(o.context_parallel >= 1, "--context-parallel ", o.context_parallel, ": at least one rank is needed");
  ISOBAR_CHECK(o.pipeline_parallel >= 1, "--pipeline-parallel ", o.pipeline_parallel, ": at least one rank is needed");
  ISOBAR_CHECK(o.pipeline_chunks >= 1, "--pipeline-chunks ", o.pipeline_chunks, ": at least one chunk is needed");
  ISOBAR_CHECK(o.pipeline_parallel > 1 || (o.pipeline_chunks == 1 && o.pipeline_split == "balanced"),
               "--pipeline-chunks and --pipeline-split: go with --pipeline-parallel of 2 ranks at least");
  pipeline_options(o.pipeline_chunks, o.pipeline_split);  // Error for a split that is none
  const char* const ranks = o.are_processes() ? o.launch.size_variable.c_str() : "--ranks";
  ISOBAR_CHECK(o.ranks % o.tensor_parallel == 0, ranks, " ", o.ranks, " is no multiple of --tensor-parallel ",
               o.tensor_parallel);
  ISOBAR_CHECK(o.ranks / o.tensor_parallel % o.context_parallel == 0, ranks, " ", o.ranks,
               " is no multiple of --tensor-parallel ", o.tensor_parallel, " x --context-parallel ",
               o.context_parallel);
  const int of_model = o.tensor_parallel * o.context_parallel;
  ISOBAR_CHECK(o.ranks / of_model % o.pipeline_parallel == 0, ranks, " ", o.ranks,
               " is no multiple of --tensor-parallel ", o.tensor_parallel, " x --context-parallel ", o.context_parallel,
               " x --pipeline-parallel ", o.pipeline_parallel);
  const std::int64_t shards = shards_named(o.shard_optimizer),
                     sharing = o.ranks / o.tensor_parallel / o.pipeline_parallel;
  ISOBAR_CHECK(shards == ExchangeOptions::kAll || sharing % shards == 0, "--shard-optimizer ", shards, ": the ",
               sharing, " ranks that share the optimizer, ", ranks, " over --tensor-parallel, are no groups of ",
               shards);
  ISOBAR_CHECK(!(o.noddp && shards != 1),
               "--shard-optimizer deals out what ranks exchange, and with --noddp they exchange nothing");
  ISOBAR_CHECK(!o.noddp || o.pipeline_parallel == 1, "--noddp: ranks of a pipeline compute parts of one gradient, ",
               "and must exchange them");
  ISOBAR_CHECK(!o.noddp || o.context_parallel == 1, "--noddp: context-parallel ranks compute parts of one gradient, ",
               "and must exchange them");
  ISOBAR_CHECK(!o.noddp || !o.sequence_parallel || o.tensor_parallel == 1,
               "--noddp: ranks that are sequence parallel compute parts of one gradient, and must exchange them");
}

void find_processes(TrainFlags& o) {
  const Launch& launch = o.launch;
  const std::string& backend = o.backend;
  ISOBAR_CHECK(backend != "nccl" || launch.launcher != Launcher::none,
               "--backend nccl: no launcher has started this process; use srun, mpirun or torchrun");
  ISOBAR_CHECK(backend != "mpi" || launch.launcher != Launcher::none,
               "--backend mpi: no launcher has started this process; use mpirun or srun --mpi=pmix");
  if (!o.are_processes()) return;
  ISOBAR_CHECK(o.ranks == 1, "--ranks ", o.ranks, ": ", launch.size_variable, " is ", launch.ranks,
               ": ranks are threads of one process, or processes, not both");
  ISOBAR_CHECK(backend != "thread", "--backend thread: ", launch.size_variable, " is ", launch.ranks,
               ", and processes are no threads");
  o.by_nccl = backend == "nccl" || (backend == "auto" && o.config.uses_cuda());
  check_can_start(launch, o.by_nccl);
  o.ranks = launch.ranks;
}

}  // namespace

void find_ranks(TrainFlags& o) {
  o.launch = find_launch();
  // With lazy loading, the first launch of a kernel may wait for all running work of the GPU: also for NCCL's kernels,
  // which wait for other ranks. Set before CUDA starts.
  if (o.launch.ranks > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  try {
    find_processes(o);
    check_layout(o);
  } catch (const Error&) {
    if (o.launch.rank == 0) throw;
    throw ErrorReportedByAnotherRank();
  }
}

MeshSizes sizes_of(const TrainFlags& o) {
  return {.dp = o.ranks / (o.tensor_parallel * o.context_parallel * o.pipeline_parallel),
          .tp = o.tensor_parallel,
          .cp = o.context_parallel,
          .pp = o.pipeline_parallel};
}

Parallel start_parallel(const Communicator& world, const TrainFlags& o) {
  Parallel parallel = Parallel::start(world, sizes_of(o), o.parallel_order, exchange_of(o));
  parallel.sequence = o.sequence_parallel;
  parallel.form = *enum_named<ContextForm>(o.context_form);
  parallel.pipeline = pipeline_options(o.pipeline_chunks, o.pipeline_split);
  return parallel;
}

PlannedRank planned_rank(const TrainFlags& o, std::int64_t rank) {
  return {.sizes = sizes_of(o),
          .order = o.parallel_order,
          .exchange = exchange_of(o),
          .sequence = o.sequence_parallel,
          .form = *enum_named<ContextForm>(o.context_form),
          .rank = rank,
          .pipeline = pipeline_options(o.pipeline_chunks, o.pipeline_split)};
}

ExchangeOptions exchange_of(const TrainFlags& o) {
  return {.bucket_bytes = static_cast<std::size_t>(o.bucket_cap_mb * (1 << 20)),
          .off = o.noddp,
          .shards = shards_named(o.shard_optimizer)};
}

NamedConfig named_config(const TrainFlags& o) {
  NamedConfig named = base_config(o);
  const auto set = [&](const char* key, const char* flag, const auto& value) {
    set_entry(named.entries, key, {value, flag});
  };
  if (!o.data.empty()) {
    ConfigEntries chosen = named.entries;  // --set may choose another task than the config
    for (const std::string& assignment : o.config.assignments) set_from_assignment(chosen, assignment);
    set_training_data(named.entries, *RunConfig(task_of(chosen), model_of(chosen)).recipe, o.data, task_of(chosen));
  }
  if (!o.amp_mode.empty()) set("amp_mode", "--amp-mode", o.amp_mode);
  if (!o.root_dir.empty()) set("expdir", "--root-dir", o.root_dir);
  if (!o.data_loader_config.empty()) {
    const LoaderKey loader = loader_key(o.data_loader_config);
    set(loader.key, "--data-loader-config", loader.value);
  }
  if (o.local_batch_size) {
    const std::int64_t local = *o.local_batch_size;  // if it is below 1, the key's own check reports it
    set("global_batch_size", "--local-batch-size",
        local > 0 ? checked_product({local, sizes_of(o).dp}, "--local-batch-size") : local);
  }
  if (o.num_iters) set("num_iters", "--num-iters", *o.num_iters);
  if (o.num_epochs) set("num_epochs", "--num-epochs", *o.num_epochs);
  if (o.enable_amp) set("amp_mode", "--enable-amp", "fp16");
  if (o.num_data_workers) set("num_data_workers", "--num-data-workers", *o.num_data_workers);
  if (o.enable_fused) set("enable_fused", "--enable-fused", true);
  if (o.enable_jit) set("enable_jit", "--enable-jit", true);
  for (const std::string& assignment : o.config.assignments) set_from_assignment(named.entries, assignment);
  return named;
}

namespace {

// What a front end's voice asks of the ranks follows from its flags.
std::string voice_text(const TrainFlags& o) {
  std::string text;
  if (!o.megatron) return text;
  for (const auto& [name, value] : o.megatron->arguments) text += concat('\n', name, ' ', value);
  return text;
}

}  // namespace

ProcessRanks process_ranks_of(const TrainFlags& o) {
  const MeshSizes sizes = sizes_of(o);
  ProcessRanks ranks{.launch = o.launch, .by_nccl = o.by_nccl, .timeout_seconds = o.comm_timeout};
  RankDescription& me = ranks.me;
  me.version = concat(kVersion, " (build ", kBuildId, ")");
  me.compares_calls = compares_calls();
  me.layout = concat("dp ", sizes.dp, " x tp ", sizes.tp, " x cp ", sizes.cp, " x pp ", sizes.pp, " (",
                     to_text(pipeline_options(o.pipeline_chunks, o.pipeline_split)), ") in order ", o.parallel_order,
                     o.sequence_parallel ? ", sequence parallel" : "", ", context form ", o.context_form,
                     o.shard_optimizer.empty() ? "" : ", sharded optimizer: " + o.shard_optimizer,
                     o.by_nccl ? ", by NCCL" : ", by MPI");
  try {
    RunConfig config = read_config(named_config(o).entries);
    // Also everything outside the config that decides which calls a rank makes, or how long it waits for other ranks.
    // tests/apps/train_flags_test.cc has a table of all flags.
    const char* device = name_of(o.config.device_kind());
    const std::string text =
        concat(to_json(config).dump(), '\n', o.init, '\n', o.init_moments, '\n', o.run_dir, '\n', o.run_num, '\n',
               o.resume, o.overwrite, o.init_partial, o.noddp, o.comm_report, o.late_agreement, ' ', o.bucket_cap_mb,
               ' ', o.comm_timeout, ' ', device, voice_text(o));
    me.config = concat(std::hex, xxh64(std::as_bytes(std::span(text))));
    ranks.find_device = [options = o.config](const Launch& launch) { return options.use_device(launch); };
    ranks.device = o.launch.is_local_rank_known ? o.config.use_device(o.launch) : Device{o.config.device_kind(), 0};
    if (ranks.device.kind != DeviceKind::cuda) me.instructions = cpu::name_of(cpu::best_isa());
    if (ranks.device.kind == DeviceKind::cuda && o.launch.is_local_rank_known)
      me.device = gpu::uuid_of(ranks.device.index);
    if (ranks.device.kind == DeviceKind::emulator) me.device = concat("emulator of rank ", o.launch.rank);
  } catch (...) {
    me.failure = sentence_of_current_exception();
  }
  return ranks;
}

OpeningProcess opening_process_of(const TrainFlags& o) {
  if (!o.are_processes()) return {};
  return {.processes_on_host = o.launch.local_ranks, .trial = {"/proc/self/exe", "data", "trial"}};
}

void silence_stdout() {
  std::cout.flush();
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
}

}  // namespace isobar
