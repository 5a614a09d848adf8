// A GPT that ranks of a pipeline share, under ranks that are threads. Not tied: the bits of one rank that has as many
// parts, in every precision. Tied, and with the other axes: the numbers of one rank.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"
#include "apps/train/loaders.h"
#include "apps/train/pipeline.h"
#include "apps/train/trainer.h"
#include "comm/thread_ranks.h"
#include "comm/whole_tensors.h"
#include "kernels/attention/attention.h"
#include "kernels/cross_entropy.h"
#include "models/gpt/recipe.h"
#include "models/language/language_model.h"
#include "tests/harness/error_of.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar {
namespace {

using testing::NamedTensors;

constexpr std::int64_t kVocabulary = 11, kLength = 6;

// Samples with 0 to 6 targets that count, or with all; of one document or of two.
class PipedTokens : public Dataset {
 public:
  PipedTokens(std::int64_t samples, bool are_uneven, bool have_documents = false)
      : samples_(samples), are_uneven_(are_uneven), have_documents_(have_documents) {}
  std::string name() const override { return "tokens for a pipeline"; }
  std::int64_t samples() const override { return samples_; }
  std::vector<TensorSpec> layout() const override {
    std::vector<TensorSpec> layout{{.name = "tokens", .shape = {kLength + 1}, .dtype = DType::i32},
                                   {.name = "target", .shape = {kLength}, .dtype = DType::i32}};
    if (have_documents_)
      for (const char* name : {"key_begin", "position"})
        layout.push_back({.name = name, .shape = {kLength}, .dtype = DType::i32});
    return layout;
  }
  void read(const SampleKey& key, std::span<void* const> to) const override {
    auto* tokens = static_cast<std::int32_t*>(to[0]);
    auto* target = static_cast<std::int32_t*>(to[1]);
    for (std::int64_t i = 0; i <= kLength; ++i)
      tokens[i] = static_cast<std::int32_t>((i * i * 31 + i * 7 + key.sample * 13) % kVocabulary);
    for (std::int64_t i = 0; i < kLength; ++i)
      target[i] = !are_uneven_ || i < (key.sample * 5) % 7 ? tokens[i + 1] : kIgnoredLabel;
    const auto second = static_cast<std::int32_t>(1 + key.sample % (kLength - 1));  // where the second document begins
    for (std::int32_t i = 0; i < kLength && have_documents_; ++i) {
      static_cast<std::int32_t*>(to[2])[i] = i < second ? 0 : second;
      static_cast<std::int32_t*>(to[3])[i] = i < second ? i : i - second;
    }
  }

 private:
  std::int64_t samples_;
  bool are_uneven_, have_documents_;
};

// A training, and how ranks share it.
struct Piped {
  MeshSizes sizes = {};
  std::int64_t parts = 1;
  PipelineOptions pipeline = {};
  std::string order = "tp-cp-dp";
  ExchangeOptions exchange = {.bucket_bytes = 2000};
  bool sequence = false;
  ContextForm form = ContextForm::automatic;

  std::int64_t depth = 4;
  bool is_tied = false, is_uneven = true, recompute = false, has_documents = false;
  std::optional<std::int64_t> loss_rows = {};
  double dropout = 0.1;
  std::string dtype = "fp64", amp_mode = "none";
  std::vector<std::string> keys = {};
  std::int64_t samples = 54;  // of the training set
  int steps = 3;
};

std::string text_of(const Piped& piped) {
  return concat("dp ", piped.sizes.dp, ", tp ", piped.sizes.tp, ", pp ", piped.sizes.pp, ", ", to_text(piped.pipeline),
                ", ", piped.parts, " parts", piped.is_tied ? ", tied" : "",
                piped.exchange.shards_optimizer() ? ", sharded" : "", piped.sequence ? ", sequence parallel" : "", ", ",
                piped.dtype, " ", piped.amp_mode, ", order ", piped.order);
}

// The task on any device.
class PipedSource : public TaskSource {
 public:
  explicit PipedSource(const Piped& piped) : piped_(piped) {}
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    const GptOptions network{.embed_dim = 16,
                             .depth = piped_.depth,
                             .num_heads = 2,
                             .positions = 8,
                             .tie_head = piped_.is_tied,
                             .embedding_dropout = piped_.dropout,
                             .attention_dropout = piped_.dropout,
                             .hidden_dropout = piped_.dropout,
                             .vocab_multiple = 4};
    const TextInfo info{.vocabulary = kVocabulary,
                        .seq_length = kLength,
                        .ignores_targets = piped_.is_uneven,
                        .resets_positions = piped_.has_documents,
                        .resets_attention = piped_.has_documents,
                        .loss_rows = piped_.loss_rows};
    return std::make_unique<LanguageModel>(std::make_shared<GptRecipe>(network), compute, info, device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>&) const override {
    return PipedTokens(1, piped_.is_uneven).layout();
  }

 private:
  const Piped piped_;
};

RunConfig config_of(const Piped& piped) {
  std::vector<std::string> keys{"task=language_model",
                                "model=gpt",
                                "dtype=" + piped.dtype,
                                "amp_mode=" + piped.amp_mode,
                                "global_batch_size=18",
                                "shuffle=false",
                                "optimizer=adamw",
                                "eps=1e-3",
                                "lr=0.01",
                                "weight_decay=0.1",
                                "tf32=false",
                                "seed=4",
                                concat("recompute=", piped.recompute ? "true" : "false")};
  keys.insert(keys.end(), piped.keys.begin(), piped.keys.end());
  return read_config(testing::entries_of(keys));
}

PlannedRank planned_of(const Piped& piped, std::int64_t rank) {
  return {.sizes = piped.sizes,
          .order = piped.order,
          .exchange = piped.exchange,
          .sequence = piped.sequence,
          .rank = rank,
          .pipeline = piped.pipeline};
}

// One rank of it.
class PipedRank {
 public:
  PipedRank(const Piped& piped, const Communicator& world)
      : piped_(piped),
        config_(config_of(piped)),
        parallel_(start(piped, world)),
        task_(PipedSource(piped).make_task(config_.compute, Device{}, parallel_)),
        options_(config_.trainer_options()),
        data_(piped.samples, piped.is_uneven, piped.has_documents),
        valid_(31, piped.is_uneven, piped.has_documents) {
    options_.batch.grad_accumulation = piped.parts;
    trainer_ = std::make_unique<Trainer>(*task_, options_, parallel_);
    loaders_ = std::make_unique<Loaders>(data_, valid_, config_.reading, options_.batch, 3, Device{},
                                         ReadingRank{parallel_.dp.rank(), parallel_.dp.size()});
  }

  // Its loss is that of the global batch.
  StepResult step() {
    StepResult result = trainer_->step([this] { return loaders_->next(); });
    parallel_.world.all_reduce({&result.loss, 1});
    result.loss /= parallel_.ranks_with_loss();
    return result;
  }
  NamedTensors weights() const {
    NamedTensors all;
    visit_whole(task_->parameters(), {"", task_->parameters().weights(), {}}, parallel_.world,
                [&](const NamedParameter& p, const Tensor& whole) { all[p.name] = whole.to_vector(); });
    return all;
  }
  double validation_loss() {
    const std::unique_ptr<Metrics> metrics = task_->metrics();
    if (!trainer_->validate(loaders_->valid(), *metrics, [] { return false; })) return 0;
    return metrics->loss();
  }

  const Parallel& parallel() const { return parallel_; }
  Trainer& trainer() { return *trainer_; }
  Task& task() { return *task_; }
  Loaders& loaders() { return *loaders_; }
  const TrainerOptions& options() const { return options_; }

 private:
  static Parallel start(const Piped& piped, const Communicator& world) {
    Parallel parallel = Parallel::start(world, piped.sizes, piped.order, piped.exchange);
    parallel.sequence = piped.sequence;
    parallel.pipeline = piped.pipeline;
    parallel.form = piped.form;
    return parallel;
  }

  const Piped piped_;
  RunConfig config_;
  Parallel parallel_;  // the task refers to it
  std::unique_ptr<Task> task_;
  TrainerOptions options_;
  PipedTokens data_, valid_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Loaders> loaders_;
};

struct PipedSteps {
  std::vector<double> losses, norms, scales;
  NamedTensors weights;  // on the first rank
  double validation_loss = 0;
};

PipedSteps train_piped(const Piped& piped, const Communicator& world = {}) {
  PipedRank rank(piped, world);
  PipedSteps made;
  for (int step = 0; step < piped.steps; ++step) {
    const StepResult result = rank.step();
    made.losses.push_back(result.loss);
    made.norms.push_back(result.grad_norm);
    made.scales.push_back(result.loss_scale);
  }
  rank.trainer().check_replicas();
  made.weights = rank.weights();
  made.validation_loss = rank.validation_loss();
  return made;
}

// What the first rank has made.
PipedSteps train_on_threads(const Piped& piped) {
  PipedSteps made;
  run_ranks({.ranks = static_cast<int>(piped.sizes.ranks()), .timeout_seconds = 60}, [&](const Communicator& world) {
    PipedSteps own = train_piped(piped, world);
    if (world.rank() == 0) made = std::move(own);
  });
  return made;
}

// One rank with the same parts, and as many threads.
Piped on_one_rank(Piped piped) {
  piped.sizes = {};
  piped.pipeline = {};
  piped.sequence = false;
  piped.exchange = {};
  return piped;
}

void check_same_bits(const PipedSteps& serial, const PipedSteps& piped) {
  CHECK(piped.losses == serial.losses);
  REQUIRE(piped.weights.size() == serial.weights.size());
  for (const auto& [name, values] : serial.weights) {
    INFO(name);
    CHECK((piped.weights.at(name) == values));
  }
  REQUIRE(piped.norms.size() == serial.norms.size());
  for (std::size_t i = 0; i < serial.norms.size(); ++i)  // their squares add up in another order
    CHECK((piped.norms[i] == serial.norms[i] || std::abs(piped.norms[i] / serial.norms[i] - 1) < 1e-12 ||
           (!std::isfinite(piped.norms[i]) && !std::isfinite(serial.norms[i]))));
  CHECK(piped.scales == serial.scales);
  CHECK(std::abs(piped.validation_loss / serial.validation_loss - 1) < 1e-12);
}

void check_near_serial(const PipedSteps& serial, const PipedSteps& piped) {
  CHECK(testing::relative_difference(serial.losses, piped.losses) < 1e-12);
  CHECK(testing::relative_difference(serial.norms, piped.norms) < 1e-12);
  REQUIRE(piped.weights.size() == serial.weights.size());
  for (const auto& [name, values] : serial.weights) {
    INFO(name);
    CHECK(testing::relative_difference(values, piped.weights.at(name)) < 1e-12);
  }
  CHECK(std::abs(piped.validation_loss / serial.validation_loss - 1) < 1e-12);
}

std::vector<Piped> pipelines() {
  std::vector<Piped> all;
  for (const std::int64_t ranks : {2, 3, 4})
    for (const std::int64_t chunks : {1, 2})
      for (std::int64_t parts = 1; parts <= 8; ++parts)
        if (chunks == 1 || parts % ranks == 0)
          all.push_back({.sizes = {.pp = ranks}, .parts = parts, .pipeline = {.chunks = chunks}, .depth = 8});
  return all;
}

}  // namespace

TEST_CASE("pipeline: one chunk on one rank is the step of today, to the bit") {
  for (const bool is_tied : {false, true}) {
    Piped piped{.parts = 3, .is_tied = is_tied};
    PipedRank plain(piped, {}), moved(piped, {});
    const Parallel& alone = Parallel::alone();
    Pipeline pipeline(*moved.task().staged(), alone, Device{});
    const PipedTokens data(18, true);
    const auto batch_of = [&](std::int64_t part) {
      return read_batch(data, std::vector<std::int64_t>{3 * part, 3 * part + 1, 3 * part + 2});
    };
    const auto passes_of = [&](PipedRank& rank, const auto& run) {
      Passes passes(rank.task(), rank.options().batch, config_of(piped).compute, alone, nullptr, false);
      passes.begin(0, 1);
      for (std::int64_t part = 0; part < 3; ++part) passes.set_share(part, 2 + static_cast<double>(part));
      run(passes);
      passes.begin_reading_losses();
      return passes.sum_of_losses();
    };
    const double expected = passes_of(plain, [&](Passes& p) { run_in_turn(p, batch_of, true, [](bool) {}); });
    const double loss = passes_of(moved, [&](Passes& p) { pipeline.train(p, batch_of, true, [](bool) {}); });
    CHECK(loss == expected);
    CHECK((moved.task().parameters().grads().to_vector() == plain.task().parameters().grads().to_vector()));
  }
}

TEST_CASE("pipeline: the bits of one rank with as many parts, in fp64, fp32 and bf16") {
  for (const auto& [dtype, amp_mode] :
       {std::pair("fp64", "none"), std::pair("fp32", "none"), std::pair("fp32", "bf16")})
    for (Piped piped : pipelines()) {
      piped.dtype = dtype;
      piped.amp_mode = amp_mode;
      INFO(text_of(piped));
      check_same_bits(train_on_threads(on_one_rank(piped)), train_on_threads(piped));
    }
}

TEST_CASE("pipeline: a tied table on both ends is one weight") {
  for (Piped piped : pipelines()) {
    piped.is_tied = true;
    piped.keys = {"grad_clip=0.05"};
    INFO(text_of(piped));
    const PipedSteps serial = train_on_threads(on_one_rank(piped));
    for (const double norm : serial.norms) CHECK(norm > 0.05);
    check_near_serial(serial, train_on_threads(piped));
  }
}

TEST_CASE("pipeline: with data and tensor parallel ranks and a sharded optimizer, the numbers of one rank") {
  for (const MeshSizes sizes : {MeshSizes{.dp = 2, .pp = 2}, MeshSizes{.dp = 2, .pp = 3}, MeshSizes{.dp = 3, .pp = 2},
                                MeshSizes{.dp = 4, .pp = 2}, MeshSizes{.tp = 2, .pp = 2}, MeshSizes{.tp = 2, .pp = 3},
                                MeshSizes{.tp = 2, .pp = 4}, MeshSizes{.dp = 2, .tp = 2, .pp = 2}, MeshSizes{.pp = 4}})
    for (const std::int64_t chunks : {1, 2})
      for (const bool is_tied : {false, true})
        for (const bool is_sharded : {false, true})
          for (const bool sequence : {false, true}) {
            if ((sequence && sizes.tp == 1) || (is_sharded && sizes.dp == 1 && !is_tied)) continue;
            const Piped piped{.sizes = sizes,
                              .parts = chunks == 1 ? 3 : sizes.pp,
                              .pipeline = {.chunks = chunks},
                              .order = is_sharded ? "tp-cp-dp" : "pp-dp-cp-tp",
                              .exchange = {.bucket_bytes = 2000, .shards = is_sharded ? ExchangeOptions::kAll : 1},
                              .sequence = sequence,
                              .depth = 8,
                              .is_tied = is_tied,
                              .recompute = sizes.tp == 1,
                              .keys = {"grad_clip=0.05"}};
            INFO(text_of(piped));
            check_near_serial(train_on_threads(on_one_rank(piped)), train_on_threads(piped));
          }
}

TEST_CASE("pipeline: documents apart and logits of some rows at a time have the bits of one rank") {
  const PipedSteps whole = train_on_threads({.parts = 4});
  for (const std::int64_t ranks : {2, 3})
    for (const bool has_documents : {false, true})
      for (const std::optional<std::int64_t> rows : {std::optional<std::int64_t>(0), std::optional<std::int64_t>(5)})
        for (const char* split : {"balanced", "2,2", "4,0"}) {
          if (ranks == 3 && std::string(split) != "balanced") continue;
          const Piped piped{.sizes = {.pp = ranks},
                            .parts = 4,
                            .pipeline = pipeline_options(1, split),
                            .has_documents = has_documents,
                            .loss_rows = rows};
          INFO(text_of(piped) << (has_documents ? ", documents" : "") << ", rows " << *rows);
          const PipedSteps serial = train_on_threads(on_one_rank(piped));
          // Documents apart are another loss; rows at a time are the same one, and sums may round otherwise.
          if (has_documents)
            CHECK(serial.losses != whole.losses);
          else
            CHECK(testing::relative_difference(whole.losses, serial.losses) < 1e-12);
          check_same_bits(serial, train_on_threads(piped));
        }
}

TEST_CASE("pipeline: with context parallel ranks, the numbers of one rank") {
  for (const MeshSizes sizes : {MeshSizes{.cp = 2, .pp = 2}, MeshSizes{.dp = 2, .cp = 2, .pp = 2},
                                MeshSizes{.tp = 2, .cp = 2, .pp = 2}, MeshSizes{.cp = 3, .pp = 2}})
    for (const ContextForm form : {ContextForm::all_to_all, ContextForm::gather, ContextForm::ring})
      for (const bool has_documents : {false, true}) {
        const std::int64_t heads = 2 / sizes.tp;
        if (form == ContextForm::all_to_all && heads < sizes.cp) continue;  // a rank would get no head
        const Piped piped{.sizes = sizes,
                          .parts = 3,
                          .form = form,
                          .is_tied = true,
                          .has_documents = has_documents,
                          .keys = {"grad_clip=0.05"}};
        INFO(text_of(piped) << ", form " << static_cast<int>(form) << (has_documents ? ", documents" : ""));
        check_near_serial(train_on_threads(on_one_rank(piped)), train_on_threads(piped));
      }
}

TEST_CASE("pipeline: an incomplete batch, whose last parts some data ranks have nothing of") {
  for (const bool is_uneven : {false, true}) {
    const Piped piped{.sizes = {.dp = 3, .pp = 2},
                      .parts = 6,
                      .is_tied = true,
                      .is_uneven = is_uneven,
                      .keys = {"incomplete_batch=keep"},
                      .samples = 25,  // 18, and 7: parts of 2, 1, 1, 1, 1, 1 samples
                      .steps = 4};
    INFO(text_of(piped));
    check_near_serial(train_on_threads(on_one_rank(piped)), train_on_threads(piped));
  }
}

TEST_CASE("pipeline: every split gives the same bits") {
  const Piped serial{.parts = 4, .depth = 5};
  const PipedSteps expected = train_on_threads(serial);
  for (const char* split : {"balanced", "even", "1,3,1", "0,5,0", "2,3,0"}) {
    Piped piped = serial;
    piped.sizes.pp = 3;
    piped.pipeline = pipeline_options(1, split);
    INFO(text_of(piped));
    check_same_bits(expected, train_on_threads(piped));
  }
}

TEST_CASE("pipeline: an update that fp16 skips is skipped by all stages") {
  Piped piped{.parts = 4, .dtype = "fp32", .amp_mode = "fp16", .keys = {"initial_loss_scale=1e30"}, .steps = 6};
  const PipedSteps serial = train_on_threads(piped);
  CHECK(serial.scales.front() > 2 * serial.scales.back());
  piped.sizes.pp = 4;
  check_same_bits(serial, train_on_threads(piped));
}

TEST_CASE("pipeline: a moving average of the weights is that of one rank") {
  Piped piped{.parts = 2, .is_tied = true, .keys = {"ema=0.9"}};
  piped.sizes = {.dp = 2, .pp = 2};
  for (const std::int64_t shards : {std::int64_t{1}, ExchangeOptions::kAll}) {
    piped.exchange.shards = shards;
    NamedTensors expected, averaged;
    const auto average_of = [](PipedRank& rank) {
      for (int i = 0; i < 3; ++i) rank.step();
      const Trainer::AveragedWeights in_use(rank.trainer());
      return rank.weights();
    };
    PipedRank serial(on_one_rank(piped), {});
    expected = average_of(serial);
    run_ranks({.ranks = 4}, [&](const Communicator& world) {
      PipedRank rank(piped, world);
      NamedTensors own = average_of(rank);
      if (world.rank() == 0) averaged = std::move(own);
    });
    for (const auto& [name, values] : expected) {
      INFO(name);
      CHECK(testing::relative_difference(values, averaged.at(name)) < 1e-12);
    }
  }
}

TEST_CASE("pipeline: messages, bytes and memory are those that a step on shapes predicts, on every rank") {
  testing::Findings findings;
  for (const MeshSizes sizes : {MeshSizes{.pp = 2}, MeshSizes{.pp = 3}, MeshSizes{.dp = 2, .pp = 2},
                                MeshSizes{.tp = 2, .pp = 2}, MeshSizes{.dp = 2, .tp = 2, .pp = 2}})
    for (const std::int64_t chunks : {1, 2})
      for (const bool is_sharded : {false, true}) {
        const Piped piped{.sizes = sizes,
                          .parts = 2 * sizes.pp,
                          .pipeline = {.chunks = chunks},
                          .exchange = {.bucket_bytes = 2000, .shards = is_sharded ? ExchangeOptions::kAll : 1},
                          .depth = 6,
                          .is_tied = true,
                          .is_uneven = false,
                          .dropout = 0,
                          .dtype = "fp32",
                          .keys = {sizes.dp == 1 ? "global_batch_size=12" : "global_batch_size=16"}};
        run_ranks({.ranks = static_cast<int>(sizes.ranks())}, [&](const Communicator& world) {
          const OwnMemoryLedger memory;
          PipedRank rank(piped, world);
          const CommLedger before = world.ledger();
          rank.trainer().step([&] { return rank.loaders().next(); });
          const CommLedger counted = world.ledger().since(before);
          const std::size_t peak = peak_memory_bytes();
          const StepPrediction step =
              predict_step(PipedSource(piped), rank.options(), planned_of(piped, world.rank()), DeviceKind::cpu);
          const std::string name = concat(text_of(piped), ", rank ", world.rank());
          findings.expect(step.traffic == counted, concat(name, "\n", compare(step.traffic, counted)));
          findings.expect(step.peak_bytes == peak, concat(name, ": ", step.peak_bytes, " bytes, and ", peak));
          findings.expect(step.held == rank.task().parameters().held(), name + ": parameters");
          if (piped.sizes.tp > 1) return;
          // By hand: every message has the rows of its part. A rank sends one for each part, chunk and direction, but
          // for the input of the first piece and the output of the last one.
          const int place = rank.parallel().pp.rank();
          const std::int64_t ends = (place == 0 ? 1 : 0) + (place + 1 == sizes.pp ? 1 : 0);
          const std::int64_t rows = rank.options().batch.global_batch_size / sizes.dp * kLength;
          findings.expect(counted.of("pp", Verb::send_receive).bytes == (2 * chunks - ends) * rows * 16 * 4,
                          name + ": bytes, by hand");
        });
      }
  CHECK(findings.wrong() == "");
}

TEST_CASE("pipeline: a cut counts the pairs that documents leave, as the cost model does") {
  constexpr std::int64_t kTokens = 64, kBlocks = 4, kHeads = 2, kHeadSize = 8;
  const auto work_of = [&](double share_of_pairs) {
    const auto network = std::make_shared<GptRecipe>(
        GptOptions{.embed_dim = kHeads * kHeadSize, .depth = kBlocks, .num_heads = kHeads, .positions = kTokens});
    const TextInfo info{.vocabulary = kVocabulary, .seq_length = kTokens, .share_of_pairs = share_of_pairs};
    const Parallel parallel = Parallel::imagined(0, {.pp = 2}, "tp-cp-dp");
    const LanguageModel model(network, ComputeOptions{}, info, meta_like(DeviceKind::cpu), parallel);
    double work = 0;
    for (const double piece : model.staged_network().share()->cut().work) work += piece;
    return work;
  };
  const AttentionFwdArgs triangle{.shape = {1, kHeads, kTokens, kTokens, kHeadSize}, .causal = true, .dropout = {}};
  CHECK(work_of(1) - work_of(0.25) ==
        testing::Approx(0.75 * kBlocks * attention_fwd_cost(triangle).flops).epsilon(1e-9));
}

TEST_CASE("pipeline: what cannot be cut is refused with the numbers") {
  const auto error_of = [](const Piped& piped) {
    return testing::error_of([&] {
      run_ranks({.ranks = static_cast<int>(piped.sizes.ranks())},
                [&](const Communicator& world) { PipedRank rank(piped, world); });
    });
  };
  const auto says = [&](const Piped& piped, const std::string& sentence) {
    CHECK_THAT(error_of(piped), testing::ContainsSubstring(sentence));
  };
  says({.sizes = {.pp = 3}, .depth = 2}, "--pipeline-parallel 3 needs 3 blocks at least, and the GPT has 2");
  says({.sizes = {.pp = 2}, .pipeline = {.chunks = 3}, .depth = 5},
       "--pipeline-parallel 2 x --pipeline-chunks 3 needs 6 blocks at least, and the GPT has 5");
  says({.sizes = {.pp = 2}, .parts = 3, .pipeline = {.chunks = 2}},
       "--pipeline-chunks 2: the 3 parts of a batch (grad_accumulation) are no multiple of the 2 ranks of a pipeline");
  says({.sizes = {.pp = 2}, .pipeline = pipeline_options(1, "1,2,1")},
       "--pipeline-split: 3 numbers of blocks are given for 2 pieces");
  says({.sizes = {.pp = 2}, .pipeline = pipeline_options(1, "1,2")},
       "--pipeline-split: the numbers add up to 3 blocks, and the network has 4");
  says({.sizes = {.pp = 3}, .pipeline = pipeline_options(1, "2,0,2")},
       "--pipeline-split: piece 1 has no block, and is neither the first nor the last");
  const testing::TinyClassifier classifier(std::string({0, 1, 2, 1, 0, 2, 1}));
  CHECK_THAT(testing::error_of([&] {
               run_ranks({.ranks = 2},
                         [&](const Communicator& world) { testing::TinyRank rank(classifier, world, {.pp = 2}); });
             }),
             testing::ContainsSubstring("--pipeline-parallel 2: a ViT classifier is not trained in stages"));
}

}  // namespace isobar
