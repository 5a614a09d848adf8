// Layouts of ranks: whatever shares a model and its optimizer among them, a step is the step of one rank, and files are
// the files of one rank.
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/train/trainer.h"
#include "comm/gradients.h"
#include "comm/thread_ranks.h"
#include "comm/whole_tensors.h"
#include "engine/files/reader.h"
#include "engine/tape.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/findings.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::Findings;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

constexpr std::int64_t kTokens = 6, kBatch = 12, kParts = 2;

struct Layout {
  std::int64_t dp = 1, tp = 1, cp = 1;
  bool sequence = false, shard_optimizer = false;
  std::size_t bucket_bytes = 3000;
  std::int64_t shards = ExchangeOptions::kAll;  // of a sharded optimizer

  ExchangeOptions exchange() const { return {.bucket_bytes = bucket_bytes, .shards = shard_optimizer ? shards : 1}; }
  int ranks() const { return static_cast<int>(dp * tp * cp); }
  std::string text() const {
    return concat("dp ", dp, ", tp ", tp, ", cp ", cp, sequence ? ", sequence parallel" : "",
                  shard_optimizer ? concat(", sharded optimizer over ", shards) : "", ", buckets of ", bucket_bytes);
  }
};

Parallel start(const Communicator& world, const Layout& layout) {
  Parallel parallel =
      Parallel::start(world, {.dp = layout.dp, .tp = layout.tp, .cp = layout.cp}, "tp-cp-dp", layout.exchange());
  parallel.sequence = layout.sequence;
  return parallel;
}

// A model without a network: the gradient of element i of a tensor is a sum, over samples and tokens, of a function of
// i, of the sample, of the token and of the weight, which a rank computes of what it has. Its parameters are shared in
// every way there is, some of them unevenly.
class Shared : public Task {
 public:
  // conv_order: in memory, of the weights of convolutions.
  Shared(const Parallel& parallel, DType activation, MemoryOrder conv_order = MemoryOrder::channels_last)
      : parallel_(parallel) {
    const auto part = [&](std::int64_t total, std::int64_t unit = 1) {
      const Part mine = part_of(total / unit, parallel.tp.rank(), parallel.tp.size());
      return std::pair(mine.begin * unit, mine.end * unit);
    };
    const auto rows = [&](std::pair<std::int64_t, std::int64_t> p) { return Shard{0, p.first, p.second}; };
    const auto columns = [&](std::pair<std::int64_t, std::int64_t> p) { return Shard{1, p.first, p.second}; };
    constexpr bool kDecays = true;
    add({"embed"}, {40, 9}, kDecays, Sharing::copy);
    add({"q.weight", "k.weight", "v.weight"}, {10, 9}, kDecays, Sharing::shard, rows(part(10, 2)));
    add({"q.bias", "k.bias", "v.bias"}, {10}, false, Sharing::shard, rows(part(10, 2)));
    add({"proj.weight"}, {9, 10}, kDecays, Sharing::shard, columns(part(10, 2)));
    add({"proj.bias"}, {9}, false, Sharing::copy_of_partial);
    add({"norm.weight"}, {30}, false, Sharing::copy_of_partial);
    add({"fc1.weight"}, {23, 9}, kDecays, Sharing::shard, rows(part(23)));
    add({"fc2.weight"}, {9, 23}, kDecays, Sharing::shard, columns(part(23)));
    add({"deep"}, {2, 7, 3}, kDecays, Sharing::shard, columns(part(7)));
    add({"few"}, {2, 4}, false, Sharing::shard, rows(part(2)));  // of three ranks one has none
    add({"head"}, {9}, false, Sharing::copy);
    add({"conv.weight"}, {6, 5, 3, 2}, kDecays, Sharing::copy, {}, conv_order);
    add({"up.weight"}, {7, 3, 4}, kDecays, Sharing::shard, rows(part(7)), conv_order);
    unread_ = add({"unread"}, {5}, kDecays, Sharing::copy);
    parameters_.allocate(activation, Device{}, 3, parallel.bucket_plan());
  }

  // Makes the first gradient of this tensor, of this sample alone, infinite.
  void plant_infinity(std::string name, double sample) {
    bad_name_ = std::move(name);
    bad_sample_ = sample;
  }

  // A loss whose gradient is larger overflows.
  void set_largest_gradient(double largest) { largest_ = largest; }

  std::string network() const override { return "shared"; }
  Parameters& parameters() override { return parameters_; }
  const Parameters& parameters() const override { return parameters_; }
  Tensor loss(const Batch& batch, const Pass&) const override {
    const std::vector<double> samples = batch.at("sample").to_vector();
    Tensor y = Tensor::zeros({1}, parameters_.dtype(), Device{});
    for (std::size_t i = 0; i < handles_.size(); ++i)
      if (handles_[i].handle != unread_) y = add_term(y, handles_[i], samples);
    return y;
  }
  std::unique_ptr<Metrics> metrics() const override { return nullptr; }
  void score(const Batch&, Metrics&) const override {}
  std::vector<Picture> pictures(const Batch&, std::int64_t) const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  struct Handle {
    int handle = 0;
    std::size_t named = 0, names = 0;  // in parameters().named()
    Sharing sharing = Sharing::copy;
  };

  int add(std::vector<std::string> names, Shape shape, bool decay, Sharing sharing, Shard shard = {},
          MemoryOrder order = MemoryOrder::as_in_files) {
    handles_.push_back({0, named_, names.size(), sharing});
    named_ += names.size();
    return handles_.back().handle = parameters_.add({.names = std::move(names),
                                                     .shape = std::move(shape),
                                                     .init = {.kind = Init::Kind::normal, .value = 0.5},
                                                     .decay = decay,
                                                     .compute_copy = decay,
                                                     .sharing = sharing,
                                                     .shard = shard,
                                                     .order = order});
  }

  // The tokens that this rank computes the gradient of.
  Part tokens_of(Sharing sharing) const {
    const Part band = part_of(kTokens, parallel_.cp.rank(), parallel_.cp.size());
    if (sharing != Sharing::copy_of_partial || !parallel_.sequence) return band;
    const Part own = part_of(band.size(), parallel_.tp.rank(), parallel_.tp.size());
    return {band.begin + own.begin, band.begin + own.end};
  }

  // In the whole tensor of a file.
  static std::int64_t index_in_full(const NamedParameter& p, std::int64_t i) {
    const Shape whole = shape_in_memory(p.full_shape, p.order);
    std::int64_t index = 0, factor = 1;
    for (std::size_t axis = p.shape.size(); axis-- > 0;) {
      const bool is_cut = static_cast<int>(axis) == p.shard.axis;
      index += (i % p.shape[axis] + (is_cut ? p.shard.begin : 0)) * factor;
      i /= p.shape[axis];
      factor *= whole[axis];
    }
    return position_in_file(p.full_shape, p.order, index);
  }

  // Of the mean over the samples.
  std::vector<double> gradient(const Handle& h, const std::vector<double>& weights,
                               const std::vector<double>& samples) const {
    const Part tokens = tokens_of(h.sharing);
    std::vector<double> values;
    for (std::size_t n = h.named; n < h.named + h.names; ++n) {
      const NamedParameter& p = parameters_.named()[n];
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        const double weight = weights[values.size()];
        double sum = 0;
        for (const double sample : samples) {
          for (std::int64_t token = tokens.begin; token < tokens.end; ++token)
            sum += std::sin(0.7 * static_cast<double>(index_in_full(p, i)) + 2.0 * static_cast<double>(n) +
                            1.3 * sample + 0.37 * static_cast<double>(token)) +
                   0.1 * weight;
          if (p.name == bad_name_ && sample == bad_sample_ && i == 0) sum = std::numeric_limits<double>::infinity();
        }
        values.push_back(sum / static_cast<double>(samples.size()));
      }
    }
    return values;
  }

  Tensor add_term(const Tensor& before, const Handle& h, const std::vector<double>& samples) const {
    const Tensor x = parameters_.get(h.handle);
    Tensor y = Tensor::zeros({1}, before.dtype(), Device{});
    Tape::record("term", {&before, &x}, {}, {&y},
                 [this, h, samples, first = Target(before), target = Target(x), values = x.detach()](
                     Gradients& gradients, const std::vector<Tensor>& dy) {
                   std::vector<double> g = gradient(h, values.to_vector(), samples);
                   const double upstream = dy[0].item();
                   for (double& value : g)
                     value = upstream > largest_ ? std::numeric_limits<double>::infinity() : value * upstream;
                   Gradients::Slot slot = gradients.slot(target);
                   if (slot.mode == Grad::accumulate) {
                     const std::vector<double> held = slot.tensor.to_vector();
                     for (std::size_t i = 0; i < g.size(); ++i) g[i] += held[i];
                   }
                   slot.tensor.set_values(g);
                   gradients.give(first, dy[0]);
                 });
    return y;
  }

  const Parallel& parallel_;
  Parameters parameters_;
  std::vector<Handle> handles_;
  std::size_t named_ = 0;
  int unread_ = 0;
  std::string bad_name_;
  double bad_sample_ = 0, largest_ = std::numeric_limits<double>::infinity();
};

struct Setting {
  double grad_clip = 0.05;
  DType activation = DType::fp64;
  MemoryOrder conv_order = MemoryOrder::channels_last;
};

// One rank of a layout, with its part of a model.
struct Rank {
  Rank(const Communicator& world, const Layout& layout, const Setting& setting = {})
      : parallel(start(world, layout)),
        task(parallel, setting.activation, setting.conv_order),
        trainer(task,
                {.batch = {.global_batch_size = kBatch, .grad_accumulation = kParts},
                 .optimizer =
                     {.kind = OptimizerKind::adamw, .eps = 1e-3, .weight_decay = 0.1, .grad_clip = setting.grad_clip},
                 .schedule = {.lr = 0.05}},
                parallel) {}

  StepResult step() {
    return trainer.step([&] {
      const std::int64_t first = kBatch / kParts * part++, dp = parallel.dp.size();
      std::vector<double> numbers;
      for (std::int64_t i = parallel.dp.rank(); i < kBatch / kParts; i += dp)
        numbers.push_back(static_cast<double>(first + i));
      Tensor samples = Tensor::empty({std::ssize(numbers)}, DType::fp64, Device{});
      samples.set_values(numbers);
      auto batch = std::make_shared<LoadedBatch>();
      batch->tensors = {{"sample", samples}};
      return batch;
    });
  }

  FlatBuffers weights() { return {{"", task.parameters().weights(), {}}}; }
  void write(const fs::path& folder) {
    if (parallel.is_first()) fs::create_directories(folder);
    write_whole(folder / "model", task.parameters(), weights(), {{"of", "a test"}}, parallel.world);
    trainer.write_optimizer(folder / "optimizer");
  }
  void read(const fs::path& folder) {
    read_flat(folder / "model", task.parameters(), weights());
    task.parameters().round_to_compute();
    trainer.read_optimizer(folder / "optimizer");
  }

  const Parallel parallel;
  Shared task;
  Trainer trainer;
  std::int64_t part = 0;
};

// Three steps; the files are written to `folder`. The gradients' norms.
std::vector<double> three_steps(const Communicator& world, const Layout& layout, const Setting& setting,
                                const fs::path& folder) {
  Rank rank(world, layout, setting);
  std::vector<double> norms;
  for (int i = 0; i < 3; ++i) norms.push_back(rank.step().grad_norm);
  rank.trainer.check_replicas();
  rank.write(folder);
  if (!layout.shard_optimizer)  // else a rank has the sums of its slices only
    write_whole(folder / "gradients", rank.task.parameters(), {{"", rank.task.parameters().grads(), {}}}, {}, world);
  return norms;
}

// The largest difference between two files' tensors, relative to the tensor's largest element; the tensor's name.
std::pair<double, std::string> largest_difference(const fs::path& a, const fs::path& b) {
  const SafetensorsFile x(a), y(b);
  std::pair<double, std::string> worst;
  if (x.tensors().size() != y.tensors().size()) return {1, "number of tensors"};
  for (const TensorBytes& tensor : x.tensors()) {
    const TensorBytes& other = y.at(tensor.info.name);
    if (tensor.info.shape != other.info.shape) return {1, tensor.info.name};
    std::vector<double> p(static_cast<std::size_t>(elements_of(tensor.info))), q(p.size());
    copy_elements(tensor, DType::fp64, reinterpret_cast<std::byte*>(p.data()));
    copy_elements(other, DType::fp64, reinterpret_cast<std::byte*>(q.data()));
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      difference = std::max(difference, std::abs(p[i] - q[i]));
      largest = std::max(largest, std::abs(p[i]));
    }
    if (!(difference <= worst.first * largest)) worst = {difference / largest, tensor.info.name};
  }
  return worst;
}

const std::vector<Layout> kLayouts = {{.dp = 2},
                                      {.tp = 2},
                                      {.tp = 3, .sequence = true},
                                      {.dp = 2, .tp = 2},
                                      {.dp = 3, .tp = 2, .sequence = true},
                                      {.dp = 2, .cp = 3},
                                      {.dp = 2, .tp = 2, .cp = 2, .sequence = true},
                                      {.dp = 2, .tp = 3}};

// A sharded optimizer dealt out over groups of fewer ranks, with replicas beyond.
const std::vector<Layout> kGroupedLayouts = {{.dp = 6, .shard_optimizer = true, .shards = 2},
                                             {.dp = 6, .shard_optimizer = true, .bucket_bytes = 1, .shards = 3},
                                             {.dp = 2, .tp = 2, .cp = 2, .shard_optimizer = true, .shards = 2},
                                             {.dp = 6, .tp = 2, .sequence = true, .shard_optimizer = true, .shards = 3},
                                             {.dp = 2, .tp = 3, .cp = 2, .shard_optimizer = true, .shards = 2},
                                             {.dp = 3, .tp = 2, .shard_optimizer = true, .shards = 3}};

}  // namespace

TEST_CASE("layouts: gradients, norms, moments and weights are those of one rank") {
  const TemporaryFolder folder;
  const std::vector<double> serial = three_steps({}, {}, {}, folder / "serial");
  std::vector<Layout> layouts = kLayouts;
  layouts.insert(layouts.end(), kGroupedLayouts.begin(), kGroupedLayouts.end());
  for (Layout layout : layouts) {
    for (const bool is_sharded : {false, true}) {
      if (!is_sharded && layout.shard_optimizer) continue;
      layout.shard_optimizer = is_sharded;
      INFO(layout.text());
      Findings findings;
      fs::remove_all(folder / "run");
      run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
        const std::vector<double> norms = three_steps(world, layout, {}, folder / "run");
        for (std::size_t i = 0; i < norms.size(); ++i)
          findings.expect(std::abs(norms[i] - serial[i]) <= 1e-13 * serial[i],
                          concat("norm ", i, " is ", norms[i], ", not ", serial[i]));
      });
      CHECK(findings.wrong() == "");
      for (const char* file : {"gradients", "model", "optimizer"}) {
        if (!fs::exists(folder / "run" / file)) continue;
        const auto [difference, name] = largest_difference(folder / "serial" / file, folder / "run" / file);
        INFO(file << ": " << name);
        CHECK(difference < 1e-12);
      }
    }
  }
}

TEST_CASE("layouts: without clipping a sharded optimizer and other buckets make the same bits") {
  const TemporaryFolder folder;
  for (const DType activation : {DType::fp64, DType::bf16, DType::fp16}) {
    for (Layout layout : {Layout{.dp = 3}, Layout{.dp = 2, .tp = 2, .cp = 2, .sequence = true}}) {
      std::vector<std::string> models, optimizers;
      for (const bool is_sharded : {false, true}) {
        for (const std::size_t bucket_bytes : {1, 3000, 1 << 20}) {
          layout.shard_optimizer = is_sharded;
          layout.bucket_bytes = bucket_bytes;
          run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
            three_steps(world, layout, {.grad_clip = 0, .activation = activation}, folder / "run");
          });
          models.push_back(read_file(folder / "run/model"));
          optimizers.push_back(read_file(folder / "run/optimizer"));
          INFO(name_of(activation) << ", " << layout.text());
          CHECK((models.back() == models.front()));
          CHECK((optimizers.back() == optimizers.front()));
        }
      }
    }
  }
}

TEST_CASE("layouts: checkpoints are the same files, whichever layout writes and reads them") {
  const TemporaryFolder folder;
  const std::vector<Layout> layouts = {{},
                                       {.dp = 3, .shard_optimizer = true},
                                       {.tp = 2},
                                       {.dp = 2, .tp = 3, .sequence = true, .shard_optimizer = true},
                                       {.dp = 2, .cp = 2, .shard_optimizer = true, .bucket_bytes = 1},
                                       {.dp = 4, .tp = 2, .shard_optimizer = true, .shards = 2},
                                       {.dp = 2, .tp = 2, .cp = 2}};
  const auto name = [](std::size_t i) { return std::to_string(i); };
  for (std::size_t i = 0; i < layouts.size(); ++i)
    run_ranks({.ranks = layouts[i].ranks()},
              [&](const Communicator& world) { three_steps(world, layouts[i], {}, folder / name(i)); });
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    run_ranks({.ranks = layouts[i].ranks()}, [&](const Communicator& world) {
      Rank rank(world, layouts[i]);
      for (std::size_t from = 0; from < layouts.size(); ++from) {
        rank.read(folder / name(from));
        rank.trainer.check_replicas();
        rank.write(folder / concat("again", i, from));
      }
    });
    for (std::size_t from = 0; from < layouts.size(); ++from) {
      for (const char* file : {"model", "optimizer"}) {
        INFO(file << " of " << layouts[from].text() << ", by " << layouts[i].text());
        CHECK((read_file(folder / concat("again", i, from) / file) == read_file(folder / name(from) / file)));
      }
    }
  }
}

TEST_CASE("layouts: the order of a weight in memory changes no file") {
  const TemporaryFolder folder;
  const Setting as_in_files{.grad_clip = 0, .conv_order = MemoryOrder::as_in_files}, last{.grad_clip = 0};
  for (const Layout& layout : {Layout{}, Layout{.dp = 2, .tp = 2}, Layout{.dp = 3, .shard_optimizer = true},
                               Layout{.dp = 2, .tp = 3, .shard_optimizer = true, .bucket_bytes = 1}}) {
    INFO(layout.text());
    run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
      three_steps(world, layout, as_in_files, folder / "as_in_files");
      three_steps(world, layout, last, folder / "last");
    });
    // Each goes on from the files of the other.
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      for (const auto& [setting, from] : {std::pair(as_in_files, "last"), std::pair(last, "as_in_files")}) {
        Rank rank(world, {.dp = 2, .shard_optimizer = true}, setting);
        rank.read(folder / from);
        rank.step();
        rank.write(folder / concat("after_", from));
      }
    });
    for (const char* file : {"model", "optimizer"}) {
      CHECK((read_file(folder / "as_in_files" / file) == read_file(folder / "last" / file)));
      CHECK((read_file(folder / "after_as_in_files" / file) == read_file(folder / "after_last" / file)));
    }
  }
}

TEST_CASE("layouts: a run that goes on from its files has the bits of one that did not stop") {
  const TemporaryFolder folder;
  for (const Layout& layout : {Layout{}, Layout{.dp = 3, .shard_optimizer = true},
                               Layout{.dp = 2, .tp = 2, .cp = 2, .sequence = true, .shard_optimizer = true}}) {
    INFO(layout.text());
    run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
      Rank whole(world, layout), resumed(world, layout);
      for (int i = 0; i < 2; ++i) whole.step();
      whole.write(folder / "stop");
      world.barrier();  // the first rank's file is whole
      resumed.read(folder / "stop");
      resumed.trainer.set_state(whole.trainer.state());
      resumed.part = whole.part;
      for (int i = 0; i < 2; ++i) {
        whole.step();
        resumed.step();
      }
      whole.write(folder / "whole");
      resumed.write(folder / "resumed");
    });
    for (const char* file : {"model", "optimizer"})
      CHECK((read_file(folder / "whole" / file) == read_file(folder / "resumed" / file)));
  }
}

TEST_CASE("layouts: an infinity in one rank's gradient makes all skip that update, and halves the loss scale once") {
  for (Layout layout : {Layout{.dp = 2, .tp = 2, .cp = 2, .sequence = true}, Layout{.dp = 2, .tp = 2}}) {
    for (const bool is_sharded : {false, true}) {
      layout.shard_optimizer = is_sharded;
      for (const char* name : {"embed", "k.weight", "fc2.weight", "norm.weight"}) {
        INFO(layout.text() << ": " << name);
        Findings findings;
        run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
          Rank rank(world, layout, {.activation = DType::fp16});
          // In the second step; of one tensor-parallel rank only. Of what all hold the first one's gradient counts.
          const bool is_copy = name == std::string("embed") || (name == std::string("norm.weight") && !layout.sequence);
          if (rank.parallel.tp.rank() == (is_copy ? 0 : 1) && rank.parallel.cp.rank() == 0)
            rank.task.plant_infinity(name, static_cast<double>(kBatch + 3));
          findings.expect(rank.step().applied, "the first update");
          const std::vector<double> before = rank.task.parameters().weights().to_vector();
          findings.expect(!rank.step().applied, "the second update was made");
          findings.expect(rank.task.parameters().weights().to_vector() == before, "weights moved");
          findings.expect(rank.trainer.state()["loss_scale"] == 32768.0, "the loss scale");
          findings.expect(rank.step().applied, "the third update");
          findings.expect(rank.trainer.state()["loss_scale"] == 32768.0, "the loss scale afterwards");
          findings.expect(rank.trainer.state()["updates"] == 2, "updates");
          rank.trainer.check_replicas();
        });
        CHECK(findings.wrong() == "");
      }
    }
  }
}

TEST_CASE("layouts: a sharded optimizer has moments of its slices only") {
  const auto count = [](const Layout& layout, std::vector<std::int64_t>& elements, std::int64_t& whole) {
    run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
      const Parallel parallel = start(world, layout);
      Shared task(parallel, DType::fp64);
      const GradientReducer reducer(task.parameters(), parallel);
      const Optimizer optimizer(task.parameters(), {}, reducer.owned(), reducer.add_up());
      std::vector<double> all(static_cast<std::size_t>(world.size()));
      all[static_cast<std::size_t>(world.rank())] = static_cast<double>(optimizer.m().numel());
      world.all_reduce(all);
      if (!parallel.is_first()) return;
      elements.assign(all.begin(), all.end());
      whole = task.parameters().weights().numel();
    });
  };
  std::vector<std::int64_t> elements;
  std::int64_t whole = 0;
  for (Layout layout : {Layout{.dp = 4}, Layout{.dp = 2, .cp = 2}}) {
    layout.shard_optimizer = true;
    count(layout, elements, whole);
    INFO(layout.text());
    CHECK(std::accumulate(elements.begin(), elements.end(), std::int64_t{0}) == whole);
    for (const std::int64_t own : elements) CHECK(own == whole / 4);
  }
}

TEST_CASE("layouts: what a step exchanges") {
  Findings findings;
  for (Layout layout : {Layout{.dp = 2}, Layout{.dp = 2, .tp = 2, .sequence = true}}) {
    for (const bool is_sharded : {false, true}) {
      layout.shard_optimizer = is_sharded;
      run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
        Rank rank(world, layout);
        const GradientReducer same(rank.task.parameters(), rank.parallel);
        const auto norm = static_cast<std::int64_t>(8 * same.owned().size());
        const CommLedger before = world.ledger();
        for (int i = 0; i < 2; ++i) rank.step();
        const auto bytes = [&](const char* group, Verb verb) {
          return (world.ledger().of(group, verb).bytes - before.of(group, verb).bytes) / 2;
        };
        // fp64: of the whole world what tensor-parallel ranks all hold, of the others the rest.
        std::int64_t partial = 0;
        for (const auto& [sharing, range, frozen, tied] : rank.task.parameters().sections())
          if (sharing != Sharing::shard && layout.tp > 1) partial += 8 * range.size();
        const std::int64_t rest = 8 * rank.task.parameters().grads().numel() - partial;
        if (is_sharded) {
          findings.expect(bytes("dp-cp", Verb::reduce_scatter) == rest, "reduce_scatter");
          findings.expect(bytes("dp-cp", Verb::all_gather) == rest, "all_gather");
          findings.expect(bytes("world", Verb::reduce_scatter) == partial, "reduce_scatter over all");
          findings.expect(bytes("world", Verb::all_gather) == partial, "all_gather over all");
          findings.expect(bytes("dp-cp", Verb::all_reduce) == 0, "all_reduce");
          findings.expect(bytes("world", Verb::all_reduce) == norm, "the norm");
        } else {
          findings.expect(bytes("dp-cp", Verb::all_reduce) == rest, "all_reduce");
          findings.expect(bytes("world", Verb::all_reduce) == partial + (layout.tp > 1 ? norm : 0), "and the norm");
          findings.expect(bytes("tp", Verb::all_reduce) == 0, "over tp");
        }
      });
      INFO(layout.text());
      CHECK(findings.wrong() == "");
    }
  }
}

TEST_CASE("layouts: replicas stay equal where groups of other ranks begin their sums at another one") {
  std::vector<Layout> layouts = kGroupedLayouts;
  for (const auto& [dp, tp, cp] : {std::array{3, 2, 1}, {4, 2, 1}, {2, 3, 1}, {3, 3, 1}, {2, 2, 2}})
    for (const bool sequence : {false, true})
      for (const bool is_sharded : {false, true})
        layouts.push_back({.dp = dp, .tp = tp, .cp = cp, .sequence = sequence, .shard_optimizer = is_sharded});
  for (const DType activation : {DType::fp32, DType::fp64}) {
    for (const Layout& layout : layouts) {
      INFO(layout.text() << ", " << name_of(activation));
      run_ranks({.ranks = layout.ranks(), .turns_sums = true}, [&](const Communicator& world) {
        Rank rank(world, layout, {.activation = activation});
        for (int i = 0; i < 3; ++i) {
          rank.step();
          rank.trainer.check_replicas();
        }
      });
    }
  }
}

TEST_CASE("layouts: the first loss scale without an overflow does not depend on the number of ranks") {
  for (const Layout& layout : {Layout{}, Layout{.dp = 2}, Layout{.dp = 4}, Layout{.dp = 6}, Layout{.tp = 2},
                               Layout{.cp = 2}, Layout{.dp = 2, .tp = 2, .cp = 2, .sequence = true}}) {
    INFO(layout.text());
    Findings findings;
    run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
      Rank rank(world, layout, {.activation = DType::fp16});
      rank.task.set_largest_gradient(3000);
      int steps = 0;
      StepResult result;
      do result = rank.step();
      while (!result.applied && ++steps < 10);
      findings.expect(result.loss_scale == 4096, concat("the loss scale is ", result.loss_scale));  // two parts
      findings.expect(result.gradient_scale == 4096 * static_cast<double>(layout.dp), "what the sums carry");
    });
    CHECK(findings.wrong() == "");
  }
}

TEST_CASE("layouts: what tensor-parallel ranks all hold starts alike") {
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const Parallel parallel = start(world, {.dp = 2, .tp = 2});
    Shared task(parallel, DType::fp64);
    if (world.rank() == 3)
      for (const NamedParameter& p : task.parameters().named()) task.parameters().weight(p).data_as<double>()[0] = 42;
    const Trainer trainer(task, {}, parallel);
    trainer.check_replicas();
    for (const NamedParameter& p : task.parameters().named())
      findings.expect(task.parameters().weight(p).to_vector()[0] != 42, p.name);
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("layouts: replicas among tensor-parallel ranks are compared too, moments included") {
  // One rank's buffer is changed where it holds this tensor.
  const auto sentence = [](std::int64_t shards, int where, const char* name) {
    std::string found;
    run_ranks({.ranks = 8}, [&](const Communicator& world) {
      const Parallel parallel =
          start(world, {.dp = 4, .tp = 2, .shard_optimizer = shards != 1, .bucket_bytes = 1 << 20, .shards = shards});
      Shared task(parallel, DType::fp64);
      const GradientReducer reducer(task.parameters(), parallel);
      const Optimizer optimizer(task.parameters(), {}, reducer.owned());
      const FlatBuffer moments{"v.", optimizer.v(), optimizer.ranges()};
      for (const NamedParameter& p : task.parameters().named()) {
        const HeldPart part = held_part(moments, p);
        if (world.rank() == where && p.name == name && part.size() > 0)
          values_of(moments, part).data_as<double>()[0] = 1e-9;
      }
      const FlatBuffers all{{"", task.parameters().weights(), {}}, {"m.", optimizer.m(), optimizer.ranges()}, moments};
      const std::string mine = difference_of_replicas(task.parameters(), all, world);
      if (world.rank() == 2) found = mine;
    });
    return found;
  };
  CHECK(sentence(1, 3, "absent").empty());
  CHECK(sentence(1, 3, "norm.weight") == "the replicas of v.norm.weight on ranks 0 and 3 differ");
  CHECK(sentence(1, 3, "k.weight") == "the replicas of v.k.weight on ranks 1 and 3 differ");
  CHECK(sentence(1, 1, "fc2.weight") == "the replicas of v.fc2.weight on ranks 1 and 3 differ");
  CHECK(sentence(2, 0, "embed") == "the replicas of v.embed on ranks 0 and 4 differ");  // the same slice
  CHECK(sentence(2, 1, "q.weight") == "the replicas of v.q.weight on ranks 1 and 5 differ");
  CHECK(sentence(ExchangeOptions::kAll, 1, "q.weight").empty());  // nobody else has it
}

TEST_CASE("whole tensors: the runs of a part, by hand") {
  const auto runs = [](const Shape& shape, const Shard& shard, FlatRange elements) {
    std::string text;
    for_each_run(shape, shard, elements, [&](std::int64_t in_full, std::int64_t in_part, std::int64_t length) {
      text += concat(in_full, ":", in_part, "+", length, " ");
    });
    return text;
  };
  CHECK(runs({4, 6}, {0, 0, 4}, {0, 24}) == "0:0+24 ");
  CHECK(runs({4, 6}, {1, 0, 6}, {3, 20}) == "3:0+17 ");
  CHECK(runs({4, 6}, {0, 1, 3}, {0, 12}) == "6:0+12 ");
  CHECK(runs({4, 6}, {1, 2, 5}, {0, 12}) == "2:0+3 8:3+3 14:6+3 20:9+3 ");
  CHECK(runs({4, 6}, {1, 2, 5}, {2, 7}) == "4:0+1 8:1+3 14:4+1 ");
  CHECK(runs({2, 3, 2}, {1, 1, 2}, {1, 4}) == "3:0+1 8:1+2 ");
  CHECK(runs({4, 6}, {1, 2, 2}, {0, 0}) == "");
}

TEST_CASE("whole tensors: what nobody holds, and a file that cannot be written, end all ranks") {
  const auto write = [](const fs::path& path, bool with_hole) {
    run_ranks({.ranks = 3, .timeout_seconds = 60}, [&](const Communicator& world) {
      Parameters parameters;
      parameters.add({.names = {"w"},
                      .shape = {3, 4},
                      .init = {},
                      .sharing = Sharing::shard,
                      .shard = {1, world.rank(), world.rank() < 2 || with_hole ? world.rank() + 1 : 4}});
      parameters.allocate(DType::fp64, Device{}, 1);
      write_whole(path, parameters, {{"", parameters.weights(), {}}}, {}, world);
    });
  };
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(write(folder / "file", true), ContainsSubstring("the ranks hold 9 of the 12 elements of w"));
  CHECK(!fs::exists(folder / "file"));
  write(folder / "file", false);
  CHECK(SafetensorsFile(folder / "file").at("w").info.shape == Shape{3, 4});
  CHECK_THROWS_WITH(write(folder / "absent/file", false), ContainsSubstring("absent"));

  // A disk that is full while the others give their parts of the next tensor.
  const testing::FileSizeLimit full_disk(6000);
  const auto save = [&] {
    run_ranks({.ranks = 4, .timeout_seconds = 60},
              [&](const Communicator& world) { Rank(world, {.dp = 2, .tp = 2}).write(folder / "full"); });
  };
  CHECK_THROWS_WITH(save(), ContainsSubstring("rank 0: ") && ContainsSubstring("File too large"));
}

}  // namespace isobar
