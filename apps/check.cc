// isobar check: compares three steps of a layout of ranks with the same steps on one rank. It takes those flags of
// train that decide how a step is computed.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/train/config.h"
#include "apps/train/layout_check.h"
#include "apps/train_flags.h"
#include "comm/process_ranks.h"
#include "comm/thread_ranks.h"
#include "engine/storage.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

struct CheckFlags {
  TrainFlags train;
  bool full = false;  // the full network and batch size
};

// Without --full: a small network, and one sample per pass on each data-parallel rank.
RunConfig config_of(const CheckFlags& o) {
  RunConfig config = read_config(named_config(o.train).entries);
  if (!o.full) {
    config.network->shrink(sizes_of(o.train).pp * o.train.pipeline_chunks);
    config.batch.global_batch_size = sizes_of(o.train).dp * std::max<std::int64_t>(1, config.batch.grad_accumulation);
  }
  config.check_before_data();
  config.batch.cut(0, sizes_of(o.train).dp);
  return config;
}

std::string title_of(const CheckFlags& o, const RunConfig& config, Device device) {
  const MeshSizes sizes = sizes_of(o.train);
  return concat("three steps of dp ", sizes.dp, " x tp ", sizes.tp, " x cp ", sizes.cp,
                sizes.pp > 1 ? concat(" x pp ", sizes.pp) : "", " beside one rank, ",
                name_of(config.compute.activation()), " on ", name_of(device.kind));
}

// `processes`: all processes, one rank each; a single one if ranks are threads. Returns whether the check has passed.
bool check_from(const CheckFlags& o, const Communicator& processes) {
  RunConfig config = config_of(o);
  print_left_out(config);
  const Device device = o.train.config.use_device(o.train.launch);
  const std::unique_ptr<OpenedRecipe> data =
      config.recipe->open(config.origins, {.process = opening_process_of(o.train),
                                           .global_batch_size = config.batch.global_batch_size,
                                           .iterations = config.schedule.iterations()});
  for (const std::string& sentence : data->sentences()) std::cout << sentence << std::endl;
  std::cout << title_of(o, config, device) << std::endl;
  LayoutCheck result;
  const auto as_rank = [&](const Communicator& world) {
    const Parallel parallel = start_parallel(world, o.train);
    use_in_this_thread(device);
    const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
    const LayoutCheck own = check_layout({config, *data, device}, parallel);
    if (parallel.is_first()) result = own;
  };
  if (o.train.are_processes())
    as_rank(processes);
  else
    run_ranks({.ranks = o.train.ranks,
               .threads_per_rank = o.train.config.threads_of(o.train.ranks),
               .timeout_seconds = o.train.comm_timeout},
              as_rank);
  if (o.train.launch.rank > 0) return true;
  std::cout << to_text(result) << '\n' << (result.passed() ? "passed" : "failed") << std::endl;
  return result.passed();
}

void check(CheckFlags o) {
  find_ranks(o.train);
  bool passed = true;
  if (!o.train.are_processes()) {
    passed = check_from(o, Communicator());
  } else {
    if (o.train.launch.rank > 0) silence_stdout();
    run_process(process_ranks_of(o.train), [&](const Communicator& processes, const Launch& launch) {
      o.train.launch = launch;
      passed = check_from(o, processes);
    });
  }
  if (!passed) throw CLI::RuntimeError(1);
}

}  // namespace

void register_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* command = app.add_subcommand("check", "Compare three steps of a layout of ranks with those of one rank");
  add_train_flags(*command, flags->train);
  command->add_flag("--full", flags->full,
                    "the network and the batch as they are; else a small network, and a sample a data rank");
  command->callback([flags] { check(*flags); });
}

}  // namespace isobar
