// Schedules against the formulas, the loss scale, flat parameters, clipping and skipping.
#include "engine/optimizer.h"

#include <cmath>
#include <limits>
#include <memory>

#include "engine/ops.h"
#include "engine/schedule.h"
#include "engine/tape.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::Approx;

// Two matrices (one of them stacked) and a vector.
Parameters small_parameters(DType activation = DType::fp32, std::uint64_t seed = 0) {
  Parameters parameters;
  parameters.add({.names = {"bias"}, .shape = {3}, .init = {Init::Kind::constant, 1}});
  parameters.add(
      {.names = {"q", "k"}, .shape = {2, 3}, .init = {Init::Kind::normal, 0.02}, .decay = true, .compute_copy = true});
  parameters.add(
      {.names = {"w"}, .shape = {40, 50}, .init = {Init::Kind::uniform, 0.5}, .decay = true, .compute_copy = true});
  parameters.allocate(activation, Device{}, seed);
  return parameters;
}

}  // namespace

TEST_CASE("the cosine schedule is the tutorial's") {
  const LearningRate cosine{.kind = ScheduleKind::cosine, .base = 5e-4, .steps = 30000};
  // The rates that the tutorial's example log holds.
  CHECK(cosine.at(0) == 5e-4);
  CHECK(cosine.at(2372) == Approx(4.92327e-4).epsilon(2e-6));
  CHECK(cosine.at(14232) == Approx(2.70085e-4).epsilon(2e-6));
  CHECK(cosine.at(23720) == Approx(5.21408e-5).epsilon(2e-6));
  CHECK(cosine.at(30000) == Approx(0).margin(1e-18));

  const LearningRate warm{.kind = ScheduleKind::cosine, .base = 1, .warmup = 10, .steps = 100};
  CHECK(warm.at(0) == Approx(0.1));
  CHECK(warm.at(4) == Approx(0.5));
  CHECK(warm.at(9) == Approx(0.5 * (1 + std::cos(M_PI * 0.09))));  // the cosine is below 1 already
  CHECK(warm.at(50) == Approx(0.5));

  const LearningRate constant{.kind = ScheduleKind::constant, .base = 2, .warmup = 4, .steps = 100};
  CHECK(constant.at(0) == 0.5);
  CHECK(constant.at(99) == 2);
}

TEST_CASE("rates follow the batch by the rule asked for") {
  CHECK(scaled_rate(5e-4, BatchScaling::none, 64, 16) == 5e-4);
  CHECK(scaled_rate(5e-4, BatchScaling::sqrt, 64, 16) == Approx(1e-3));
  CHECK(scaled_rate(5e-4, BatchScaling::linear, 64, 16) == Approx(2e-3));
}

TEST_CASE("the loss scale halves on overflow and doubles after 2000 clean updates") {
  CHECK(LossScale::for_dtype(DType::bf16).scale == 1);
  LossScale scale = LossScale::for_dtype(DType::fp16);
  CHECK(scale.scale == 65536);
  scale.update(false);
  CHECK(scale.scale == 32768);
  for (int i = 0; i < 1999; ++i) scale.update(true);
  CHECK(scale.scale == 32768);
  scale.update(true);
  CHECK(scale.scale == 65536);
  for (int i = 0; i < 1999; ++i) scale.update(true);
  scale.update(false);  // starts the count again
  scale.update(true);
  CHECK(scale.scale == 32768);
  scale.scale = LossScale::kMax;  // a scale that no checkpoint may hold is never reached
  for (std::int64_t i = 0; i < 2 * scale.options.loss_scale_window; ++i) scale.update(true);
  CHECK(scale.scale == LossScale::kMax);
}

TEST_CASE("the loss scale's window, factors and hysteresis are those of its keys, as Megatron-LM counts them") {
  LossScale scale = LossScale::for_dtype(DType::fp16, {.initial_loss_scale = 1024,
                                                       .min_loss_scale = 100,
                                                       .loss_scale_window = 3,
                                                       .loss_scale_growth = 4,
                                                       .loss_scale_backoff = 0.25,
                                                       .hysteresis = 2});
  // Overflows marked by 0; the scale after each update, as megatron/optimizer/grad_scaler.py has it.
  const std::vector<std::pair<int, double>> updates{{0, 1024}, {1, 1024}, {0, 256},  {0, 64},  {1, 64},   {1, 64},
                                                    {1, 256},  {0, 256},  {1, 256},  {1, 256}, {1, 1024}, {1, 1024},
                                                    {1, 1024}, {1, 4096}, {0, 4096}, {0, 1024}};
  for (std::size_t i = 0; i < updates.size(); ++i) {
    scale.update(updates[i].first == 1);
    INFO("update " << i);
    CHECK(scale.scale == updates[i].second);
    CHECK(scale.is_too_small() == (updates[i].second < 100));
  }
  CHECK(LossScale::for_dtype(DType::fp16).options.hysteresis == 1);
  CHECK_FALSE(LossScale::for_dtype(DType::bf16, {.min_loss_scale = 2}).is_too_small());
}

TEST_CASE("a loss scale that begins below its minimum, or that an overflow does not lower, is refused") {
  LossScaleOptions options{.initial_loss_scale = 8, .min_loss_scale = 8, .loss_scale_backoff = 0.99};
  CHECK_NOTHROW(options.keys().check({}));
  options.min_loss_scale = 9;
  CHECK_THROWS_WITH(options.keys().check({}),
                    "config key min_loss_scale must be at most initial_loss_scale (8), not 9");
  options.min_loss_scale = 1;
  options.loss_scale_backoff = 1;
  CHECK_THROWS_WITH(options.keys().check({}), "config key loss_scale_backoff must be below 1, not 1");
}

TEST_CASE("parameters lie flat, matrices first, each under its name") {
  const Parameters parameters = small_parameters();
  REQUIRE(parameters.named().size() == 4);
  CHECK(parameters.count() == 3 + 2 * 6 + 2000);
  for (const NamedParameter& p : parameters.named()) CHECK((p.offset < parameters.decay_end()) == (p.name != "bias"));
  CHECK(parameters.get(1).shape() == Shape{4, 3});
  const NamedParameter &q = parameters.named()[1], &k = parameters.named()[2];
  CHECK(q.name == "q");
  CHECK(k.offset == q.offset + 6);  // stacked: one behind the other
}

TEST_CASE("every parameter begins at a multiple of 64 elements, and what lies between is zero") {
  const Parameters parameters = small_parameters();
  std::vector<std::int64_t> offsets;
  for (const NamedParameter& p : parameters.named()) offsets.push_back(p.offset);
  CHECK(offsets == std::vector<std::int64_t>{2112, 0, 6, 64});  // bias; q and k; w, in the order they were added
  CHECK(parameters.decay_end() == 2112);
  CHECK(parameters.weights().numel() == 2112 + 64);
  const std::vector<double> values = parameters.weights().to_vector();
  CHECK(std::vector<double>(values.begin() + 12, values.begin() + 64) == std::vector<double>(52, 0.0));
  CHECK(std::vector<double>(values.begin() + 2112, values.begin() + 2115) == std::vector<double>(3, 1.0));
  CHECK(parameters.named()[3].numel() == 2000);
  Parameters late = small_parameters();
  CHECK_THROWS_WITH(late.add({.names = {"late"}, .shape = {1}, .init = {}}),
                    testing::ContainsSubstring("parameter late comes after allocate()"));
}

TEST_CASE("a bucket of parameters is full when it has the bytes that were asked for, and no later") {
  const auto sizes = [](std::size_t bytes) {
    Parameters parameters;
    for (const char* name : {"a", "b", "c"}) parameters.add({.names = {name}, .shape = {64}, .init = {}});
    parameters.allocate(DType::fp64, Device{}, 0, {.bytes = bytes});
    std::vector<std::size_t> sizes;
    for (const Parameters::Bucket& bucket : parameters.buckets()) sizes.push_back(bucket.handles.size());
    return sizes;
  };
  using Sizes = std::vector<std::size_t>;
  CHECK(sizes(1) == Sizes{1, 1, 1});
  CHECK(sizes(64 * 8) == Sizes{1, 1, 1});
  CHECK(sizes(64 * 8 + 1) == Sizes{1, 2});  // filled from the last one on
  CHECK(sizes(2 * 64 * 8) == Sizes{1, 2});
  CHECK(sizes(2 * 64 * 8 + 1) == Sizes{3});
}

TEST_CASE("initial weights of a seed stay what they are") {
  const Parameters parameters = small_parameters(DType::fp64, 7);
  const NamedParameter &q = parameters.named()[1], &w = parameters.named()[3];
  const std::vector<double> normal = parameters.weight(q).to_vector(), uniform = parameters.weight(w).to_vector();
  CHECK(normal[0] == Approx(-0.00442237931842));
  CHECK(normal[5] == Approx(-0.00679798320232));
  CHECK(uniform[0] == Approx(0.488890304696));
  CHECK(uniform[1999] == Approx(-0.352228543954));
}

TEST_CASE("initial weights follow from seed and name alone") {
  const Parameters a = small_parameters(), b = small_parameters(DType::bf16), other = small_parameters(DType::fp32, 1);
  CHECK(a.weights().to_vector() == b.weights().to_vector());
  CHECK(a.weights().to_vector() != other.weights().to_vector());
  double sum = 0, squares = 0, most = 0;
  const Tensor& w = a.get(2);
  for (const double value : w.to_vector()) {
    sum += value;
    squares += value * value;
    most = std::max(most, std::abs(value));
  }
  CHECK(std::abs(sum / 2000) < 0.03);
  CHECK(squares / 2000 == Approx(0.25 / 3).epsilon(0.1));  // of U(-0.5, 0.5)
  CHECK(most <= 0.5);
}

TEST_CASE("a rank's part of a parameter starts as the whole one does, and the whole model is counted") {
  const auto made = [](Shard rows, Shard columns, Sharing sharing) {
    Parameters parameters;
    const Init normal{.kind = Init::Kind::normal, .value = 1};
    parameters.add({.names = {"norm"}, .shape = {5}, .init = {.value = 1}, .sharing = Sharing::copy_of_partial});
    parameters.add(
        {.names = {"q", "k"}, .shape = {6, 4}, .init = normal, .decay = true, .sharing = sharing, .shard = rows});
    parameters.add({.names = {"kept"}, .shape = {3, 2, 2}, .init = normal, .decay = true});
    parameters.add(
        {.names = {"proj"}, .shape = {4, 6}, .init = normal, .decay = true, .sharing = sharing, .shard = columns});
    parameters.add({.names = {"deep"},
                    .shape = {3, 4, 2},
                    .init = normal,
                    .sharing = sharing,
                    .shard = {.axis = 1, .begin = columns.begin ? 1 : 0, .end = columns.begin ? 3 : 4}});
    parameters.allocate(DType::fp64, Device{}, 7);
    return parameters;
  };
  const Parameters whole = made({}, {.axis = 1}, Sharing::copy);
  const Parameters part = made({.begin = 2, .end = 5}, {.axis = 1, .begin = 3, .end = 5}, Sharing::shard);
  CHECK(part.count() == whole.count());
  const auto values = [](const Parameters& parameters, std::size_t i) {
    return parameters.weight(parameters.named()[i]).to_vector();
  };
  const std::size_t q = 1, k = 2, kept = 3, proj = 4, deep = 5;
  for (const std::size_t i : {q, k}) {
    const std::vector<double> all = values(whole, i);
    CHECK(values(part, i) == std::vector<double>(all.begin() + 8, all.begin() + 20));
  }
  CHECK(values(part, kept) == values(whole, kept));
  std::vector<double> columns, inner;
  for (std::size_t row = 0; row < 4; ++row)
    for (const std::size_t column : {3, 4}) columns.push_back(values(whole, proj)[6 * row + column]);
  CHECK(values(part, proj) == columns);
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t i = 2; i < 6; ++i) inner.push_back(values(whole, deep)[8 * row + i]);
  CHECK(values(part, deep) == inner);
  CHECK(part.named()[proj].shape == Shape{4, 2});
  CHECK(part.named()[proj].full_shape == Shape{4, 6});

  // What is shared alike lies together, within what decays and within the rest; each parameter fills 64 elements here.
  using Section = Parameters::Section;
  const auto same = [](const Section& a, const Section& b) {
    return a.sharing == b.sharing && a.range.first == b.range.first && a.range.end == b.range.end;
  };
  const std::vector<Section> expected{{Sharing::shard, {0, 128}},
                                      {Sharing::copy, {128, 192}},
                                      {Sharing::shard, {192, 256}},
                                      {Sharing::copy_of_partial, {256, 320}}};
  CHECK(std::ranges::equal(part.sections(), expected, same));
  CHECK(part.decay_end() == 192);
  CHECK(whole.sections().size() == 3);

  Parameters wrong;
  CHECK_THROWS_WITH(wrong.add({.names = {"w"}, .shape = {4, 4}, .init = {}, .shard = {.begin = 2, .end = 5}}),
                    "parameter w of shape [4, 4] has no elements [2, 5) along axis 0");
  CHECK_THROWS_WITH(wrong.add({.names = {"b"}, .shape = {4}, .init = {}, .shard = {.axis = 1}}),
                    "parameter b of shape [4] has no parts along axis 1");
}

TEST_CASE("the parts of a stacked parameter start from random numbers of their own") {
  const Parameters parameters = small_parameters();
  const NamedParameter &q = parameters.named()[1], &k = parameters.named()[2];
  CHECK(parameters.weight(q).to_vector() != parameters.weight(k).to_vector());
}

TEST_CASE("the gradient of a parameter that a step does not use is zero, whatever the step before left") {
  Parameters parameters = small_parameters(DType::fp64);
  const NamedParameter& bias = parameters.named()[0];
  REQUIRE(bias.name == "bias");
  const auto step = [&](int used) {
    parameters.begin_step();
    Tape tape;
    Tensor y;
    {
      const TapeScope recording(tape);
      y = add(parameters.get(used), parameters.get(used));
    }
    tape.backward(y);
    parameters.finish_gradients();
  };
  step(0);
  CHECK(parameters.grad(bias).to_vector() == std::vector<double>(3, 2.0));
  step(2);
  CHECK(parameters.grad(bias).to_vector() == std::vector<double>(3, 0.0));
}

TEST_CASE("an update clips, skips what is not finite, and decays matrices only") {
  Parameters parameters = small_parameters(DType::fp64);
  const std::vector<double> start = parameters.weights().to_vector();
  const Tensor& grads = parameters.grads();

  SECTION("no gradient: only decay moves the matrices") {
    Optimizer optimizer(parameters, {.kind = OptimizerKind::adamw, .weight_decay = 0.1});
    optimizer.step(0.5);
    const std::vector<double> after = parameters.weights().to_vector();
    for (std::size_t i = 0; i < start.size(); ++i) {
      const bool decays = static_cast<std::int64_t>(i) < parameters.decay_end();
      REQUIRE(after[i] == Approx(start[i] * (decays ? 1 - 0.5 * 0.1 : 1)).margin(1e-300));
    }
  }
  SECTION("the average stays where an update is skipped") {
    Optimizer optimizer(parameters, {.ema = 0.5});
    grads.slice(0, grads.shape()).set_values(std::vector<double>(start.size(), 0.1));
    CHECK_FALSE(optimizer.has_average());
    REQUIRE(optimizer.step(0.1).applied);
    const std::vector<double> after = parameters.weights().to_vector(), average = optimizer.average().to_vector();
    for (std::size_t i = 0; i < start.size(); ++i)
      REQUIRE(average[i] == Approx(start[i] + (1 - 2.0 / 11) * (after[i] - start[i])).epsilon(1e-14).margin(1e-15));
    grads.slice(0, {1}).set_values({std::numeric_limits<double>::infinity()});
    CHECK_FALSE(optimizer.step(0.1).applied);
    CHECK(optimizer.average().to_vector() == average);
    optimizer.swap_average();
    CHECK(parameters.weights().to_vector() == average);
    CHECK(optimizer.average().to_vector() == after);
  }
  SECTION("the average goes on from update to update, at most as slowly as asked for") {
    for (const double ema : {0.1, 0.5, 0.9}) {
      Parameters averaged = small_parameters(DType::fp64);
      Optimizer optimizer(averaged, {.ema = ema});
      std::vector<double> expected = averaged.weights().to_vector();
      for (const double update : {1.0, 2.0, 3.0}) {
        averaged.grads().slice(0, averaged.grads().shape()).set_values(std::vector<double>(start.size(), 0.1 * update));
        REQUIRE(optimizer.step(0.1).applied);
        const double kept = std::min(ema, (1 + update) / (10 + update));
        const std::vector<double> after = averaged.weights().to_vector();
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += (1 - kept) * (after[i] - expected[i]);
      }
      const std::vector<double> average = optimizer.average().to_vector();
      for (std::size_t i = 0; i < expected.size(); ++i)
        REQUIRE(average[i] == Approx(expected[i]).epsilon(1e-13).margin(1e-14));
    }
  }
  SECTION("a NaN leaves everything as it was") {
    Optimizer optimizer(parameters, {});
    std::vector<double> bad(start.size(), 0.1);
    bad.back() = std::numeric_limits<double>::quiet_NaN();
    grads.slice(0, grads.shape()).set_values(bad);
    const UpdateResult result = optimizer.step(0.1);
    CHECK(!result.applied);
    CHECK(optimizer.updates() == 0);
    CHECK(parameters.weights().to_vector() == start);
    CHECK(optimizer.m().to_vector() == std::vector<double>(start.size(), 0.0));
  }
  SECTION("the norm is told before clipping, unscaled; the moments are clipped") {
    Optimizer optimizer(parameters, {.grad_clip = 1});
    grads.slice(0, grads.shape()).set_values(std::vector<double>(start.size(), 8.0));
    const UpdateResult result = optimizer.step(0.1, 4.0);  // gradients carry a loss scale of 4
    const double norm = 2.0 * std::sqrt(static_cast<double>(start.size()));
    CHECK(result.grad_norm == Approx(norm));
    CHECK(optimizer.m().to_vector()[0] == Approx(0.1 * 2.0 / norm).epsilon(1e-5));
  }
}

TEST_CASE("weights and their average change places, however many there are") {
  Parameters parameters;
  parameters.add({.names = {"w"}, .shape = {1025, 1024}, .init = {Init::Kind::normal, 1}, .decay = true});
  parameters.allocate(DType::fp32, Device{}, 3);
  Optimizer optimizer(parameters, {.ema = 0.5});
  const Tensor& grads = parameters.grads();
  grads.slice(0, grads.shape()).set_values(std::vector<double>(static_cast<std::size_t>(grads.numel()), 0.1));
  REQUIRE(optimizer.step(0.1).applied);
  const std::vector<double> weights = parameters.weights().to_vector(), average = optimizer.average().to_vector();
  optimizer.swap_average();
  CHECK((parameters.weights().to_vector() == average));
  CHECK((optimizer.average().to_vector() == weights));
}

namespace {

// Gradients of a step, the same for every model of small_parameters.
void set_gradients(const Parameters& parameters, int step) {
  std::vector<double> values(static_cast<std::size_t>(parameters.grads().numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<double>(i) + 17.0 * step) * (i % 3 == 0 ? 5 : 0.1);
  parameters.grads().slice(0, parameters.grads().shape()).set_values(values);
}

double square_sum(const Parameters& parameters, FlatRange range) {
  double sum = 0;
  const std::vector<double> values = parameters.grads().to_vector();
  for (std::int64_t i = range.first; i < range.end; ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    sum += value * value;
  }
  return sum;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

}  // namespace

TEST_CASE("optimizers that own ranges of the parameters make the update of one that owns all") {
  // With decay, which ends within a range; with clipping that bites.
  const OptimizerOptions options{.kind = OptimizerKind::adamw, .eps = 1e-3, .weight_decay = 0.1, .grad_clip = 0.5};
  const std::vector<std::vector<OwnedRange>> owned = {{{{0, 7}}, {{100, 100}}, {{2000, 2150}}},
                                                      {{{7, 2000}}, {{2150, 2176}}}};
  for (const DType activation : {DType::fp64, DType::fp32, DType::bf16}) {
    Parameters whole = small_parameters(activation), parts = small_parameters(activation);
    REQUIRE(whole.weights().numel() == 2176);
    REQUIRE(whole.decay_end() == 2112);
    Optimizer serial(whole, options);
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    for (std::size_t i = 0; i < owned.size(); ++i) {
      const SumOverRanks add_up = [&, i](const Tensor& sums) {
        CHECK(sums.dtype() == DType::fp64);
        std::vector<double> added = sums.to_vector();
        REQUIRE(added.size() == owned[i].size());
        for (std::size_t k = 0; k < added.size(); ++k) CHECK(added[k] == Approx(square_sum(parts, owned[i][k].range)));
        for (const OwnedRange& other : owned[1 - i]) added[0] += square_sum(parts, other.range);
        sums.slice(0, sums.shape()).set_values(added);
      };
      optimizers.push_back(std::make_unique<Optimizer>(parts, options, owned[i], add_up));
    }
    CHECK(optimizers[0]->m().shape() == Shape{7 + 150});
    CHECK(optimizers[1]->v().shape() == Shape{1993 + 26});
    for (int step = 0; step < 3; ++step) {
      set_gradients(whole, step);
      set_gradients(parts, step);
      const UpdateResult expected = serial.step(0.01, 2);
      for (const auto& optimizer : optimizers) {
        const UpdateResult result = optimizer->step(0.01, 2);
        CHECK(std::abs(result.grad_norm - expected.grad_norm) <= 1e-14 * expected.grad_norm);
        CHECK(result.applied);
      }
    }
    const double epsilon = activation == DType::fp64 ? 1e-15 : 2e-7;  // of weights of at most 1
    CHECK(largest_difference(whole.weights(), parts.weights()) <= epsilon);
    if (activation == DType::bf16) CHECK(largest_difference(whole.compute(), parts.compute()) <= 0.004);
    CHECK(largest_difference(serial.m().slice(0, {7}), optimizers[0]->m().slice(0, {7})) <= epsilon);
    CHECK(largest_difference(serial.v().slice(2000, {150}), optimizers[0]->v().slice(7, {150})) <= epsilon);
    CHECK(largest_difference(serial.m().slice(2150, {26}), optimizers[1]->m().slice(1993, {26})) <= epsilon);
  }
}

TEST_CASE("the average of many weights is swapped whole, and back") {
  constexpr std::int64_t kWeights = (std::int64_t{1} << 20) + 70;  // more than are swapped at once
  Parameters parameters;
  parameters.add({.names = {"w"}, .shape = {kWeights}, .init = {.value = 1}, .decay = true});
  parameters.allocate(DType::fp32, Device{}, 0);
  const Optimizer optimizer(parameters, {.ema = 0.5}, {{{0, 5}}, {{5, 5}}, {{7, parameters.grads().numel()}}});
  const std::vector<double> before = parameters.weights().to_vector();
  Tensor average = optimizer.average().slice(0, optimizer.average().shape());
  std::vector<double> numbers(static_cast<std::size_t>(average.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 1000);
  average.set_values(numbers);
  optimizer.swap_average();
  const std::vector<double> swapped = parameters.weights().to_vector();
  std::vector<double> expected = numbers;
  expected.insert(expected.begin() + 5, before.begin() + 5, before.begin() + 7);  // that it does not own
  CHECK((swapped == expected));
  optimizer.swap_average();
  CHECK((parameters.weights().to_vector() == before));
  CHECK((average.to_vector() == numbers));
  optimizer.begin_average();
  std::vector<double> owned = before;
  owned.erase(owned.begin() + 5, owned.begin() + 7);
  CHECK((average.to_vector() == owned));
}

TEST_CASE("an overflow in a range that another process owns skips the update too") {
  Parameters parameters = small_parameters(DType::fp64);
  set_gradients(parameters, 0);
  const std::vector<double> start = parameters.weights().to_vector();
  Optimizer optimizer(parameters, {}, {{{0, 64}}}, [](const Tensor& sums) {
    sums.slice(0, {1}).set_values({std::numeric_limits<double>::infinity()});
  });
  CHECK(!optimizer.step(0.1).applied);
  CHECK(parameters.weights().to_vector() == start);
}

TEST_CASE("an optimizer of one range of everything has the bits of one without ranges") {
  const OptimizerOptions options{.kind = OptimizerKind::adamw, .weight_decay = 0.1, .grad_clip = 0.5};
  Parameters a = small_parameters(), b = small_parameters();
  Optimizer plain(a, options), ranged(b, options, {{{0, b.weights().numel()}}});
  for (int step = 0; step < 3; ++step) {
    set_gradients(a, step);
    set_gradients(b, step);
    CHECK(plain.step(0.01).grad_norm == ranged.step(0.01).grad_norm);
  }
  CHECK(a.weights().to_vector() == b.weights().to_vector());
  CHECK(plain.m().to_vector() == ranged.m().to_vector());
}

// q, k and w have 2012 numbers, the bias 3; what lies between them is zero.
TEST_CASE(
    "the norm of the weights and the zeros of their gradients are those of the model, however many ranks have it") {
  Parameters parameters = small_parameters(DType::fp64);
  double squares = 0;
  for (const NamedParameter& p : parameters.named()) {
    Tensor weight = parameters.weight(p), grad = parameters.grads().slice(p.offset, p.shape);
    std::vector<double> values, gradients;
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      values.push_back(p.name == "bias" ? 3 : 0.5);
      gradients.push_back(i % 10 == 0 ? 0 : 7);
    }
    weight.set_values(values);
    grad.set_values(gradients);
    for (const double value : values) squares += value * value;
  }
  CHECK(squares == 2012 * 0.25 + 3 * 9);
  constexpr double kZeros = 1 + 1 + 1 + 200;  // of the bias, q, k and w: every tenth
  Optimizer alone(parameters, {});
  CHECK(alone.weights_norm() == Approx(std::sqrt(squares)).epsilon(1e-14));
  CHECK(alone.gradient_zeros() == kZeros);
  // Three ranks that have the same numbers, or one that has them of two ranges.
  const std::int64_t all = parameters.grads().numel();
  Optimizer same(parameters, {}, {{{0, all}, 1.0 / 3}},
                 [](const Tensor& sums) { sums.slice(0, {1}).set_values({3 * sums.to_vector()[0]}); });
  CHECK(same.weights_norm() == Approx(std::sqrt(squares)).epsilon(1e-14));
  CHECK(same.gradient_zeros() == Approx(kZeros).epsilon(1e-12));
  Optimizer ranged(parameters, {}, {{{0, 70}}, {{70, 70}}, {{70, all}}});
  CHECK(ranged.weights_norm() == Approx(std::sqrt(squares)).epsilon(1e-14));
  CHECK(ranged.gradient_zeros() == kZeros);
}

TEST_CASE("an optimizer refuses ranges that overlap, are reversed, or lie outside") {
  Parameters parameters = small_parameters();
  const auto refused = [&](std::vector<OwnedRange> ranges, const std::string& sentence) {
    CHECK_THROWS_WITH(Optimizer(parameters, {}, std::move(ranges)), sentence);
  };
  refused({{{0, 10}}, {{9, 20}}},
          "the optimizer's range [9, 20) does not follow element 10 of the 2176 that are trained");
  refused({{{10, 9}}}, "the optimizer's range [10, 9) does not follow element 0 of the 2176 that are trained");
  refused({{{-1, 9}}}, "the optimizer's range [-1, 9) does not follow element 0 of the 2176 that are trained");
  refused({{{0, 2177}}}, "the optimizer's range [0, 2177) does not follow element 0 of the 2176 that are trained");
}

}  // namespace isobar
