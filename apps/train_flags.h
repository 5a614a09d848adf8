// The command line of the commands that train: train, and check, which computes a few steps without a run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/config_options.h"
#include "apps/train/config_file.h"
#include "apps/train/dry_run.h"
#include "apps/train/megatron_journal.h"
#include "apps/train/trace_file.h"
#include "comm/launch.h"
#include "comm/parallel.h"
#include "comm/process_ranks.h"
#include "data/dataset.h"

namespace isobar {

struct TrainFlags {
  ConfigOptions config;
  // Of a front end with flags of its own: its config, in the place of --config, and the voice that tells of the run.
  std::optional<NamedConfig> own_config;
  std::optional<MegatronVoice> megatron;
  std::optional<TraceOptions> trace;

  std::string data, run_dir, init, init_moments, run_num = "00";
  bool init_partial = false;
  bool resume = false, overwrite = false, list_keys = false, list_configs = false;
  int ranks = 1;  // number of ranks: threads of this process, or processes started by a launcher
  Launch launch;
  std::string backend = "auto";
  double comm_timeout = 600;

  bool are_processes() const { return launch.ranks > 1; }
  bool by_nccl = false;  // processes exchange data by NCCL, else by MPI; set by find_ranks

  // The tutorial's flags; empty: not given.
  std::string amp_mode, data_loader_config, parallel_order = "tp-cp-dp", yaml_config, root_dir;
  std::optional<std::int64_t> local_batch_size, num_iters, num_epochs, num_data_workers;
  bool enable_fused = false, enable_jit = false, noddp = false, disable_broadcast_buffers = false;
  bool enable_amp = false, enable_apex = false, enable_benchy = false;
  std::string shard_optimizer;  // number of ranks, or "all"; empty: the optimizer is not sharded
  bool comm_report = false, late_agreement = false;
  double bucket_cap_mb = 25;
  int tensor_parallel = 1, context_parallel = 1, pipeline_parallel = 1;
  std::int64_t pipeline_chunks = 1;
  std::string pipeline_split = "balanced";
  bool sequence_parallel = false;
  std::string context_form = name_of_enum(ContextForm::automatic);
};

// Flags that decide how a step is computed: config, data, device, ranks.
void add_train_flags(CLI::App& command, TrainFlags& flags);
// Flags that only a run needs: its folder, its initial weights, its output.
void add_run_flags(CLI::App& command, TrainFlags& flags);

// Sets whether ranks are threads or processes, how many, and how they exchange data. Throws if flags contradict each
// other or the number of ranks. Such an error occurs on every process alike: the first one throws Error, the others
// ErrorReportedByAnotherRank.
void find_ranks(TrainFlags& flags);

// --shard-optimizer [N], and the number of ranks in its value: ExchangeOptions::shards. Error if it is not a number of
// ranks.
void add_shard_option(CLI::App& command, std::string& value);
std::int64_t shards_named(const std::string& value);

// --pipeline-chunks and --pipeline-split.
void add_pipeline_options(CLI::App& command, std::int64_t& chunks, std::string& split);

MeshSizes sizes_of(const TrainFlags& flags);
Parallel start_parallel(const Communicator& world, const TrainFlags& flags);
PlannedRank planned_rank(const TrainFlags& flags, std::int64_t rank = 0);  // of the layout that they describe
ExchangeOptions exchange_of(const TrainFlags& flags);                      // call it after find_ranks

// The config with the values of flags and --set. A resumed run uses its own. --set wins over the flags that set a key,
// and these win over the config.
NamedConfig named_config(const TrainFlags& flags);

// The ranks as processes. Includes this process's description for comparison with the others: all must be about to
// train the same.
ProcessRanks process_ranks_of(const TrainFlags& flags);

// The facts about this process that opening the data needs. Call it after find_ranks.
OpeningProcess opening_process_of(const TrainFlags& flags);

// Processes other than the first discard their stdout: the first prints the same.
void silence_stdout();

}  // namespace isobar
