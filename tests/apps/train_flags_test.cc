// What processes of one run must agree on: every flag of `train` is in a table here, and a pair of processes that
// differ in it is told apart at their meeting, or may differ in it for a reason that the table names.
#include "apps/train_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

namespace {

struct Case {
  std::string flag;
  std::vector<std::string> one, other;  // command lines; empty: not given
  std::string may_differ = {};          // why
};

const std::vector<Case> kCases{
    {"--config", {"--config", "tiny"}, {"--config", "base"}},
    {"--set", {"--set", "lr=0.1"}, {"--set", "lr=0.2"}},
    {"--amp-mode", {"--amp-mode", "bf16"}, {}},
    {"--local-batch-size", {"--local-batch-size", "3"}, {"--local-batch-size", "4"}},
    {"--num-iters", {"--num-iters", "3"}, {"--num-iters", "4"}},
    {"--num-epochs", {"--num-epochs", "3"}, {"--num-epochs", "4"}},
    {"--enable-amp", {}, {}, "it does the same as --amp-mode fp16"},
    {"--enable-apex", {}, {}, "it changes nothing"},
    {"--enable-benchy", {}, {}, "it changes nothing"},
    {"--data-loader-config", {"--data-loader-config", "dali"}, {"--data-loader-config", "pytorch"}},
    {"--num-data-workers", {"--num-data-workers", "3"}, {"--num-data-workers", "4"}},
    {"--enable-fused", {"--enable-fused"}, {}},
    {"--enable-jit", {"--enable-jit"}, {}},
    {"--tensor-parallel", {"--tensor-parallel", "2"}, {}},
    {"--context-parallel", {"--context-parallel", "2"}, {}},
    {"--pipeline-parallel", {"--pipeline-parallel", "2"}, {}},
    {"--pipeline-chunks", {"--pipeline-parallel", "2", "--pipeline-chunks", "2"}, {"--pipeline-parallel", "2"}},
    {"--pipeline-split", {"--pipeline-parallel", "2", "--pipeline-split", "even"}, {"--pipeline-parallel", "2"}},
    {"--context-form", {"--context-form", "ring"}, {"--context-form", "gather"}},
    {"--parallel-order", {"--parallel-order", "dp-tp-cp"}, {}},
    {"--sequence-parallel", {"--sequence-parallel"}, {}},
    {"--shard-optimizer", {"--shard-optimizer"}, {}},
    {"--bucket-cap-mb", {"--bucket-cap-mb", "1"}, {"--bucket-cap-mb", "2"}},
    {"--comm-timeout", {"--comm-timeout", "10"}, {"--comm-timeout", "20"}},
    {"--noddp", {"--noddp"}, {}},
    {"--comm-report", {"--comm-report"}, {}},
    {"--late-agreement", {"--late-agreement"}, {}},
    {"--run-dir", {"--run-dir", "a"}, {"--run-dir", "b"}},
    {"--run-num", {"--run-num", "1"}, {"--run-num", "2"}},
    {"--root-dir", {"--root-dir", "a"}, {"--root-dir", "b"}},
    {"--init", {"--init", "a.safetensors"}, {}},
    {"--init-partial", {"--init", "a.safetensors", "--init-partial"}, {"--init", "a.safetensors"}},
    {"--init-moments", {"--init", "a", "--init-moments", "m"}, {"--init", "a"}},
    {"--resume", {"--resume"}, {}},
    {"--overwrite", {"--overwrite"}, {}},
    {"--device", {"--device", "emulator"}, {"--device", "cpu"}},
    {"--backend", {}, {}, "find_ranks decides by it, and the layout tells the result"},
    {"--data", {}, {}, "it sets the keys of paths, which --set shows"},
    {"--yaml-config", {}, {}, "it sets keys"},
    {"--ranks", {}, {}, "a launcher says how many processes there are"},
    {"--threads", {}, {}, "hosts may differ"},
    {"--disable-broadcast-buffers", {}, {}, "it changes nothing"},
    {"--list-keys", {}, {}, "it ends before the ranks meet"},
    {"--list-configs", {}, {}, "it ends before the ranks meet"},
    {"--help", {}, {}, "it ends before the ranks meet"},
};

void add_flags(CLI::App& app, TrainFlags& flags) {
  add_train_flags(app, flags);
  add_run_flags(app, flags);
}

// Rank 1 of four processes with this command line.
RankDescription attendee_of(std::vector<std::string> arguments) {
  CLI::App app("train", "isobar");
  TrainFlags flags;
  add_flags(app, flags);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  flags.launch = {.launcher = Launcher::open_mpi, .rank = 1, .ranks = 4, .local_rank = 1, .local_ranks = 4};
  flags.launch.is_local_rank_known = true;
  flags.ranks = 4;
  return process_ranks_of(flags).me;
}

}  // namespace

TEST_CASE("train flags: processes that differ in one are told apart at their meeting") {
  for (const Case& each : kCases) {
    if (!each.may_differ.empty()) continue;
    INFO(each.flag);
    const RankDescription one = attendee_of(each.one), other = attendee_of(each.other);
    CHECK(one.failure == "");
    CHECK(other.failure == "");
    CHECK((one.config != other.config || one.layout != other.layout));
    CHECK(attendee_of(each.one).config == one.config);
  }
}

TEST_CASE("train flags: no two of them do the same") {
  std::map<std::pair<std::string, std::string>, std::string> flag_of;
  for (const Case& each : kCases) {
    if (!each.may_differ.empty()) continue;
    const RankDescription one = attendee_of(each.one);
    const auto [known, is_new] = flag_of.try_emplace({one.config, one.layout}, each.flag);
    INFO(each.flag << " and " << known->second);
    CHECK(is_new);
  }
}

TEST_CASE("train flags: the table has them all") {
  std::set<std::string> known;
  for (const Case& each : kCases) known.insert(each.flag);
  CLI::App app("train", "isobar");
  TrainFlags flags;
  add_flags(app, flags);
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) {
      INFO(name);
      CHECK(known.contains("--" + name));
    }
}
