// A GPT that ranks share: whatever the layout, a training is that of one rank. Nothing here divides by anything: 97
// rows of the table of tokens of which 90 are tokens, 19 tokens a sample, targets of unequal number.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/gpt/recipe.h"
#include "models/language/language_model.h"
#include "models/language/metrics.h"
#include "tests/harness/findings.h"
#include "tests/harness/layouts.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar {
namespace {

using testing::Findings, testing::Layout, testing::relative_difference;

constexpr double kExactGpt = 1e-12;  // of a tensor's largest element
constexpr std::int64_t kTokensOfSample = 19, kVocabulary = 90, kRowsOfTable = 97, kGlobalBatch = 16;

// Samples with 4 to 19 targets that count. Packed: of documents of one and the same number of tokens, 1 to 7.
class SharedTokens : public Dataset {
 public:
  explicit SharedTokens(bool packed) : packed_(packed) {}

  std::string name() const override { return "shared tokens"; }
  std::int64_t samples() const override { return 64; }
  std::vector<TensorSpec> layout() const override {
    std::vector<TensorSpec> specs{{.name = "tokens", .shape = {kTokensOfSample + 1}, .dtype = DType::i32},
                                  {.name = "target", .shape = {kTokensOfSample}, .dtype = DType::i32}};
    for (const char* name : {"position", "key_begin"})
      if (packed_) specs.push_back({.name = name, .shape = {kTokensOfSample}, .dtype = DType::i32});
    return specs;
  }
  void read(const SampleKey& key, std::span<void* const> to) const override {
    auto* tokens = static_cast<std::int32_t*>(to[0]);
    auto* target = static_cast<std::int32_t*>(to[1]);
    for (std::int64_t t = 0; t <= kTokensOfSample; ++t)
      tokens[t] = static_cast<std::int32_t>((t * t * 31 + t * 7 + key.sample * 13) % kVocabulary);
    for (std::int64_t t = 0; t < kTokensOfSample; ++t)
      target[t] = t < 4 + (key.sample * 5) % 16 ? tokens[t + 1] : kIgnoredLabel;
    for (std::int64_t t = 0; t < kTokensOfSample && packed_; ++t) {
      const auto in_document = static_cast<std::int32_t>(t % (1 + key.sample % 7));
      static_cast<std::int32_t*>(to[2])[t] = in_document;
      static_cast<std::int32_t*>(to[3])[t] = static_cast<std::int32_t>(t) - in_document;
    }
  }

 private:
  const bool packed_;
};

struct GptSetup {
  bool tied = true, masked = true;
  std::int64_t parts = 2, heads = 8;
  double dropout = 0.1;
  bool packed = false;         // samples hold several documents
  std::int64_t loss_rows = 0;  // TextInfo::loss_rows
  ArithmeticType dtype = ArithmeticType::fp64;
};

class GptSource : public TaskSource {
 public:
  explicit GptSource(const GptSetup& setup) : setup_(setup) {}
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    const GptOptions network{.embed_dim = 8 * setup_.heads,
                             .depth = 2,
                             .num_heads = setup_.heads,
                             .positions = 24,
                             .tie_head = setup_.tied,
                             .embedding_dropout = setup_.dropout,
                             .attention_dropout = setup_.dropout,
                             .hidden_dropout = setup_.dropout,
                             .vocab_multiple = kRowsOfTable,
                             .vocab_padding = setup_.masked ? VocabPadding::masked : VocabPadding::live};
    const TextInfo info{.vocabulary = kVocabulary,
                        .seq_length = kTokensOfSample,
                        .ignores_targets = true,
                        .loss_rows = setup_.loss_rows};
    return std::make_unique<LanguageModel>(std::make_shared<GptRecipe>(network), compute, info, device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>&) const override {
    return SharedTokens(setup_.packed).layout();
  }

 private:
  const GptSetup setup_;
};

ComputeOptions compute_of(const GptSetup& setup) {
  return {.dtype = setup.dtype, .tf32 = false, .seed = 5};
}

TrainerOptions options_of(const GptSetup& setup) {
  return {.batch = {.global_batch_size = kGlobalBatch, .grad_accumulation = setup.parts},
          .optimizer = {.kind = OptimizerKind::adamw, .eps = 1e-3, .weight_decay = 0.1, .grad_clip = 0.05},
          .schedule = {.lr = 0.01},
          .compute = compute_of(setup)};
}

using WholeTensors = std::map<std::string, std::vector<double>>;

struct GptSteps {
  std::vector<double> losses, norms, scores;
  WholeTensors initial, gradients, weights;  // whole, on the first rank
};

WholeTensors whole_tensors(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world,
                           double factor = 1) {
  WholeTensors tensors;
  visit_whole(parameters, buffer, world, [&](const NamedParameter& p, const Tensor& whole) {
    std::vector<double>& values = tensors[p.name] = whole.to_vector();
    for (double& value : values) value *= factor;
  });
  return tensors;
}

Parallel parallel_of(const Layout& layout, const Communicator& world) {
  Parallel parallel =
      Parallel::start(world, {.dp = layout.dp, .tp = layout.tp, .cp = layout.cp}, layout.order, layout.exchange());
  parallel.sequence = layout.sequence;
  parallel.form = layout.form;
  return parallel;
}

// What was predicted for a step on shapes is what was counted.
void check_prediction(const GptSetup& setup, const Layout& layout, int rank, const CommLedger& counted,
                      const RankHolds& holds, Findings& findings) {
  const StepPrediction predicted = predict_step(GptSource(setup), options_of(setup),
                                                {.sizes = {.dp = layout.dp, .tp = layout.tp, .cp = layout.cp},
                                                 .order = layout.order,
                                                 .exchange = layout.exchange(),
                                                 .sequence = layout.sequence,
                                                 .form = layout.form,
                                                 .rank = rank},
                                                DeviceKind::cpu);
  findings.expect(predicted.traffic == counted,
                  concat(testing::to_text(layout), ", rank ", rank, ":\n", compare(predicted.traffic, counted)));
  findings.expect(predicted.holds.weights.counted == holds.weights.counted &&
                      predicted.holds.moments.counted == holds.moments.counted,
                  concat(testing::to_text(layout), ", rank ", rank, ": holds other bytes"));
}

std::vector<double> scores_of(const Task& task, const Dataset& data, const Parallel& parallel) {
  LanguageMetrics metrics(nullptr);
  Loaders loaders(data, data, {}, {.global_batch_size = kGlobalBatch}, 3, Device{},
                  {parallel.dp.rank(), parallel.dp.size()});
  task.score(loaders.next()->tensors, metrics);
  parallel.dp.all_reduce(metrics.sums().front());
  return {metrics.sums().front().begin(), metrics.sums().front().end()};
}

GptSteps train_gpt(const GptSetup& setup, const Layout& layout, const Communicator& world, Findings& findings) {
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(Device{}));
  const OwnMemoryLedger memory;
  const Parallel parallel = parallel_of(layout, world);
  const std::unique_ptr<Task> task = GptSource(setup).make_task(compute_of(setup), Device{}, parallel);
  Parameters& parameters = task->parameters();
  GptSteps steps;
  steps.initial = whole_tensors(parameters, {"", parameters.weights(), {}}, world);
  Trainer trainer(*task, options_of(setup), parallel);
  const SharedTokens data(setup.packed);
  Loaders loaders(data, data, {}, options_of(setup).batch, 3, Device{}, {parallel.dp.rank(), parallel.dp.size()});
  steps.scores = scores_of(*task, data, parallel);
  for (int step = 0; step < 3; ++step) {
    const CommLedger before = world.ledger();
    StepResult result = trainer.step([&] { return loaders.next(); });
    const CommLedger counted = world.ledger().since(before);
    if (step == 0) {
      check_prediction(setup, layout, world.rank(), counted, trainer.holds(), findings);
      steps.gradients = whole_tensors(parameters, trainer.gradients(), world, 1 / result.gradient_scale);
    }
    world.all_reduce({&result.loss, 1});
    steps.losses.push_back(result.loss / world.size());
    steps.norms.push_back(result.grad_norm);
  }
  trainer.check_replicas();
  steps.weights = whole_tensors(parameters, {"", parameters.weights(), {}}, world);
  return steps;
}

void compare_steps(const GptSteps& serial, const GptSteps& mine, const std::string& name, Findings& findings) {
  const auto near = [&](const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
    const double difference = relative_difference(a, b);
    findings.expect(difference < kExactGpt, concat(name, ": ", what, " is off by ", difference));
  };
  near(serial.losses, mine.losses, "loss");
  near(serial.norms, mine.norms, "gradient norm");
  near(serial.scores, mine.scores, "scores");
  findings.expect(mine.initial == serial.initial, name + ": other initial weights");
  for (const auto& [tensor, values] : mine.gradients)
    near(serial.gradients.at(tensor), values, "gradient of " + tensor);
  for (const auto& [tensor, values] : mine.weights) near(serial.weights.at(tensor), values, tensor);
}

GptSteps serial_steps(const GptSetup& setup) {
  Findings findings;
  const GptSteps steps = train_gpt(setup, {}, {}, findings);
  CHECK(findings.wrong() == "");
  for (const double norm : steps.norms) CHECK(norm > 0.05);  // it is clipped
  return steps;
}

void check_gpt_layouts(const GptSetup& setup, const std::vector<Layout>& layouts) {
  const GptSteps serial = serial_steps(setup);
  for (const Layout& layout : layouts) {
    Findings findings;
    run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
      const GptSteps mine = train_gpt(setup, layout, world, findings);
      if (world.rank() == 0) compare_steps(serial, mine, testing::to_text(layout), findings);
    });
    CHECK(findings.wrong() == "");
  }
}

// Every so many-th layout of up to eight ranks, with what a layout of ranks leaves open.
std::vector<Layout> some_layouts(std::size_t first, std::size_t step) {
  const std::vector<Layout> all = testing::layouts_of(8);
  std::vector<Layout> some;
  for (std::size_t i = first; i < all.size(); i += step) {
    Layout layout = all[i];
    layout.shard_optimizer = i % 2 == 1;
    if (i % 3 == 0) layout.order = "cp-tp-dp";
    some.push_back(layout);
  }
  return some;
}

#ifdef ISOBAR_SANITIZED
constexpr std::size_t kEveryGpt = 40;
#else
constexpr std::size_t kEveryGpt = 6;
#endif

}  // namespace

TEST_CASE("gpt on ranks: the rows of the table of tokens are dealt in whole groups, as evenly as they go") {
  const auto parts = [](std::int64_t rows, int ranks) {
    std::vector<std::int64_t> sizes;
    std::int64_t end = 0;
    for (int r = 0; r < ranks; ++r) {
      const Parallel parallel = Parallel::imagined(r, {.tp = ranks}, "tp-cp-dp");
      const VocabPart part = vocab_part(rows, rows, parallel);
      CHECK(part.own.begin == end);
      end = part.own.end;
      sizes.push_back(part.own.size());
    }
    CHECK(end == rows);
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  CHECK(parts(50304, 4) == Sizes{12608, 12608, 12544, 12544});
  CHECK(parts(50257, 3) == Sizes{16768, 16768, 16721});
  CHECK(parts(65, 2) == Sizes{64, 1});
  CHECK(parts(65, 3) == Sizes{32, 32, 1});
  CHECK(parts(65, 4) == Sizes{32, 16, 16, 1});
  CHECK(parts(3, 3) == Sizes{1, 1, 1});
  CHECK_THROWS_WITH(parts(2, 3),
                    "the 2 rows of a table of tokens are fewer than the 3 tensor-parallel ranks that share it");
  // The padding of a rank's columns: all, some, none.
  const auto padding = [](int rank) {
    return vocab_part(128, 65, Parallel::imagined(rank, {.tp = 4}, "tp-cp-dp")).padding();
  };
  CHECK(padding(0) == 0);
  CHECK(padding(1) == 0);
  CHECK(padding(2) == 31);
  CHECK(padding(3) == 32);
}

TEST_CASE("gpt on ranks: tensor parallel, over any number of ranks") {
  for (const GptSetup& setup : {GptSetup{}, GptSetup{.tied = false, .masked = false}}) {
    std::vector<Layout> layouts;
    for (const int tp : {2, 3, 4})
      for (const Layout& layout : testing::forms_of(1, tp, 1)) layouts.push_back(layout);
    layouts.push_back({.dp = 2, .tp = 3, .sequence = true, .shard_optimizer = true, .bucket_bytes = 2000});
    layouts.push_back({.tp = 7, .sequence = true});
    check_gpt_layouts(setup, layouts);
  }
}

TEST_CASE("gpt on ranks: context parallel, in every form") {
  for (const GptSetup& setup : {GptSetup{}, GptSetup{.tied = false, .dropout = 0}}) {
    std::vector<Layout> layouts;
    for (const int cp : {2, 3, 8})
      for (const Layout& layout : testing::forms_of(1, 1, cp)) layouts.push_back(layout);
    for (const Layout& layout : testing::forms_of(1, 2, 2)) layouts.push_back(layout);
    layouts.push_back({.dp = 2, .cp = 3, .form = ContextForm::ring, .shard_optimizer = true, .bucket_bytes = 2000});
    check_gpt_layouts(setup, layouts);
  }
}

TEST_CASE("gpt on ranks: documents that do not see each other, and logits of some rows at a time") {
  std::vector<Layout> layouts;
  for (const Layout& layout : testing::forms_of(1, 2, 2)) layouts.push_back(layout);
  for (const Layout& layout : testing::forms_of(2, 1, 3)) layouts.push_back(layout);
  check_gpt_layouts({.packed = true}, layouts);
  check_gpt_layouts({.tied = false, .packed = true, .loss_rows = 7}, layouts);
}

// The gradient of the table adds up in other parts, so it is the same but for rounding.
TEST_CASE("gpt on ranks: a loss of some rows at a time is that of all") {
  Findings findings;
  for (const bool tied : {true, false}) {
    const GptSteps all = train_gpt({.tied = tied}, {}, {}, findings);
    for (const std::int64_t rows : {1, 7, 64, 1 << 20})
      compare_steps(all, train_gpt({.tied = tied, .loss_rows = rows}, {}, {}, findings), concat(rows, " rows"),
                    findings);
  }
  CHECK(findings.wrong() == "");
  // Of 152 rows of a pass, the logits of seven exist at once, and none is kept.
  const auto activations = [](std::int64_t rows) {
    const StepPrediction step =
        predict_step(GptSource({.heads = 1, .loss_rows = rows}), options_of({}), {}, DeviceKind::cpu);
    for (const MemoryUse& use : step.memory)
      if (use.tag == "activations") return use.peak_bytes;
    return std::size_t{0};
  };
  CHECK(2 * (activations(0) - activations(7)) > 8 * kTokensOfSample * kRowsOfTable * sizeof(double));
}

TEST_CASE("gpt on ranks: some layouts of up to eight ranks train as one rank does") {
  check_gpt_layouts({}, some_layouts(2, kEveryGpt));
}

TEST_CASE("gpt on ranks: every layout of up to eight ranks trains as one rank does", "[.long]") {
  check_gpt_layouts({}, some_layouts(0, 1));
  check_gpt_layouts({.tied = false}, some_layouts(0, 1));
}

}  // namespace isobar
