// Gradients summed over ranks: which bucket starts when, and what comes of it.
#include "comm/gradients.h"

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/train/trainer.h"
#include "comm/thread_ranks.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "kernels/emulator/streams.h"
#include "tests/harness/error_of.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::Findings;

constexpr std::int64_t kIn = 8, kOut = 16;

// Three layers of one shape and a parameter that nothing reads; the loss is a forecast's.
class Layers : public Task {
 public:
  explicit Layers(const Parallel& parallel = {}, DType activation = DType::fp64, Device device = {}) {
    for (int i = 0; i < 3; ++i) {
      const std::string name = "layer" + std::to_string(i);
      weights_.push_back(parameters_.add({.names = {name + ".weight"},
                                          .shape = {i == 2 ? kOut : kIn, kIn},
                                          .init = {.kind = Init::Kind::normal, .value = 0.5},
                                          .decay = true}));
      biases_.push_back(parameters_.add({.names = {name + ".bias"}, .shape = {i == 2 ? kOut : kIn}, .init = {}}));
    }
    parameters_.add({.names = {"unread"}, .shape = {5}, .init = {}, .decay = true});
    parameters_.allocate(activation, device, 3, parallel.bucket_plan());
  }

  std::string network() const override { return "layers"; }
  Parameters& parameters() override { return parameters_; }
  const Parameters& parameters() const override { return parameters_; }
  Tensor loss(const Batch& batch, const Pass&) const override {
    Tensor x = batch.at("input");
    const std::int64_t rows = x.size(0);
    for (std::size_t i = 0; i < weights_.size(); ++i)
      x = linear(x, parameters_.get(weights_[i]), parameters_.get(biases_[i]), {.out_dtype = parameters_.dtype()});
    return forecast_loss(x.view({rows, kOut, 1, 1}), batch.at("target"), {});
  }
  std::unique_ptr<Metrics> metrics() const override { return nullptr; }
  void score(const Batch&, Metrics&) const override {}
  std::vector<Picture> pictures(const Batch&, std::int64_t) const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  Parameters parameters_;
  std::vector<int> weights_, biases_;
};

// Samples first, first + step, ... of an endless data set.
std::shared_ptr<const LoadedBatch> batch_of(std::int64_t first, std::int64_t step, std::int64_t count,
                                            DType dtype = DType::fp64) {
  const auto fill = [&](Shape shape, double frequency) {
    Tensor x = Tensor::empty(std::move(shape), DType::fp64, Device{});
    const std::int64_t each = x.numel() / count;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x.data_as<double>()[i] = std::sin(frequency * static_cast<double>((first + i / each * step) * each + i % each));
    return x.to(dtype);
  };
  auto batch = std::make_shared<LoadedBatch>();
  batch->tensors = {{"input", fill({count, kIn}, 0.7)}, {"target", fill({count, kOut, 1, 1}, 1.3)}};
  return batch;
}

TrainerOptions options_of(std::int64_t parts) {
  return {.batch = {.global_batch_size = 12, .grad_accumulation = parts},
          .optimizer = {.kind = OptimizerKind::adamw, .eps = 1e-3, .weight_decay = 0.1, .grad_clip = 0.05}};
}

// One tensor behind the other, without padding, which depends on how the optimizer is sharded.
std::vector<double> weights_of(const Parameters& parameters) {
  std::vector<double> all;
  for (const NamedParameter& p : parameters.named())
    for (const double weight : parameters.weight(p).to_vector()) all.push_back(weight);
  return all;
}

struct Steps {
  std::vector<double> grads, weights;
  std::vector<double> losses;
};

// Three steps of one rank of `ranks`, which share batches of 12 samples in `parts` parts.
Steps three_steps(const Communicator& world, std::int64_t parts, std::size_t bucket_bytes) {
  const Parallel parallel = Parallel::start(world, {.dp = world.size()}, "dp", {.bucket_bytes = bucket_bytes});
  Layers task(parallel);
  Trainer trainer(task, options_of(parts), parallel);
  std::int64_t next = 0;
  Steps steps;
  for (int step = 0; step < 3; ++step) {
    const StepResult result = trainer.step([&] {
      const std::int64_t first = 12 / parts * next++;
      return batch_of(first + world.rank(), world.size(), 12 / parts / world.size());
    });
    std::vector<double> loss{result.loss};
    world.all_reduce(loss);
    steps.losses.push_back(loss[0] / world.size());
    if (step == 0) steps.grads = task.parameters().grads().to_vector();
  }
  steps.weights = weights_of(task.parameters());
  return steps;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(a[i]));
  }
  return difference / largest;
}

}  // namespace

TEST_CASE("gradients: steps of several ranks are those of one, and the same bits whatever the buckets") {
  for (const std::int64_t parts : {1, 2}) {
    const Steps serial = three_steps({}, parts, 1);
    for (const int ranks : {2, 3, 6}) {
      INFO(parts << " parts, " << ranks << " ranks");
      Steps first;
      Findings findings;
      for (const std::size_t bucket_bytes : {1, 600, 1 << 20}) {
        run_ranks({.ranks = ranks}, [&](const Communicator& world) {
          const Steps steps = three_steps(world, parts, bucket_bytes);
          findings.expect(largest_difference(serial.grads, steps.grads) < 1e-14, "gradients");
          findings.expect(largest_difference(serial.losses, steps.losses) < 1e-14, "losses");
          findings.expect(largest_difference(serial.weights, steps.weights) < 1e-13, "weights");
          if (world.rank() == 0 && first.weights.empty()) first = steps;
          world.barrier();
          findings.expect(steps.weights == first.weights, "the same bits");
        });
      }
      CHECK(findings.wrong() == "");
    }
  }
}

TEST_CASE("gradients: buckets start in the order in which gradients are final, all but the last before the end") {
  Findings findings;
  run_ranks({.ranks = 2}, [&](const Communicator& world) {
    const Parallel parallel = Parallel::start(world, {.dp = 2}, "dp", {.bucket_bytes = 1});
    Layers task(parallel);
    GradientReducer reducer(task.parameters(), parallel);
    findings.expect(reducer.buckets() == 7, concat(reducer.buckets(), " buckets of a parameter each"));
    const auto backward = [&](Tape& tape) {
      const std::shared_ptr<const LoadedBatch> batch = batch_of(world.rank(), 2, 3);
      Tensor loss;
      {
        const TapeScope recording(tape);
        loss = task.loss(batch->tensors, {});
      }
      tape.backward(loss);
    };
    task.parameters().begin_step();
    Tape part, last;
    backward(part);  // it only accumulates
    findings.expect(world.ledger().of("dp-cp", Verb::all_reduce).calls == 0, "a part has started a bucket");
    reducer.begin(last);
    backward(last);
    findings.expect(reducer.started_early() == 6, concat(reducer.started_early(), " buckets started early"));
    findings.expect(world.ledger().of("dp-cp", Verb::all_reduce).calls == 6, "calls before the end");
    task.parameters().finish_gradients();
    reducer.finish();
    const Traffic traffic = world.ledger().of("dp-cp", Verb::all_reduce);
    findings.expect(traffic.calls == 7, "what nothing reads is exchanged too");
    findings.expect(traffic.bytes == 8 * task.parameters().grads().numel(), "every gradient once");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("gradients: what is no gradient of the model starts nothing, and one that comes twice is an error") {
  Layers task;
  GradientReducer reducer(task.parameters(), {});
  Tensor ones = Tensor::zeros({kOut}, DType::fp64, Device{});
  ones.set_values(std::vector<double>(kOut, 1));
  const Tensor other = make_leaf(ones, Tensor::zeros({kOut}, DType::fp64, Device{}));
  const auto backward = [&](Tape& tape) {
    const std::shared_ptr<const LoadedBatch> batch = batch_of(0, 1, 3);
    Tensor loss;
    {
      const TapeScope recording(tape);
      const Tensor& target = batch->tensors.at("target");
      const Tensor shifted = add_row(target.view({3, kOut}), other);
      loss = add(task.loss(batch->tensors, {}), forecast_loss(shifted.view({3, kOut, 1, 1}), target, {}));
    }
    tape.backward(loss);
  };
  task.parameters().begin_step();
  Tape first, second, third;
  reducer.begin(first);
  backward(first);
  CHECK(reducer.started_early() == 1);  // the biases; what nothing reads lies with the weights
  reducer.begin(second);
  backward(second);
  CHECK(reducer.started_early() == 1);  // of this pass
  reducer.watch(third);
  CHECK_THROWS_WITH(backward(third), "gradients: a parameter's gradient was final twice in one backward pass");
}

TEST_CASE("gradients: parameters that are not laid out for the ranks that share their optimizer are refused") {
  Layers task;  // for one rank: buckets of whole alignments of 64 elements
  const Parallel three = Parallel::imagined(0, {.dp = 3}, "dp", {.shards = ExchangeOptions::kAll});
  CHECK_THROWS_WITH(GradientReducer(task.parameters(), three),
                    "gradients: a bucket of 320 elements has no equal slices for 3 ranks");
}

TEST_CASE("gradients: the fair share of a rank is what it would update without padding") {
  // Of 3 layers [8, 8], [8, 8], [16, 8] and biases, and of 5 numbers that nothing reads.
  constexpr std::int64_t kMatrices = 64 + 64 + 128 + 5, kBiases = 8 + 8 + 16;
  for (const std::int64_t ranks : {1, 2, 3, 7}) {
    const Parallel parallel = Parallel::imagined(0, {.dp = ranks}, "dp", {.shards = ExchangeOptions::kAll});
    Layers task(parallel);
    const GradientReducer reducer(task.parameters(), parallel);
    CHECK(reducer.fair_share() == (kMatrices + ranks - 1) / ranks + (kBiases + ranks - 1) / ranks);
  }
}

TEST_CASE(
    "gradients: the fair share counts each parameter over the ranks that share its optimizer, and no frozen one") {
  // Rank 0 of dp 3, tp 2, pp 2.
  const Parallel parallel =
      Parallel::imagined(0, {.dp = 3, .tp = 2, .pp = 2}, "tp-cp-dp", {.shards = ExchangeOptions::kAll});
  Parameters parameters;
  const auto add = [&](const char* name, Shape shape, Sharing sharing, Shard shard = {}) {
    return parameters.add({.names = {name}, .shape = std::move(shape), .init = {}, .sharing = sharing, .shard = shard});
  };
  const Shard half{.axis = 0, .begin = 0, .end = 5};
  const int rows = add("rows", {10, 4}, Sharing::shard, half), more = add("more", {10, 3}, Sharing::shard, half);
  const int bias = add("bias", {7}, Sharing::copy), table = add("table", {10, 2}, Sharing::shard, half);
  const int frozen = add("frozen", {11}, Sharing::copy), elsewhere = add("elsewhere", {13}, Sharing::copy);
  parameters.hold_only({rows, more, bias, table, frozen}, {table});
  parameters.freeze({"frozen"});
  parameters.allocate(DType::fp64, Device{}, 3, parallel.bucket_plan());
  const GradientReducer reducer(parameters, parallel);
  // 20 + 15 numbers over dp, 7 over dp and tp, 10 over the dp ranks of both ends.
  CHECK(reducer.fair_share() == 12 + 2 + 2);
  CHECK(parameters.held_trained() == 20 + 15 + 7 + 10);
  CHECK(parameters.held() == 20 + 15 + 7 + 10 + 11);
  CHECK(parameters.frozen_count() == 11);
  CHECK(parameters.count() == 40 + 30 + 7 + 20 + 11 + 13);
  CHECK(parameters.get(elsewhere).numel() == 0);
}

#if ISOBAR_HAS_EMULATOR

// Two ranks as the first one sees them, of which the other has the same numbers. A call happens when its stream gets
// there, and not before.
class Twins : public Backend {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void run(const Call& call, const std::string&) override {
    ISOBAR_CHECK(call.verb == Verb::all_reduce || call.verb == Verb::broadcast, "of these verbs only");
    if (call.verb == Verb::broadcast) return;
    ISOBAR_CHECK(call.dtype == DType::fp32, "of this dtype only");
    emulator::submit(call.stream, [n = call.sends[0], x = static_cast<float*>(call.receive)] {
      for (std::int64_t i = 0; i < n; ++i) x[i] *= 2;
    });
  }
  std::unique_ptr<Backend> split(int, int) override { throw_error("there is one group"); }
  bool has_failed() const override { return false; }
};

constexpr Device kEmulator{DeviceKind::emulator};

// The weights after three steps on a stream of the emulator.
std::vector<double> steps_on_stream(const Parallel& parallel, double grad_clip) {
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(kEmulator));
  Layers task(parallel, DType::fp32, kEmulator);
  const std::int64_t ranks = parallel.mesh.world_size();  // 1 for twins: each has a whole batch
  TrainerOptions options = options_of(2);
  options.batch.global_batch_size *= parallel.dp.size() / ranks;
  options.optimizer.grad_clip = grad_clip;
  Trainer trainer(task, options, parallel);
  std::int64_t next = 0;
  for (int step = 0; step < 3; ++step)
    trainer.step([&] { return batch_of(6 * next++ + parallel.dp.rank(), ranks, 6 / ranks, DType::fp32); });
  return weights_of(task.parameters());
}

TEST_CASE("gradients: sums beside the backward pass follow it, and the update follows them") {
  const std::vector<double> serial = steps_on_stream({}, 0.05);
  Parallel twins{.world = Communicator(std::make_unique<Twins>())};
  twins.dp = twins.tokens = twins.world;
  // The sum of two halves is the whole, to the bit.
  for (const std::size_t bucket_bytes : {1, 600, 1 << 20}) {
    twins.exchange.bucket_bytes = bucket_bytes;
    CHECK(steps_on_stream(twins, 0.05) == serial);
  }
}

TEST_CASE("gradients: ranks on streams of a device make the steps of one, sharded or not") {
  const std::vector<double> serial = steps_on_stream({}, 0.05);
  Findings findings;
  std::vector<double> first;
  for (const bool is_sharded : {false, true}) {
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      const Parallel parallel =
          Parallel::start(world, {.dp = 2}, "dp", {.bucket_bytes = 600, .shards = is_sharded ? 2 : 1});
      findings.expect(largest_difference(serial, steps_on_stream(parallel, 0.05)) < 1e-5, "weights");
      const std::vector<double> unclipped = steps_on_stream(parallel, 0);
      if (world.rank() == 0 && first.empty()) first = unclipped;
      world.barrier();
      findings.expect(unclipped == first, "the same bits");
    });
  }
  CHECK(findings.wrong() == "");
}

#endif

namespace {

// Its loss is finite, and the gradient of that is not.
class OverflowingLayers : public Layers {
 public:
  using Layers::Layers;
  Tensor loss(const Batch& batch, const Pass& pass) const override {
    const Tensor loss = Layers::loss(batch, pass);
    if (!overflows) return loss;
    Tensor same = loss;
    Tape::record("overflow", {&loss}, {}, {&same}, [x = Target(loss)](Gradients& gradients, const auto& dy) {
      Tensor infinite = dy[0];
      infinite.set_values({std::numeric_limits<double>::infinity()});
      gradients.give(x, infinite);
    });
    return same;
  }
  bool overflows = true;
};

}  // namespace

TEST_CASE("gradients: what is not finite ends a run in its iteration, with what may help") {
  const auto error_of_step = [](Task& task, const std::shared_ptr<const LoadedBatch>& batch) {
    Trainer trainer(task, options_of(1), {});
    return testing::error_of([&] { trainer.step([&] { return batch; }); });
  };
  OverflowingLayers overflowing;
  CHECK(error_of_step(overflowing, batch_of(0, 1, 12)) ==
        "iteration 1: a gradient is not finite; a lower lr, warmup or grad_clip may help");
  Layers layers;
  const auto batch = std::make_shared<LoadedBatch>(*batch_of(0, 1, 12));
  Tensor input = batch->tensors.at("input");
  input.data_as<double>()[17] = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(error_of_step(layers, batch),
             testing::Matches("iteration 1: the loss is -?nan; a lower lr, warmup or grad_clip may help"));
  CHECK(error_of_step(layers, batch_of(0, 1, 12)) == "");
}

TEST_CASE("gradients: in fp16 overflows lower the loss scale and change no weight, until it is below the least") {
  OverflowingLayers task({}, DType::fp16);
  TrainerOptions options = options_of(1);
  options.loss_scale = {.initial_loss_scale = 16, .min_loss_scale = 4};
  Trainer trainer(task, options, {});
  const auto step = [&] { return trainer.step([] { return batch_of(0, 1, 12, DType::fp32); }); };
  const std::vector<double> begin = weights_of(task.parameters());
  for (const double scale : {16, 8}) {
    const StepResult result = step();
    CHECK_FALSE(result.applied);
    CHECK(result.loss_scale == scale);
    CHECK(result.next_loss_scale == scale / 2);
    CHECK(std::isfinite(result.loss));
  }
  CHECK(weights_of(task.parameters()) == begin);
  CHECK(trainer.state().at("updates") == 0);
  CHECK(trainer.state().at("applied_samples") == 0);
  task.overflows = false;
  CHECK(step().applied);
  CHECK(weights_of(task.parameters()) != begin);
  CHECK(trainer.state().at("updates") == 1);
  CHECK(trainer.state().at("applied_samples") == 12);
  task.overflows = true;
  CHECK(testing::error_of([&] { step(); }) ==
        "iteration 4: fp16 gradients overflow at every loss scale; use amp_mode bf16");
}

TEST_CASE("gradients: replicas that differ are named") {
  const auto train = [](bool broken) {
    run_ranks({.ranks = 3}, [&](const Communicator& world) {
      Layers task;
      const Trainer trainer(task, options_of(1), Parallel::start(world, {.dp = 3}, "dp"));
      if (broken && world.rank() == 2) task.parameters().weight(task.parameters().named()[2]).data_as<double>()[7] += 1;
      trainer.check_replicas();
    });
  };
  train(false);
  CHECK_THROWS_WITH(train(true), ContainsSubstring("the replicas of layer1.weight on ranks 0 and 2 differ"));
}

TEST_CASE("gradients: the first rank's weights become those of all") {
  Findings findings;
  run_ranks({.ranks = 2}, [&](const Communicator& world) {
    Layers task;
    if (world.rank() == 1) task.parameters().weight(task.parameters().named()[0]).data_as<double>()[0] = 42;
    const Trainer trainer(task, options_of(1), Parallel::start(world, {.dp = 2}, "dp"));
    findings.expect(task.parameters().weights().to_vector()[0] != 42, "weights of rank 1");
    trainer.check_replicas();
  });
  CHECK(findings.wrong() == "");
}

}  // namespace isobar
