// What processes of one run must agree on: every flag of `train` is in a table here, and a pair of processes that
// differ in it is told apart at their meeting, or may differ in it for a reason that the table names.
#include "apps/train_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/thread_ranks.h"
#include "tests/harness/findings.h"
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

namespace {

// What finding the ranks of these flags says, without a launcher.
std::string refusal_of_flags(TrainFlags flags) {
  try {
    find_ranks(flags);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("train flags: layouts that are none are refused, with all numbers") {
  const auto refusal = [](const std::function<void(TrainFlags&)>& set) {
    TrainFlags flags;
    flags.ranks = 12;
    set(flags);
    return refusal_of_flags(flags);
  };
  CHECK(refusal([](TrainFlags& o) { o.tensor_parallel = 2, o.context_parallel = 3, o.pipeline_parallel = 2; }) == "");
  CHECK(refusal([](TrainFlags& o) { o.tensor_parallel = 5; }) == "--ranks 12 is no multiple of --tensor-parallel 5");
  CHECK(refusal([](TrainFlags& o) { o.tensor_parallel = 2, o.context_parallel = 4; }) ==
        "--ranks 12 is no multiple of --tensor-parallel 2 x --context-parallel 4");
  CHECK(refusal([](TrainFlags& o) { o.tensor_parallel = 2, o.context_parallel = 2, o.pipeline_parallel = 2; }) ==
        "--ranks 12 is no multiple of --tensor-parallel 2 x --context-parallel 2 x --pipeline-parallel 2");
  for (const char* fits : {"", "all", "1", "3"})
    CHECK(refusal([&](TrainFlags& o) { o.tensor_parallel = 2, o.pipeline_parallel = 2, o.shard_optimizer = fits; }) ==
          "");
  CHECK(
      refusal([](TrainFlags& o) { o.tensor_parallel = 2, o.pipeline_parallel = 2, o.shard_optimizer = "6"; }) ==
      "--shard-optimizer 6: the 3 ranks that share the optimizer, --ranks over --tensor-parallel, are no groups of 6");
  CHECK_THAT(refusal([](TrainFlags& o) { o.noddp = true, o.shard_optimizer = "all"; }),
             testing::ContainsSubstring("with --noddp they exchange nothing"));
  CHECK(refusal([](TrainFlags& o) { o.noddp = true, o.shard_optimizer = "1"; }) == "");
  CHECK(refusal([](TrainFlags& o) { o.noddp = true, o.pipeline_parallel = 2; }) ==
        "--noddp: ranks of a pipeline compute parts of one gradient, and must exchange them");
  CHECK(refusal([](TrainFlags& o) { o.noddp = true, o.context_parallel = 2; }) ==
        "--noddp: context-parallel ranks compute parts of one gradient, and must exchange them");
  CHECK(refusal([](TrainFlags& o) { o.noddp = true, o.tensor_parallel = 2, o.sequence_parallel = true; }) ==
        "--noddp: ranks that are sequence parallel compute parts of one gradient, and must exchange them");
  CHECK(refusal([](TrainFlags& o) { o.noddp = true, o.sequence_parallel = true; }) == "");
  CHECK(refusal([](TrainFlags& o) { o.noddp = true, o.tensor_parallel = 2; }) == "");
  const std::string alone = "--pipeline-chunks and --pipeline-split: go with --pipeline-parallel of 2 ranks at least";
  CHECK(refusal([](TrainFlags& o) { o.pipeline_chunks = 2; }) == alone);
  CHECK(refusal([](TrainFlags& o) { o.pipeline_split = "even"; }) == alone);
  CHECK(refusal([](TrainFlags& o) { o.pipeline_parallel = 2, o.pipeline_chunks = 0; }) ==
        "--pipeline-chunks 0: at least one chunk is needed");
  CHECK(refusal([](TrainFlags& o) { o.backend = "nccl"; }) ==
        "--backend nccl: no launcher has started this process; use srun, mpirun or torchrun");
  CHECK(refusal([](TrainFlags& o) { o.backend = "mpi"; }) ==
        "--backend mpi: no launcher has started this process; use mpirun or srun --mpi=pmix");
  CHECK(refusal([](TrainFlags& o) { o.backend = "thread"; }) == "");
}

TEST_CASE("train flags: what they say of a layout is what ranks are made by") {
  TrainFlags flags;
  flags.ranks = 24;
  flags.tensor_parallel = 2;
  flags.context_parallel = 3;
  flags.pipeline_parallel = 2;
  flags.pipeline_chunks = 4;
  flags.pipeline_split = "even";
  flags.sequence_parallel = true;
  flags.context_form = "ring";
  flags.parallel_order = "pp-tp-cp-dp";
  flags.shard_optimizer = "3";
  flags.bucket_cap_mb = 1.5;
  const PlannedRank planned = planned_rank(flags, 5);
  CHECK(std::array{planned.sizes.dp, planned.sizes.tp, planned.sizes.cp, planned.sizes.pp} ==
        std::array<std::int64_t, 4>{2, 2, 3, 2});
  CHECK(planned.rank == 5);
  CHECK(planned.order == "pp-tp-cp-dp");
  CHECK(planned.sequence);
  CHECK(planned.form == ContextForm::ring);
  CHECK(planned.pipeline.chunks == 4);
  CHECK(planned.exchange.shards == 3);
  CHECK(planned.exchange.bucket_bytes == 3 << 19);
  CHECK_FALSE(planned.exchange.off);
  flags.noddp = true;
  CHECK(exchange_of(flags).off);
  CHECK(shards_named("") == 1);
  CHECK(shards_named("all") == ExchangeOptions::kAll);
  for (const char* none : {"0", "-1", "1.5", "many"})
    CHECK_THROWS_WITH(shards_named(none), testing::ContainsSubstring(concat("--shard-optimizer ", none, ": a number")));
}

TEST_CASE("train flags: ranks that they start stand where they say, and divide the work as they say") {
  TrainFlags flags;
  flags.ranks = 8;
  flags.tensor_parallel = flags.context_parallel = flags.pipeline_parallel = 2;
  flags.pipeline_chunks = 3;
  flags.pipeline_split = "even";
  flags.sequence_parallel = true;
  flags.context_form = "ring";
  flags.parallel_order = "pp-cp-tp-dp";
  flags.bucket_cap_mb = 1.5;
  testing::Findings findings;
  run_ranks({.ranks = 8}, [&](const Communicator& world) {
    const Parallel parallel = start_parallel(world, flags);
    const int rank = world.rank();
    findings.expect(parallel.pp.rank() == rank % 2 && parallel.cp.rank() == rank / 2 % 2 &&
                        parallel.tp.rank() == rank / 4 && parallel.dp.size() == 1,
                    concat("the place of rank ", rank));
    findings.expect(parallel.sequence, "sequence");
    findings.expect(parallel.form == ContextForm::ring, "form");
    findings.expect(parallel.pipeline.chunks == 3 && parallel.pipeline.split == PipelineSplit::even, "pipeline");
    findings.expect(parallel.exchange.bucket_bytes == 3 << 19, "bucket");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("train flags: which keys they set, under whose name, and what wins") {
  TrainFlags flags;
  flags.config.config = "tiny";
  flags.ranks = 12;
  flags.tensor_parallel = 2;
  flags.amp_mode = "bf16";
  flags.root_dir = "elsewhere";
  flags.local_batch_size = 3;
  flags.num_epochs = 4;
  flags.num_data_workers = 5;
  flags.data_loader_config = "inmem";
  flags.enable_jit = true;
  ConfigEntries entries = named_config(flags).entries;
  const auto is = [&](const char* key, const nlohmann::json& value, const std::string& origin) {
    INFO(key);
    CHECK(entries.at(key).value == value);
    CHECK(entries.at(key).origin == origin);
  };
  is("amp_mode", "bf16", "--amp-mode");
  is("expdir", "elsewhere", "--root-dir");
  is("global_batch_size", 18, "--local-batch-size");  // of 6 data-parallel ranks
  is("num_epochs", 4, "--num-epochs");
  is("num_data_workers", 5, "--num-data-workers");
  is("volumes", "memory", "--data-loader-config");
  is("enable_jit", true, "--enable-jit");
  flags.enable_amp = flags.enable_fused = true;
  flags.data_loader_config = "dali";
  flags.num_iters = 7;
  flags.local_batch_size = 0;
  flags.config.assignments = {"num_data_workers=1", "lr=0.5"};
  entries = named_config(flags).entries;
  is("amp_mode", "fp16", "--enable-amp");
  is("data_loader_config", "dali", "--data-loader-config");
  is("enable_fused", true, "--enable-fused");
  is("global_batch_size", 0, "--local-batch-size");  // which the key's own check refuses
  is("num_data_workers", 1, "--set");
  is("lr", 0.5, "--set");
  CHECK_FALSE(entries.contains("volumes"));
}
