// Gradients of a small network, summed over ranks by NCCL's backend while the backward pass still gives work to the
// device: the sums, and from the stand-in's trace when each bucket was issued.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "comm/gradients.h"
#include "comm/ops.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "lab/stand_ins/nccl/trace.h"
#include "tests/harness/findings.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::Findings;

constexpr int kRanks = 3, kLayers = 5;
constexpr std::int64_t kWidth = 8;

class Trace {
 public:
  Trace() {
    testing::use_stand_in();
    (void)make_nccl_id();  // loads it
    library_ = ::dlopen((std::string(testing::kStandIns) + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_NOLOAD);
    ISOBAR_CHECK(library_ != nullptr, "the stand-in was not loaded");
    function<nccl::stand_in::ClearFunction>(nccl::stand_in::kClearName)();
  }
  std::uint64_t tick() const { return function<nccl::stand_in::TickFunction>(nccl::stand_in::kTickName)(); }
  // Of the operations of a rank of the world in the order of its calls.
  std::vector<nccl::stand_in::TraceEntry> of(int rank) const {
    std::vector<nccl::stand_in::TraceEntry> entries(1000);
    entries.resize(function<nccl::stand_in::TraceFunction>(nccl::stand_in::kTraceName)(entries.data(), 1000));
    std::erase_if(entries, [&](const auto& entry) { return entry.rank != rank; });
    return entries;
  }

 private:
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(::dlsym(library_, name));
  }
  void* library_ = nullptr;
};

// A chain of products; rank r looks at rows of its own.
struct Chain {
  explicit Chain(Device device, const BucketPlan& plan = {.bytes = 1}) {
    for (int i = 0; i < kLayers; ++i)
      weights.push_back(parameters.add({.names = {concat("layer", i)},
                                        .shape = {kWidth, kWidth},
                                        .init = {.kind = Init::Kind::normal, .value = 0.5},
                                        .decay = true}));
    parameters.allocate(DType::fp32, device, 3, plan);
  }

  // One backward pass, its gradients reduced or not.
  void backward(int rank, Device device, GradientReducer* reducer) {
    std::vector<double> numbers;
    for (int i = 0; i < 4 * kWidth; ++i) numbers.push_back(std::sin(0.7 * (i + 40 * rank)));
    Tensor x = Tensor::empty({4, kWidth}, DType::fp32, device),
           target = Tensor::empty({4, kWidth, 1, 1}, DType::fp32, device);
    x.set_values(numbers);
    std::ranges::reverse(numbers);
    target.set_values(numbers);
    Tape tape;
    if (reducer != nullptr) reducer->begin(tape);
    Tensor loss;
    {
      const TapeScope recording(tape);
      for (const int weight : weights) x = linear(x, parameters.get(weight), Tensor(), {.out_dtype = DType::fp32});
      loss = forecast_loss(x.view({4, kWidth, 1, 1}), target, {});
    }
    parameters.begin_step();
    tape.backward(loss);
  }

  Parameters parameters;
  std::vector<int> weights;
};

}  // namespace

TEST_CASE("nccl gradients: buckets are issued while the backward pass runs, and the sums are right") {
  const Trace trace;
  Findings findings;
  std::mutex mutex;
  std::vector<double> sums;
  std::vector<std::uint64_t> ends(kRanks);
  testing::run_nccl({.ranks = kRanks}, [&](const Communicator& world) {
    const Device device = testing::emulator_of(world.rank());
    Chain chain(device);
    chain.backward(world.rank(), device, nullptr);
    chain.parameters.finish_gradients();
    const std::vector<double> own = chain.parameters.grads().to_vector();
    {
      const std::lock_guard lock(mutex);
      sums.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i];
    }
    world.barrier();
    GradientReducer reducer(chain.parameters, Parallel::start(world, {.dp = kRanks}, "dp"));
    chain.backward(world.rank(), device, &reducer);
    ends[static_cast<std::size_t>(world.rank())] = trace.tick();
    chain.parameters.finish_gradients();
    reducer.finish();
    const std::vector<double> reduced = chain.parameters.grads().to_vector();
    for (std::size_t i = 0; i < sums.size(); ++i)
      findings.expect(std::abs(reduced[i] - sums[i]) <= 1e-6 * (1 + std::abs(sums[i])), concat("gradient ", i));
  });
  CHECK(findings.wrong() == "");
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto operations = trace.of(rank);
    REQUIRE(operations.size() == 1 + kLayers);  // the barrier first
    for (std::size_t i = 1; i < operations.size(); ++i) {
      CHECK(operations[i].operation == concat("all_reduce of ", kWidth * kWidth, " fp32"));
      CHECK(operations[i].ended > operations[i].begun);
      CHECK(operations[i].begun > operations[i].issued);
    }
    CHECK(operations[kLayers - 1].issued < ends[static_cast<std::size_t>(rank)]);
  }
}

namespace {

// What NCCL serves with a ring for each rank, one behind the other.
void check_no_rooted_calls(const Trace& trace) {
  for (int rank = 0; rank < kRanks; ++rank)
    for (const auto& entry : trace.of(rank)) {
      const std::string operation = entry.operation;
      CHECK_FALSE(operation.starts_with("reduce of"));
      CHECK_FALSE(operation.starts_with("broadcast"));
    }
}

}  // namespace

TEST_CASE("nccl gradients: the steps of a sharded optimizer are reduce_scatter and all_gather of equal parts") {
  const Trace trace;
  Findings findings;
  std::mutex mutex;
  std::vector<double> sums;
  testing::run_nccl({.ranks = kRanks}, [&](const Communicator& world) {
    const Device device = testing::emulator_of(world.rank());
    const Parallel parallel =
        Parallel::start(world, {.dp = kRanks}, "dp", {.bucket_bytes = 300, .shards = ExchangeOptions::kAll});
    Chain chain(device, parallel.bucket_plan());
    chain.backward(world.rank(), device, nullptr);
    chain.parameters.finish_gradients();
    const std::vector<double> own = chain.parameters.grads().to_vector();
    {
      const std::lock_guard lock(mutex);
      sums.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i];
    }
    world.barrier();
    GradientReducer reducer(chain.parameters, parallel);
    findings.expect(reducer.buckets() == 3, "two layers a bucket, and the last one");
    chain.backward(world.rank(), device, &reducer);
    chain.parameters.finish_gradients();
    reducer.finish();
    const std::vector<double> reduced = chain.parameters.grads().to_vector();
    for (const auto& [range, factor] : reducer.owned())
      for (auto i = static_cast<std::size_t>(range.first); i < static_cast<std::size_t>(range.end); ++i)
        findings.expect(std::abs(reduced[i] - sums[i]) <= 1e-6 * (1 + std::abs(sums[i])), concat("gradient ", i));
    // Each rank writes its number into what it owns.
    for (const auto& [range, factor] : reducer.owned())
      chain.parameters.weights()
          .slice(range.first, {range.size()})
          .set_values(std::vector<double>(static_cast<std::size_t>(range.size()), 1.0 + world.rank()));
    reducer.share_weights();
    const std::vector<double> weights = chain.parameters.weights().to_vector();
    std::array<std::int64_t, kRanks + 1> of_rank{};
    for (const double weight : weights) ++of_rank.at(static_cast<std::size_t>(weight));
    for (int r = 0; r < kRanks; ++r)
      findings.expect(of_rank.at(static_cast<std::size_t>(r + 1)) * kRanks == std::ssize(weights), "equal parts");
  });
  CHECK(findings.wrong() == "");
  check_no_rooted_calls(trace);
  std::size_t scattered = 0;
  for (const auto& entry : trace.of(0)) scattered += std::string(entry.operation).starts_with("reduce_scatter") ? 1 : 0;
  CHECK(scattered == 3);
}

TEST_CASE("nccl gradients: rows that do not divide travel as equal parts") {
  const Trace trace;
  Findings findings;
  testing::run_nccl({.ranks = kRanks}, [&](const Communicator& world) {
    const Device device = testing::emulator_of(world.rank());
    constexpr std::int64_t kRows = 3 * kRanks + 1;
    Tensor x = Tensor::empty({kRows, kWidth}, DType::fp32, device);
    std::vector<double> values(static_cast<std::size_t>(x.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
    x.set_values(values);
    const Tensor rows = scatter_rows(x, world);
    const Tensor all = gather_rows(rows, kRows, world);
    for (double& value : values) value *= kRanks;
    findings.expect(all.to_vector() == values, "the rows");
    findings.expect(world.ledger().of("world", Verb::all_gather).bytes == 4 * x.numel(), "padding was counted");
  });
  CHECK(findings.wrong() == "");
  check_no_rooted_calls(trace);
  // On the clock of the stand-in: scattered and gathered once, (n - 1) turns each, with the rows that fill up.
  const double ideal = 2 * (kRanks - 1) * 5000;
  for (int rank = 0; rank < kRanks; ++rank) {
    double nanoseconds = 0;
    for (const auto& entry : trace.of(rank)) nanoseconds += static_cast<double>(entry.ended_ns - entry.began_ns);
    CHECK(nanoseconds > 0.4 * ideal);
    CHECK(nanoseconds < 1.1 * ideal);
  }
}

}  // namespace isobar
