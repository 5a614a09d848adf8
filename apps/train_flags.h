// The command line of everything that trains: train, and check, which makes a few steps and no run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/config_options.h"
#include "apps/train/config_file.h"
#include "apps/train/dry_run.h"
#include "comm/launch.h"
#include "comm/parallel.h"
#include "comm/process_ranks.h"
#include "data/dataset.h"

namespace isobar {

struct TrainFlags {
  ConfigOptions config;
  std::string data, run_dir, init, run_num = "00";
  bool resume = false, overwrite = false, list_keys = false, list_configs = false;
  int ranks = 1;  // threads of this process, or processes that a launcher started
  Launch launch;
  std::string backend = "auto";
  double comm_timeout = 600;

  bool are_processes() const { return launch.ranks > 1; }
  bool by_nccl = false;  // processes exchange data by NCCL, else by MPI; find_ranks decides

  // The tutorial's flags; an empty one was not given.
  std::string amp_mode, data_loader_config, parallel_order = "tp-cp-dp", yaml_config;
  std::optional<std::int64_t> local_batch_size, num_iters, num_data_workers;
  bool enable_fused = false, enable_jit = false, noddp = false, disable_broadcast_buffers = false;
  std::string shard_optimizer;  // ranks, or "all"; empty: the optimizer is not sharded
  bool comm_report = false, late_agreement = false;
  double bucket_cap_mb = 25;
  int tensor_parallel = 1, context_parallel = 1;
  bool sequence_parallel = false;
  std::string context_form = name_of_enum(ContextForm::automatic);
};

// What decides how a step is made: the config, the data, where to compute, the ranks.
void add_train_flags(CLI::App& command, TrainFlags& flags);
// What only a run needs besides: its folder, what it starts from, what it prints.
void add_run_flags(CLI::App& command, TrainFlags& flags);

// Whether ranks are threads or processes, how many, and how they exchange data. Throws where flags contradict each
// other or the number of ranks. What is wrong here is so on every process: the first one throws Error, the others
// ToldElsewhere.
void find_ranks(TrainFlags& flags);

// --shard-optimizer [N], and the ranks that it names: ExchangeOptions::shards. Error for what is no number of ranks.
void add_shard_option(CLI::App& command, std::string& value);
std::int64_t shards_named(const std::string& value);

MeshSizes sizes_of(const TrainFlags& flags);
Parallel start_parallel(const Communicator& world, const TrainFlags& flags);
PlannedRank planned_rank(const TrainFlags& flags, std::int64_t rank = 0);  // of the layout that they describe
ExchangeOptions exchange_of(const TrainFlags& flags);                      // once find_ranks has looked at the flags

// The config with what flags and --set say. A run that is resumed brings its own. --set wins over the flags that set a
// key, and these over the config.
NamedConfig named_config(const TrainFlags& flags);

// The ranks as processes. What this one says of itself to the others: all must be about to train the same.
ProcessRanks process_ranks_of(const TrainFlags& flags);

// What opening data has to know of this process, once its launcher has told all that it tells.
OpeningProcess opening_process_of(const TrainFlags& flags);

// What other processes than the first would print is what the first one prints.
void silence_stdout();

}  // namespace isobar
