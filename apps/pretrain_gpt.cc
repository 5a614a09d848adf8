// isobar pretrain-gpt: the command line of Megatron-LM's pretrain_gpt.py, as a run of isobar train.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/megatron_flags.h"
#include "apps/megatron_run.h"
#include "apps/train_command.h"
#include "apps/train_flags.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

bool asks_for(const std::vector<std::string>& words, const std::string& flag) {
  return std::ranges::find(words, flag) != words.end();
}

// An error that every process of a launcher makes is told by the first one.
template <class F>
auto told_once(const TrainFlags& flags, const F& f) {
  try {
    return f();
  } catch (const Error&) {
    if (flags.launch.rank == 0) throw;
    throw ErrorReportedByAnotherRank();
  }
}

void pretrain(const std::vector<std::string>& words) {
  if (asks_for(words, "--list-flags") || asks_for(words, "--help") || words.empty()) {
    std::cout << describe_megatron_flags();
    return;
  }
  const MegatronArguments arguments(words);
  TrainFlags flags = megatron_launch(arguments);
  find_ranks(flags);
  told_once(flags, [&] { add_megatron_config(flags, arguments); });
  train_on_ranks(std::move(flags));
}

}  // namespace

void register_pretrain_gpt(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pretrain-gpt", "Train a GPT by the flags of Megatron-LM's pretrain_gpt.py");
  command->prefix_command();
  command->footer("isobar pretrain-gpt --list-flags prints all of them.");
  command->callback([command] { pretrain(command->remaining()); });
}

}  // namespace isobar
