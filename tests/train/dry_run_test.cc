// A step of training on shapes: what it says is what a step needs; what fits, and which layouts do.
#include "apps/train/dry_run.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/train/fit.h"
#include "comm/thread_ranks.h"
#include "engine/storage.h"
#include "kernels/cuda/runtime.h"
#include "tests/harness/findings.h"
#include "tests/harness/layouts.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

const TrainingSetup kSetup{.dropout = 0, .dtype = DType::fp32, .samples = 6, .parts = 1};

StepPrediction predicted(const TrainingSetup& setup, const Layout& layout = {}, DeviceKind like = DeviceKind::cpu,
                         std::int64_t rank = 0) {
  return predict_step(ObservedSource(setup), trainer_options(setup, setup.samples * layout.dp), planned(layout, rank),
                      like);
}

}  // namespace

TEST_CASE("on shapes: the products of a step, by hand") {
  const StepPrediction step = predicted(kSetup);
  // 9 x 5 patches of 2 x 2 points of 3 channels and 4 of time; 2 blocks of width 64 with 256 hidden units; 2 channels.
  constexpr double kRows = 6 * 45, kWidth = 64, kPatch = 4 * (3 + 4), kHead = 4 * 2;
  const double block = 2 * kRows * kWidth * (4 * kWidth + 2 * 4 * kWidth);
  const double forward = 2 * kRows * kWidth * (kPatch + kHead) + 2 * block;
  const double without_input_gradient = 2 * kRows * kWidth * kPatch;
  CHECK(step.kernels.at("gemm").cost.flops == 3 * forward - without_input_gradient);
  CHECK(step.kernels.at("attention_fwd").calls == 2);
  CHECK(step.kernels.at("attention_fwd").cost.flops == 2 * 4 * 6 * 45.0 * 45.0 * kWidth);
  CHECK(step.cost.flops > step.kernels.at("gemm").cost.flops);
  CHECK(step.kernels.at("adam").calls == 1);
  CHECK(step.traffic.is_empty());
}

TEST_CASE("on shapes: stages keep what their backward passes need, and recomputed ones their inputs") {
  TrainingSetup again = kSetup;
  again.recompute = true;
  const std::vector<StageUse> kept = predicted(kSetup).stages, recomputed = predicted(again).stages;
  REQUIRE(kept.size() == 5);  // embedding, two blocks, norm, head
  REQUIRE(recomputed.size() == 5);
  constexpr std::size_t kRows = 6 * 45, kStream = kRows * 64 * 4;
  CHECK(kept[2].largest >= 4 * kStream);  // the hidden layer
  CHECK(kept[2].kept > 10 * kStream);
  CHECK(recomputed[2].kept <= 3 * kStream);
  CHECK(recomputed[2].largest == kept[2].largest);
  CHECK(predicted(again).peak_bytes < predicted(kSetup).peak_bytes);
}

TEST_CASE("on shapes: a classifier's step is the one that is made, uneven parts and ignored labels included") {
  const TinyClassifier classifier(std::string({0, 9, 1, 2, 1, 0, 2, 1}));
  Findings findings;
  for (const MeshSizes sizes : {MeshSizes{}, MeshSizes{.dp = 2}, MeshSizes{.tp = 2}, MeshSizes{.dp = 2, .tp = 2}})
    run_ranks({.ranks = static_cast<int>(sizes.dp * sizes.tp)}, [&](const Communicator& world) {
      const OwnMemoryLedger memory;
      TinyRank rank(classifier, world, sizes, 3);
      const CommLedger before = world.ledger();
      rank.trainer().step([&] { return rank.loaders().next(); });
      const std::size_t peak = peak_memory_bytes();
      const StepPrediction step =
          predict_step(classifier.data(), rank.options(), {.sizes = sizes, .rank = world.rank()}, DeviceKind::cpu);
      const std::string name = concat("dp ", sizes.dp, ", tp ", sizes.tp, ", rank ", world.rank());
      findings.expect(step.peak_bytes == peak, concat(name, ": ", step.peak_bytes, " bytes, and ", peak));
      findings.expect(step.traffic == world.ledger().since(before), name + ": the exchange");
      findings.expect(step.held == rank.task().parameters().held(), name + ": parameters");
    });
  CHECK(findings.wrong() == "");
}

TEST_CASE("on shapes: a step on a device with streams, to the byte") {
  std::vector<Device> devices;
  if (ISOBAR_HAS_EMULATOR) devices.push_back({DeviceKind::emulator});
  if (gpu::device_count() > 0) devices.push_back({DeviceKind::cuda});
  const TinyClassifier classifier(std::string({0, 9, 1, 2, 1, 0, 2, 1}), {"dtype=fp32", "amp_mode=bf16"});
  const RunConfig& config = classifier.config();
  TrainerOptions options = config.trainer_options();
  options.batch.grad_accumulation = 2;
  for (const Device device : devices) {
    INFO(name_of(device.kind));
    const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));  // as a run has
    const OwnMemoryLedger memory;
    const std::unique_ptr<Task> task = classifier.data().make_task(config.compute, device);
    Trainer trainer(*task, options);
    Loaders loaders(classifier.data().train(), classifier.data().valid(), config.reading, options.batch, 3, device);
    trainer.step([&] { return loaders.next(); }, [&](bool) { loaders.read_ahead(); });
    CHECK(predict_step(classifier.data(), options, {}, device.kind).peak_bytes == peak_memory_bytes());
  }
}

TEST_CASE("on shapes: nothing of the run's own is touched") {
  const std::size_t held = memory_bytes(), peak = peak_memory_bytes();
  TrainingSetup large = kSetup;
  large.samples = 1 << 20;
  CHECK(predicted(large).peak_bytes > std::size_t{1} << 38);  // 256 GiB
  CHECK(memory_bytes() == held);
  CHECK(peak_memory_bytes() == peak);
}

TEST_CASE("on shapes: a GPU holds its batch and the next one") {
  TrainingSetup setup = kSetup;
  const std::size_t batch = static_cast<std::size_t>(setup.samples) * ((3 + 2) * 18 * 10 * 4 + 4 * 8);
  const StepPrediction gpu = predicted(setup, {}, DeviceKind::cuda);
  const auto other = std::ranges::find(gpu.memory, "other", &MemoryUse::tag);
  REQUIRE(other != gpu.memory.end());
  CHECK(other->peak_bytes >= 2 * batch);
}

TEST_CASE("fit: a run that has no room is refused with the largest batch that has") {
  TrainingSetup setup = kSetup;
  setup.samples = 64;
  const ObservedSource source(setup);
  const Layout layout{.dp = 2};
  TrainerOptions options = trainer_options(setup, 128);
  const auto check = [&](std::size_t bytes) {
    check_room(source, options, planned(layout, 0), DeviceKind::cpu, {.bytes = bytes, .whose = "GPU 3", .ranks = 2});
  };
  const std::size_t peak = predicted(setup, layout).peak_bytes;
  CHECK_NOTHROW(check(2 * peak));
  CHECK_THROWS_WITH(check(2 * peak - 2), ContainsSubstring("global_batch_size 128: a step needs ") &&
                                             ContainsSubstring(" of memory on each of 2 ranks, and GPU 3 has ") &&
                                             ContainsSubstring("; the largest batch that fits is 126"));
  setup.samples = 40;
  const std::size_t smaller = predicted(setup, layout).peak_bytes;
  CHECK_THROWS_WITH(check(2 * smaller), ContainsSubstring("the largest batch that fits is 80"));
  options.batch.global_batch_size = 80;
  CHECK_NOTHROW(check(2 * smaller));
  CHECK_THROWS_WITH(check(1000), ContainsSubstring("; no batch fits"));
}

TEST_CASE("fit: the largest batch has whole samples for every part of every rank") {
  TrainingSetup setup = kSetup;
  setup.samples = 32;  // of each of two ranks in each of two parts
  setup.parts = 2;
  const ObservedSource source(setup);
  const Layout layout{.dp = 2};
  TrainerOptions options = trainer_options(setup, 64);
  REQUIRE(options.batch.global_batch_size == 128);
  const std::size_t peak = predict_step(source, options, planned(layout, 0), DeviceKind::cpu).peak_bytes;
  const auto check = [&](std::int64_t ranks) {
    const std::size_t share = static_cast<std::size_t>(ranks);
    check_room(source, options, planned(layout, 0), DeviceKind::cpu, {.bytes = share * (peak - 1), .ranks = ranks});
  };
  CHECK_THROWS_WITH(check(2), ContainsSubstring("global_batch_size 128: a step needs ") &&
                                  ContainsSubstring("; the largest batch that fits is 124"));
  CHECK_THROWS_WITH(check(1), ContainsSubstring(" of memory, and this machine has "));
  options.batch.global_batch_size = 124;
  CHECK_NOTHROW(check(2));
}

TEST_CASE("fit: of a pipeline every stage needs room, whichever rank asks") {
  RunConfig config = read_config(
      entries_of({"task=language_model", "tokenizer=bytes", "vocab_size=4096", "seq_length=32", "positions=32",
                  "embed_dim=32", "depth=2", "num_heads=2", "global_batch_size=32", "grad_accumulation=4"}));
  config.recipe->fill_without_data(config.origins);
  config.check();
  const std::unique_ptr<TaskSource> source = config.recipe->on_shapes();
  TrainerOptions options = config.trainer_options();
  const auto on_rank = [](std::int64_t rank) { return PlannedRank{.sizes = {.pp = 2}, .rank = rank}; };
  const auto peak_of = [&](std::int64_t rank) {
    return predict_step(*source, options, on_rank(rank), DeviceKind::cpu).peak_bytes;
  };
  const std::size_t most = std::max(peak_of(0), peak_of(1));
  REQUIRE(peak_of(0) != peak_of(1));
  for (const std::int64_t rank : {0, 1}) {
    INFO("rank " << rank);
    const auto check = [&](std::size_t bytes) {
      return check_room(*source, options, on_rank(rank), DeviceKind::cpu, {.bytes = bytes});
    };
    CHECK(check(most).peak_bytes == peak_of(rank));
    CHECK_THROWS_WITH(check(most - 1), ContainsSubstring("a step needs " + text_of_bytes(most) + " of memory, and") &&
                                           ContainsSubstring("; the largest batch that fits is 28"));
  }
  options.batch.global_batch_size = 28;
  CHECK(std::max(peak_of(0), peak_of(1)) < most);
}

TEST_CASE("fit: layouts by what they exchange, none above the limit") {
  const ObservedSource source(kSetup);
  const TrainerOptions options = trainer_options(kSetup, 24);
  const auto layouts = [&](std::size_t bytes) { return fitting_layouts(source, options, 4, bytes, DeviceKind::cpu); };
  const std::vector<FittingLayout> all = layouts(std::size_t{1} << 40);
  // dp, tp, cp: 4 1 1, 2 1 2, 1 1 4 with and without a sharded optimizer; 2 2 1, 1 2 2 with each sequence, too; 1 4 1.
  CHECK(all.size() == 3 * 2 + 2 * 4 + 2);
  CHECK(std::ranges::is_sorted(all, {}, &FittingLayout::exchanged_bytes));
  const auto smallest = std::ranges::min(all, {}, &FittingLayout::peak_bytes);
  const std::vector<FittingLayout> one = layouts(smallest.peak_bytes);
  REQUIRE(!one.empty());
  for (const FittingLayout& layout : one) CHECK(layout.peak_bytes == smallest.peak_bytes);
  CHECK(layouts(smallest.peak_bytes - 1).empty());
  CHECK_THAT(to_text(one), ContainsSubstring("dp ") && ContainsSubstring("exchanged"));
}

TEST_CASE("fit: a layout is a line with the flags that isobar train takes for it") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const std::vector<FittingLayout> layouts{
      {{.sizes = {.dp = 2, .tp = 16}, .exchange = {.shards = ExchangeOptions::kAll}, .sequence = true},
       1536 * kMiB,
       3 * static_cast<std::int64_t>(kMiB)},
      {{.sizes = {.cp = 32}}, 7 * kMiB, 0}};
  CHECK(to_text(layouts) ==
        "dp 2    tp 16   cp 1        1.5 GiB    3.0 MiB exchanged  --tensor-parallel 16  --sequence-parallel  "
        "--shard-optimizer\n"
        "dp 1    tp 1    cp 32       7.0 MiB    0.0 MiB exchanged  --context-parallel 32\n");
}

TEST_CASE("on shapes: what a step needs, in words") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  StepPrediction step{.parameters = 1000,
                      .held = 600,
                      .holds = {.weights = {.predicted = 1, .counted = 3 * kMiB},
                                .gradients = {.predicted = 1, .counted = 2 * kMiB},
                                .moments = {.predicted = 1, .counted = 4 * kMiB}},
                      .peak_bytes = 24 * kMiB,
                      .memory = {{"parameters", kMiB, 3 * kMiB}, {"nothing", 5, 0}, {"activations", 0, 8 * kMiB}},
                      .stages = {{kMiB, 2 * kMiB}, {3 * kMiB, 2 * kMiB}, {3 * kMiB, 2 * kMiB}, {3 * kMiB, kMiB}},
                      .cost = {.bytes = 2.25e9, .flops = 1.5e12}};
  const std::string without_traffic =
      "600 of 1000 parameters: 3.0 MiB of weights, 2.0 MiB of gradients, 4.0 MiB of moments\n"
      "memory: 24.0 MiB at the peak, 3.0 MiB of parameters, 8.0 MiB of activations\n"
      "  stage 0: 1.0 MiB kept, the largest tensor 2.0 MiB\n"
      "  stages 1-2: 3.0 MiB kept each, the largest tensor 2.0 MiB\n"
      "  stage 3: 3.0 MiB kept, the largest tensor 1.0 MiB\n"
      "kernels: 1.500 Tflop, 2.250 GB moved\n";
  CHECK(to_text(step) == without_traffic + "nothing is exchanged\n");
  step.traffic.add("dp", Verb::all_reduce, 2, 64);
  const std::string text = to_text(step);
  CHECK(text.starts_with(without_traffic + "exchanged, bytes of payload:\n"));
  CHECK_THAT(text, ContainsSubstring("\ndp        all_reduce "));
}

}  // namespace isobar::testing
