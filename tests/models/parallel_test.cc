// Models that ranks share: whatever the layout, a training is that of one rank (tests/harness/layouts.h). One table for
// the results, the bits, what ranks tell each other, and what each holds.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/train/model_file.h"
#include "comm/ops.h"
#include "engine/files/reader.h"
#include "models/layers/attention.h"
#include "models/layers/mlp.h"
#include "tests/harness/golden_comparison.h"
#include "tests/harness/layouts.h"
#include "tests/harness/temporary_folder.h"

namespace isobar {
namespace {

using testing::ContainsSubstring, testing::Held, testing::HeldTensors, testing::Layout, testing::RankValues;
using testing::difference, testing::largest, testing::run_training, testing::scale_name;
using testing::TemporaryFolder, testing::TrainingSetup, testing::Values;
namespace fs = std::filesystem;

constexpr int kRanks = 8;
constexpr double kExact = 1e-12;       // of a tensor's largest element
constexpr std::int64_t kAligned = 64;  // elements that a parameter, or a slice of a bucket, begins at a multiple of

std::vector<RankValues> train_on(const TrainingSetup& setup, const Layout& layout) {
  return run_training(setup, layout, setup.samples * layout.dp);
}

// The same batches on one rank. Made once for every dp.
class Serial {
 public:
  explicit Serial(const TrainingSetup& setup) : setup_(setup) {}
  const RankValues& of(const Layout& layout) {
    const auto [found, is_new] = by_dp_.try_emplace(layout.dp);
    if (is_new) found->second = run_training(setup_, {}, setup_.samples * layout.dp)[0];
    return found->second;
  }

 private:
  TrainingSetup setup_;
  std::map<int, RankValues> by_dp_;
};

void check_near(const std::string& what, const Values& mine, const Values& expected, double scale) {
  INFO(what);
  REQUIRE(testing::finite(mine));
  const double error = largest(difference(mine, expected)) / scale;
  INFO("is off by " << error);
  CHECK(error <= kExact);
}

void check_tensors(const std::string& what, const HeldTensors& mine, const HeldTensors& serial) {
  REQUIRE(mine.size() == serial.size());
  for (const auto& [name, tensor] : mine)
    check_near(what + name, tensor.values, testing::part_held(serial.at(name), tensor),
               largest(serial.at(scale_name(name)).values));
}

// Of every update: the mean over the ranks' samples.
Values mean_losses(const std::vector<RankValues>& ranks) {
  Values means(ranks[0].losses.size());
  for (const RankValues& rank : ranks)
    for (std::size_t i = 0; i < means.size(); ++i) means[i] += rank.losses[i] / static_cast<double>(ranks.size());
  return means;
}

void check_like_serial(const TrainingSetup& setup, const Layout& layout, const RankValues& serial,
                       const std::vector<RankValues>& ranks) {
  for (const double norm : serial.norms) CHECK((setup.grad_clip == 0 || norm > setup.grad_clip));
  check_near("loss", mean_losses(ranks), serial.losses, largest(serial.losses));
  for (const RankValues& rank : ranks) {
    check_near("gradient norm", rank.norms, serial.norms, largest(serial.norms));
    if (setup.rollout == 1)
      check_near("output", rank.output, testing::output_held(setup, layout, serial, rank), largest(serial.output));
    if (!layout.shard_optimizer || &rank == ranks.data())
      check_tensors("gradient of ", rank.gradients, serial.gradients);
    check_tensors("", rank.weights, serial.weights);
    for (const auto& [name, mine] : rank.initial) {
      INFO("at the start: " << name);
      CHECK((mine.values == testing::part_held(serial.initial.at(name), mine)));
    }
    if (!setup.is_scored) continue;
    check_near("scores", rank.scores, serial.scores, largest(serial.scores));
    check_near("loss of the validation", {rank.score_loss}, {serial.score_loss}, serial.score_loss);
    CHECK(rank.pictures == (&rank == ranks.data() ? 1 : 0));
  }
}

// Whoever holds the same part of a tensor holds the same bits of it; together the ranks hold all of it.
void check_replicas(const std::vector<RankValues>& ranks, HeldTensors RankValues::*tensors) {
  for (const auto& [name, first] : ranks[0].*tensors) {
    INFO(name);
    std::map<std::int64_t, const Held*> parts;  // by their begin
    for (const RankValues& rank : ranks) {
      const Held& mine = (rank.*tensors).at(name);
      const auto [part, is_new] = parts.try_emplace(mine.shard.begin, &mine);
      if (!is_new) CHECK((mine.values == part->second->values));
    }
    std::int64_t end = 0;
    for (const auto& [begin, part] : parts) {
      CHECK(begin == end);
      end = part->shard.end;
    }
    CHECK(end == first.full_shape[static_cast<std::size_t>(first.shard.axis)]);
  }
}

void check_same_bits(const std::vector<RankValues>& a, const std::vector<RankValues>& b, bool with_gradients = true) {
  REQUIRE(a.size() == b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    INFO("rank " << r);
    CHECK((a[r].losses == b[r].losses));
    CHECK((a[r].norms == b[r].norms));
    CHECK((a[r].output == b[r].output));
    if (with_gradients) testing::check_same_bits(a[r].gradients, b[r].gradients);
    testing::check_same_bits(a[r].weights, b[r].weights);
  }
}

// What was predicted by a step on shapes, and by formulas of one step, is what was counted, on every rank in every
// update.
void check_traffic(const TrainingSetup& setup, const std::vector<RankValues>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const CommLedger& predicted = ranks[r].predicted.traffic;
    if (setup.rollout == 1) {
      INFO("rank " << r << ", by formulas\n" << compare(ranks[r].by_formulas, predicted));
      CHECK(ranks[r].by_formulas == predicted);
    }
    for (const CommLedger& counted : ranks[r].counted) {
      INFO("rank " << r << "\n" << compare(predicted, counted));
      CHECK(predicted == counted);
    }
  }
}

// To the byte: the ledger's peak, and what weights, gradients and moments hold.
void check_memory(const TrainingSetup& setup, const std::vector<RankValues>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    INFO("rank " << r);
    const RankValues& rank = ranks[r];
    if (!setup.is_scored) CHECK(rank.predicted.peak_bytes == rank.peak_bytes);
    CHECK(rank.predicted.holds.weights.counted == rank.holds.weights.counted);
    CHECK(rank.predicted.holds.gradients.counted == rank.holds.gradients.counted);
    CHECK(rank.predicted.holds.moments.counted == rank.holds.moments.counted);
  }
}

// Numbers of a rank: those of tensors that tp ranks split, and of the others; how many of each begin at a multiple of
// kAligned.
struct Numbers {
  std::int64_t split = 0, whole = 0, tensors = 0;
  explicit Numbers(const HeldTensors& tensors_of) {
    for (const auto& [name, tensor] : tensors_of) {
      (tensor.sharing == Sharing::shard ? split : whole) += std::ssize(tensor.values);
      ++tensors;
    }
  }
};

// Bytes predicted are those of the numbers; bytes counted have padding beside them: less than kAligned elements a
// tensor, and with a sharded optimizer less than kAligned for each slice of a bucket.
void check_bytes_held(const TrainingSetup& setup, const Layout& layout, const std::vector<RankValues>& ranks) {
  const std::int64_t number = setup.dtype == DType::fp64 ? 8 : 4;
  const std::int64_t weight = number + (setup.dtype == DType::fp64 ? 0 : 2);
  std::int64_t moments = 0, split = 0;
  for (const RankValues& rank : ranks) {
    const Numbers numbers(rank.weights);
    const std::int64_t all = numbers.split + numbers.whole;
    const std::int64_t ways = !layout.shard_optimizer ? 1 : layout.shards > 0 ? layout.shards : layout.dp * layout.cp;
    const std::int64_t buckets = all * number / static_cast<std::int64_t>(layout.bucket_bytes) + 8;
    const std::int64_t slices = layout.shard_optimizer ? ways * layout.tp : 0;
    const std::int64_t padding = kAligned * (numbers.tensors + std::min(buckets, numbers.tensors) * slices);
    CHECK(rank.holds.weights.predicted == all * weight);
    CHECK(rank.holds.gradients.predicted == all * number);
    const auto is_padded = [](const HeldBytes& held, std::int64_t most) {
      return held.counted >= held.predicted && held.counted - held.predicted <= most;
    };
    CHECK(is_padded(rank.holds.weights, padding * weight));
    CHECK(is_padded(rank.holds.gradients, padding * number));
    const std::int64_t off = 2 * number * padding;
    INFO("moments: " << rank.holds.moments.counted << " bytes, " << rank.holds.moments.predicted << " predicted");
    // What tp ranks compute in parts under sequence parallel is dealt over them too.
    CHECK(rank.holds.moments.predicted <= 2 * number * all / ways + 2 * number * 8);
    CHECK(std::abs(rank.holds.moments.counted - rank.holds.moments.predicted) <= off);
    moments += rank.holds.moments.counted;
    split += numbers.split;
  }
  // Among the ranks that see the same weights every number of a split tensor lies once; every moment too.
  const Numbers first(ranks[0].weights);
  const Part heads = part_of(setup.heads, 0, layout.tp), hidden = part_of(setup.embed / 2, 0, layout.tp);
  std::int64_t of_first = 0, in_full = 0;
  for (const auto& [name, tensor] : ranks[0].weights) {
    if (tensor.sharing != Sharing::shard) continue;
    const bool is_mlp = name.find(".mlp.") != std::string::npos;
    const std::int64_t full = numel_of(tensor.full_shape);
    in_full += full;
    of_first += is_mlp ? full * hidden.size() / (setup.embed / 2) : full * heads.size() / setup.heads;
  }
  CHECK(first.split == of_first);
  CHECK(split == in_full * layout.dp * layout.cp);
  const std::int64_t replicas = layout.shards > 0 ? layout.dp * layout.cp / layout.shards : 1;
  if (layout.shard_optimizer && layout.tp == 1) CHECK(moments == 2 * replicas * ranks[0].holds.gradients.counted);
}

void check_layout(const TrainingSetup& setup, const Layout& layout, Serial& serial, bool again = true) {
  INFO(testing::to_text(layout));
  const std::vector<RankValues> ranks = train_on(setup, layout);
  check_like_serial(setup, layout, serial.of(layout), ranks);
  if (!layout.shard_optimizer) check_replicas(ranks, &RankValues::gradients);
  check_replicas(ranks, &RankValues::weights);
  check_traffic(setup, ranks);
  check_memory(setup, ranks);
  check_bytes_held(setup, layout, ranks);
  if (again) check_same_bits(ranks, train_on(setup, layout));
}

// A sanitizer makes a step forty times slower. What it looks for depends neither on the size of the picture nor on the
// number of samples, and it sees every so many-th layout.
#ifdef ISOBAR_SANITIZED
constexpr std::int64_t kWidth = 4, kSamples = 1;
constexpr std::size_t kEvery = 8;
#else
constexpr std::int64_t kWidth = 10, kSamples = 4;
constexpr std::size_t kEvery = 1;
#endif

std::vector<Layout> judged(const std::vector<Layout>& layouts) {
  std::vector<Layout> some;
  for (std::size_t i = 0; i < layouts.size(); i += kEvery) some.push_back(layouts[i]);
  return some;
}

// All layouts of up to eight ranks take 40 s; the fast gate trains on every fifth of them.
void check_every(std::size_t step) {
  const TrainingSetup setup{.width = kWidth, .samples = kSamples};
  const std::vector<Layout> layouts = judged(testing::layouts_of(kRanks));
  Serial serial(setup);
  for (std::size_t i = 0; i < layouts.size(); i += step) check_layout(setup, layouts[i], serial);
}

}  // namespace

TEST_CASE("parallel models: every fifth layout of up to eight ranks trains as one rank does") {
  check_every(5);
}

TEST_CASE("parallel models: every layout of up to eight ranks trains as one rank does", "[.long]") {
  check_every(1);
}

// The last rank's band ends in a row that is half added; with 9 ranks it would have one row of the data.
TEST_CASE("parallel models: a padded grid in bands trains as it does on one rank") {
  for (const bool predicts_change : {false, true}) {
    const TrainingSetup setup{.height = 17,
                              .width = kWidth - 1,
                              .pads = true,
                              .predicts_change = predicts_change,
                              .samples = kSamples,
                              .is_scored = predicts_change};
    Serial serial(setup);
    std::vector<Layout> layouts = testing::forms_of(1, 1, 3);
    for (const Layout& layout : testing::forms_of(2, 2, 2)) layouts.push_back(layout);
    layouts.push_back({.cp = 9, .form = ContextForm::gather});
    layouts.push_back({.tp = 2});
    for (const Layout& layout : judged(layouts)) check_layout(setup, layout, serial, /*again=*/false);
  }
}

TEST_CASE("parallel models: some layouts of a model that is small enough for ThreadSanitizer") {
  const TrainingSetup setup{.width = 4, .samples = 1, .updates = 1};
  Serial serial(setup);
  std::vector<Layout> layouts = testing::forms_of(1, 2, 2);
  layouts.push_back({.dp = 2, .shard_optimizer = true});
  layouts.push_back({.dp = 2, .tp = 2, .sequence = true, .shard_optimizer = true, .bucket_bytes = 2000});
  layouts.push_back({.dp = 2, .cp = 2, .form = ContextForm::ring, .bucket_bytes = 2000});
  const std::vector<Layout> all = testing::layouts_of(kRanks);
  for (std::size_t i = 1; i < all.size(); i += 5) layouts.push_back(all[i]);  // 30 in all
  for (const Layout& layout : layouts) check_layout(setup, layout, serial, /*again=*/false);
}

TEST_CASE("parallel models: every loss and its scores, recomputed blocks, and one part an update") {
  for (const LossKind loss : {LossKind::relative_l2, LossKind::weighted_mse, LossKind::relative_l2_weighted}) {
    for (const bool recompute : {false, true}) {
      const bool is_first = loss == LossKind::relative_l2;
      const TrainingSetup setup{.width = kWidth,
                                .loss = loss,
                                .recompute = recompute,
                                .predicts_change = recompute,
                                .samples = kSamples,
                                .parts = is_first && !recompute ? 1 : 2,
                                .is_scored = true};
      INFO(name_of_enum(loss) << (recompute ? ", recomputed" : ""));
      Serial serial(setup);
      for (const Layout& layout : judged(testing::forms_of(2, 2, 2)))
        check_layout(setup, layout, serial, /*again=*/false);
    }
  }
}

// Every weight gets a gradient from each step. Sums over ranks that began with the first contribution would be silently
// wrong.
TEST_CASE("parallel models: a rollout of three steps trains in every layout as on one rank") {
  const TrainingSetup kept{.width = kWidth, .rollout = 3, .samples = kSamples, .updates = 2, .is_scored = true};
  const TrainingSetup again{.width = kWidth, .rollout = 3, .recompute_steps = true, .samples = kSamples, .updates = 2};
  Serial serial(kept), serial_again(again);
  const Layout sharded{.dp = 2, .cp = 2, .shard_optimizer = true, .bucket_bytes = 2000};
  for (const Layout& layout : {Layout{.dp = 2, .cp = 2, .form = ContextForm::ring}, sharded,
                               Layout{.tp = 2, .cp = 2, .form = ContextForm::gather, .sequence = true}, Layout{.tp = 2},
                               Layout{.cp = 9, .form = ContextForm::gather}})
    check_layout(kept, layout, serial, /*again=*/false);
  check_layout(again, sharded, serial_again, /*again=*/false);
}

TEST_CASE("parallel models: blocks that are computed again give the same bits") {
  for (const Layout& layout : testing::forms_of(1, 2, 2)) {
    INFO(testing::to_text(layout));
    const TrainingSetup kept{.width = kWidth, .samples = kSamples, .updates = 1};
    TrainingSetup recomputed = kept;
    recomputed.recompute = true;
    check_same_bits(train_on(kept, layout), train_on(recomputed, layout));
  }
}

TEST_CASE("parallel models: a sharded optimizer, and other buckets") {
  const TrainingSetup clipped{.width = kWidth, .samples = kSamples};
  const TrainingSetup free{.width = kWidth, .samples = kSamples, .grad_clip = 0};
  Serial serial(clipped), serial_free(free);
  for (Layout layout : judged(testing::forms_of(2, 2, 2))) {
    const std::vector<RankValues> usual = train_on(free, layout);
    check_like_serial(free, layout, serial_free.of(layout), usual);
    for (const bool is_sharded : {false, true}) {
      layout.shard_optimizer = is_sharded;
      for (const std::size_t bytes : {1, 40'000, 1 << 20}) {
        if (!is_sharded && bytes == 40'000) continue;  // the table's
        layout.bucket_bytes = bytes;
        INFO(testing::to_text(layout));
        check_layout(clipped, layout, serial, /*again=*/false);
        const std::vector<RankValues> same = train_on(free, layout);
        for (std::size_t r = 0; r < same.size(); ++r) testing::check_same_bits(same[r].weights, usual[r].weights);
      }
    }
  }
}

TEST_CASE("parallel models: other layouts with a sharded optimizer, and uneven heads") {
  const TrainingSetup setup{.width = kWidth, .samples = kSamples, .updates = 2};
  Serial serial(setup);
  for (Layout layout : {Layout{.dp = 8}, Layout{.dp = 2, .cp = 3, .form = ContextForm::ring}, Layout{.tp = 7},
                        Layout{.dp = 2, .tp = 3, .sequence = true}, Layout{.tp = 2, .cp = 4},
                        Layout{.dp = 4, .tp = 2, .sequence = true, .shards = 2},
                        Layout{.dp = 2, .cp = 3, .form = ContextForm::gather, .shards = 3, .order = "dp-tp-cp"}}) {
    layout.shard_optimizer = true;
    check_layout(setup, layout, serial);
  }
  const TrainingSetup few{.embed = 24, .heads = 3, .width = kWidth, .samples = kSamples};
  Serial serial_few(few);
  check_layout(few, {.cp = 4}, serial_few);  // more ranks than heads
}

TEST_CASE("parallel models: among one rank nothing is shared out") {
  const TrainingSetup setup{.updates = 1};
  check_same_bits(train_on(setup, {}), train_on(setup, {.form = ContextForm::ring, .sequence = true}));
}

TEST_CASE("parallel models: without dropout the branches are other ops, and the training is the serial one") {
  const TrainingSetup setup{.width = kWidth, .dropout = 0, .samples = kSamples, .updates = 2};
  Serial serial(setup);
  for (const Layout& layout :
       {Layout{.tp = 3}, Layout{.tp = 3, .sequence = true}, Layout{.dp = 2, .tp = 2}, Layout{.tp = 2, .cp = 2}})
    check_layout(setup, layout, serial, /*again=*/false);
}

TEST_CASE("parallel models: each block communicates four times a pass") {
  const TrainingSetup setup{.parts = 1, .updates = 1};
  constexpr std::int64_t kRows = 4 * 45, kBytes = kRows * 64 * 8, kBlocks = 2;
  // With a sharded optimizer nothing else goes over tp.
  const auto traffic = [&](Layout layout, Verb verb) {
    layout.shard_optimizer = true;
    return train_on(setup, layout)[0].counted[0].of("tp", verb);
  };
  const Layout all_rows{.tp = 2}, own_rows{.tp = 2, .sequence = true};
  CHECK(traffic(all_rows, Verb::all_reduce) == Traffic{4 * kBlocks, 4 * kBlocks * kBytes});
  CHECK(traffic(all_rows, Verb::all_gather) == Traffic{});
  CHECK(traffic(own_rows, Verb::all_reduce) == Traffic{});
  // Behind the last norm forward, and before the embedding backward, the rows are gathered once more.
  CHECK(traffic(own_rows, Verb::all_gather) == Traffic{4 * kBlocks + 2, (4 * kBlocks + 2) * kBytes});
  CHECK(traffic(own_rows, Verb::reduce_scatter) == Traffic{4 * kBlocks, 4 * kBlocks * kBytes});
}

namespace {

// What GradientReducer does where nobody has other samples or tokens.
void sum_over_tp(const Parameters& parameters, const Parallel& parallel) {
  for (const Parameters::Section& section : parameters.sections())
    if (section.sharing == Sharing::copy_of_partial)
      parallel.tp.all_reduce(parameters.grads().slice(section.range.first, {section.range.size()}));
}

struct MlpPass {
  Values y;
  HeldTensors gradients;
};

// An MLP on one rank, forward and backward.
MlpPass mlp_pass(std::int64_t hidden, double dropout, const Parallel& parallel) {
  constexpr std::int64_t kBatch = 3, kTokens = 7, kWidth = 16;
  Parameters parameters;
  const ComputeOptions compute;
  const Mlp mlp(Build{parameters, compute, parallel, kTokens}, "mlp",
                {.width = kWidth, .hidden = hidden, .dropout = dropout});
  parameters.allocate(DType::fp64, Device{}, 1);
  testing::move_weights(parameters);
  const Part own = parallel.sequence ? parallel.over_tp(kBatch * kTokens) : Part{0, kBatch * kTokens};
  const auto waves = [&own](double phase) {
    Tensor x = Tensor::empty({own.size(), kWidth}, DType::fp64, Device{});
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x.data_as<double>()[i] = std::sin(phase + static_cast<double>(own.begin * kWidth + i));
    return x;
  };
  Pass pass = Pass::training({7, 1 << 16}).over(kBatch);
  Tape tape;
  Tensor y;
  {
    const TapeScope recording(tape);
    y = mlp(waves(0), pass);
  }
  parameters.begin_step();
  tape.backward(y, waves(1));
  sum_over_tp(parameters, parallel);
  if (parallel.sequence) y = all_rows(y, kBatch * kTokens, parallel.tp);
  return {y.to_vector(), testing::held(parameters, parameters.grads(), 1)};
}

}  // namespace

TEST_CASE("parallel models: hidden channels that do not divide into eights, or eights into ranks") {
  for (const std::int64_t hidden : {40, 44, 33}) {
    for (const double dropout : {0.0, 0.25}) {
      const MlpPass serial = mlp_pass(hidden, dropout, {});
      for (const Layout& layout : testing::layouts_of(5)) {
        if (layout.dp > 1 || layout.cp > 1) continue;
        INFO(hidden << " channels, dropout " << dropout << ", " << testing::to_text(layout));
        std::vector<MlpPass> ranks(static_cast<std::size_t>(layout.tp));
        run_ranks({.ranks = layout.tp}, [&](const Communicator& world) {
          Parallel parallel = Parallel::start(world, {.tp = layout.tp}, "tp");
          parallel.sequence = layout.sequence;
          ranks[static_cast<std::size_t>(world.rank())] = mlp_pass(hidden, dropout, parallel);
        });
        for (const MlpPass& mine : ranks) {
          CHECK(largest(difference(mine.y, serial.y)) <= kExact * largest(serial.y));
          for (const auto& [name, gradient] : mine.gradients) {
            INFO(name);
            const Held& whole = serial.gradients.at(name);
            CHECK(largest(difference(gradient.values, testing::part_held(whole, gradient))) <=
                  kExact * largest(whole.values));
          }
        }
      }
    }
  }
}

TEST_CASE("parallel models: more ranks than heads or eights of hidden channels are refused") {
  const ComputeOptions compute;
  const auto on_three = [](const std::function<void(Parameters&, const Parallel&)>& make) {
    run_ranks({.ranks = 3}, [&](const Communicator& world) {
      Parameters parameters;
      make(parameters, Parallel::start(world, {.tp = 3}, "tp"));
    });
  };
  CHECK_THROWS_WITH(on_three([&compute](Parameters& parameters, const Parallel& parallel) {
                      const Attention attention({parameters, compute, parallel}, "attn", {.width = 16, .heads = 2});
                    }),
                    ContainsSubstring("attention: 3 tensor-parallel ranks share 2 heads, and each needs one"));
  CHECK_THROWS_WITH(on_three([&compute](Parameters& parameters, const Parallel& parallel) {
                      const Mlp mlp({parameters, compute, parallel}, "mlp", {.width = 16, .hidden = 16});
                    }),
                    ContainsSubstring("mlp: 3 tensor-parallel ranks share 16 hidden channels in groups of 8"));
  on_three([&compute](Parameters& parameters, const Parallel& parallel) {
    const Mlp mlp({parameters, compute, parallel}, "mlp", {.width = 16, .hidden = 17});
  });
}

namespace {

double root_mean_square(const Values& x) {
  return testing::norm(x) / std::sqrt(static_cast<double>(x.size()));
}

// Errors against fp64: at most twice the serial run's, and one rounding of values of this size.
void check_errors(const std::string& what, const Values& parallel, const Values& serial, const Values& sizes,
                  double rounding) {
  INFO(what);
  REQUIRE(testing::finite(parallel));
  INFO("root mean square " << root_mean_square(parallel) << ", serial " << root_mean_square(serial) << ", of "
                           << root_mean_square(sizes));
  CHECK(root_mean_square(parallel) <= 2 * root_mean_square(serial) + rounding * root_mean_square(sizes));
  INFO("largest " << largest(parallel) << ", serial " << largest(serial) << ", of " << largest(sizes));
  CHECK(largest(parallel) <= 2 * largest(serial) + rounding * largest(sizes));
}

// What every rank has, minus what it would have of the exact one, one rank behind the other.
template <class Mine, class Exact>
Values errors_of(const std::vector<RankValues>& ranks, const Mine& mine, const Exact& exact) {
  Values all;
  for (const RankValues& rank : ranks) {
    const Values errors = difference(mine(rank), exact(rank));
    all.insert(all.end(), errors.begin(), errors.end());
  }
  return all;
}

void check_errors_of(const TrainingSetup& low, const Layout& layout, const RankValues& exact, const RankValues& serial,
                     const std::vector<RankValues>& ranks) {
  const double rounding = low.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const auto output = [](const RankValues& rank) { return rank.output; };
  const auto exact_output = [&](const RankValues& rank) { return testing::output_held(low, layout, exact, rank); };
  check_errors("output", errors_of(ranks, output, exact_output), difference(serial.output, exact.output), exact.output,
               rounding);
  check_errors("loss", difference(mean_losses(ranks), exact.losses), difference(serial.losses, exact.losses),
               exact.losses, rounding);
  for (const auto& [name, whole] : exact.gradients) {
    const auto gradient = [&](const RankValues& rank) { return rank.gradients.at(name).values; };
    const auto exact_gradient = [&](const RankValues& rank) {
      return testing::part_held(whole, rank.gradients.at(name));
    };
    check_errors("gradient of " + name, errors_of(ranks, gradient, exact_gradient),
                 difference(serial.gradients.at(name).values, whole.values),
                 exact.gradients.at(scale_name(name)).values, rounding);
  }
}

// One update of a forecaster, in fp64: on the emulator of a smaller one, because a thread there takes its time.
TrainingSetup one_update(DeviceKind device) {
  TrainingSetup setup{.predicts_change = false, .updates = 1};
  if (device != DeviceKind::emulator) return setup;
  setup.embed = 32;
  setup.heads = 4;
  setup.samples = setup.parts = 1;
  return setup;
}

std::vector<testing::Arithmetic> sixteen_bits() {
  std::vector<testing::Arithmetic> all = testing::low_precisions();
  std::erase_if(all, [](const testing::Arithmetic& arithmetic) { return arithmetic.dtype == DType::fp32; });
  return all;
}

}  // namespace

TEST_CASE("parallel models: lower precisions err at most twice as much as on one rank") {
  for (const auto& [device, dtype] : sixteen_bits()) {
    TrainingSetup setup = one_update(device.kind);
    const RankValues exact = Serial(setup).of({.dp = 2});
    setup.dtype = dtype;
    setup.device = device;
    const RankValues serial = Serial(setup).of({.dp = 2});
    for (const Layout& layout : judged(testing::forms_of(2, 2, 2))) {
      INFO(name_of(dtype) << " on " << name_of(device.kind) << ", " << testing::to_text(layout));
      const std::vector<RankValues> ranks = train_on(setup, layout);
      check_errors_of(setup, layout, exact, serial, ranks);
      check_traffic(setup, ranks);
      check_bytes_held(setup, layout, ranks);
    }
  }
}

TEST_CASE("parallel models: an infinity in one rank's gradient makes all skip that update, and halves the scale once") {
  for (const auto& [device, dtype] : sixteen_bits()) {
    if (dtype != DType::fp16) continue;
    for (const Layout& layout : judged({{.dp = 2, .tp = 2, .cp = 2, .form = ContextForm::ring, .sequence = true},
                                        {.dp = 2, .tp = 2, .cp = 2, .shard_optimizer = true},
                                        {.tp = 2}})) {
      TrainingSetup setup = one_update(device.kind);
      setup.dtype = dtype;
      setup.device = device;
      INFO(name_of(device.kind) << ", " << testing::to_text(layout));
      const std::vector<RankValues> first = train_on(setup, layout);
      setup.updates = 2;
      setup.infinity_on_rank = layout.ranks() - layout.tp;  // of copies the first tp rank's gradient counts
      const std::vector<RankValues> both = train_on(setup, layout);
      for (std::size_t r = 0; r < both.size(); ++r) {
        CHECK(both[r].applied == std::vector<bool>{true, false});
        CHECK(both[r].loss_scale == first[r].loss_scale / 2);
        testing::check_same_bits(both[r].weights, first[r].weights);
      }
    }
  }
}

TEST_CASE("parallel models: checkpoints are the same files, whichever layout writes and reads them") {
  const TrainingSetup setup{.samples = 1, .parts = 1};
  const Layout layouts[] = {{},
                            {.dp = 2, .tp = 2, .cp = 2},
                            {.tp = 3, .cp = 2, .form = ContextForm::ring},
                            {.dp = 4, .cp = 2, .shard_optimizer = true},
                            {.tp = 2, .cp = 4, .sequence = true},
                            {.dp = 8}};
  constexpr std::int64_t kSamples = 8;
  const TemporaryFolder folder;
  const auto write = [](testing::RankTraining& rank, const fs::path& to) {
    if (rank.parallel().is_first()) fs::create_directories(to);
    write_model(to / "model", rank.task(), {}, rank.parallel().world);
    rank.trainer().write_optimizer(to / "optimizer");
  };
  const auto name = [](std::size_t i) { return std::to_string(i); };
  for (std::size_t i = 0; i < std::size(layouts); ++i)
    run_ranks({.ranks = layouts[i].ranks()}, [&](const Communicator& world) {
      testing::RankTraining rank(setup, layouts[i], kSamples, world);
      for (int update = 0; update < 2; ++update) rank.step();
      write(rank, folder / name(i));
    });
  for (std::size_t i = 0; i < std::size(layouts); ++i) {
    run_ranks({.ranks = layouts[i].ranks()}, [&](const Communicator& world) {
      testing::RankTraining rank(setup, layouts[i], kSamples, world);
      for (std::size_t from = 0; from < std::size(layouts); ++from) {
        read_model(folder / name(from) / "model", rank.task());
        rank.trainer().read_optimizer(folder / name(from) / "optimizer");
        rank.trainer().check_replicas();
        write(rank, folder / concat("again", i, from));
      }
    });
    for (std::size_t from = 0; from < std::size(layouts); ++from)
      for (const char* file : {"model", "optimizer"}) {
        INFO(file << " of " << testing::to_text(layouts[from]) << ", by " << testing::to_text(layouts[i]));
        CHECK((read_file(folder / concat("again", i, from) / file) == read_file(folder / name(from) / file)));
      }
  }
}

}  // namespace isobar
