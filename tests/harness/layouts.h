// Trains a forecaster on the ranks of a layout, as a run does, and on one rank, to compare the two. Each rank makes its
// part of the model and of every batch, and returns what it holds afterwards. Ranks are threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/dry_run.h"
#include "apps/train/trainer.h"
#include "comm/parallel.h"
#include "comm/thread_ranks.h"
#include "comm/whole_tensors.h"
#include "data/fields/calendar.h"
#include "data/fields/pairs.h"
#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/common/math.h"
#include "kernels/cuda/runtime.h"
#include "models/forecast/forecaster.h"
#include "models/vit/recipe.h"
#include "tests/harness/testing.h"
#include "tests/harness/traffic_formulas.h"

namespace isobar::testing {

using Values = std::vector<double>;

struct Layout {
  int dp = 1, tp = 1, cp = 1;
  ContextForm form = ContextForm::automatic;
  bool sequence = false, shard_optimizer = false;
  std::size_t bucket_bytes = 40'000;  // for 100 000 parameters
  int shards = 0;                     // with a sharded optimizer: ranks that share its state; 0: all of dp x cp
  std::string order = "tp-cp-dp";

  int ranks() const { return dp * tp * cp; }
  ExchangeOptions exchange() const { return {.bucket_bytes = bucket_bytes, .shards = shard_optimizer ? shards : 1}; }
};

inline constexpr ContextForm kForms[] = {ContextForm::all_to_all, ContextForm::gather, ContextForm::ring};

inline std::string to_text(const Layout& layout) {
  return concat("dp ", layout.dp, ", tp ", layout.tp, ", cp ", layout.cp,
                layout.cp > 1 ? concat(", ", name_of_enum(layout.form)) : "",
                layout.sequence ? ", sequence parallel" : "", layout.shard_optimizer ? ", sharded optimizer" : "",
                layout.shards > 0 ? concat(" over ", layout.shards) : "", ", buckets of ", layout.bucket_bytes,
                ", order ", layout.order);
}

// dp, tp and cp with every context form; with tp > 1 each without and with sequence parallel.
inline std::vector<Layout> forms_of(int dp, int tp, int cp) {
  std::vector<Layout> all;
  for (const bool sequence : {false, true})
    for (const ContextForm form : kForms)
      if ((tp > 1 || !sequence) && (cp > 1 || form == kForms[0]))
        all.push_back({.dp = dp, .tp = tp, .cp = cp, .form = form, .sequence = sequence});
  return all;
}

// All layouts of at most `most` ranks.
inline std::vector<Layout> layouts_of(int max_ranks) {
  std::vector<Layout> all;
  for (int dp = 1; dp <= max_ranks; ++dp)
    for (int tp = 1; dp * tp <= max_ranks; ++tp)
      for (int cp = 1; dp * tp * cp <= max_ranks; ++cp)
        for (const Layout& layout : forms_of(dp, tp, cp)) all.push_back(layout);
  return all;
}

// The model and its training. Default: 8 heads of 8 on 9 x 5 patches. The only numbers of ranks above 1 that divide the
// rows are 3 and 9; for the tokens also 5 and 15. Two passes per update, and clipping that takes effect.
struct TrainingSetup {
  std::int64_t embed = 64, heads = 8, patch = 2, height = 18, width = 10, inputs = 3, outputs = 2;
  bool pads = false;  // height and width need not be multiples of the patch; the columns go round the globe
  LossKind loss = LossKind::relative_l2;
  double dropout = 0.1;  // also the drop-path rate
  bool recompute = false;
  std::int64_t rollout = 1;      // steps; of several ones the edges of a state are the data's
  bool recompute_steps = false;  // of a rollout
  bool predicts_change = true;   // false: the loss is computed on rows of patches
  DType dtype = DType::fp64;     // of the activations
  Device device = {};
  std::int64_t samples = 4, parts = 2;  // of a data-parallel rank per pass; passes per update
  int updates = 3;
  double grad_clip = 0.05;
  bool is_scored = false;                              // before the first update
  std::optional<int> infinity_on_rank = std::nullopt;  // in its output's gradient, in the second update
};

// A named tensor as one rank holds it.
struct Held {
  Shape full_shape;
  Shard shard;
  Sharing sharing = Sharing::copy;
  Values values;
};
using HeldTensors = std::map<std::string, Held>;

struct RankValues {
  std::int64_t dp_rank = 0;
  Part rows = {};      // of the picture
  Values losses = {};  // per update; means over the rank's samples
  Values norms = {};   // per update, before clipping
  std::vector<bool> applied = {};
  double loss_scale = 1;                                   // after the last update
  Values output = {};                                      // [B, outputs, rows, width], of the first pass
  HeldTensors initial = {}, gradients = {}, weights = {};  // of the first update; after the last one
  Values scores = {};                                      // sums over the batch of all ranks
  double score_loss = 0;
  std::size_t pictures = 0;
  StepPrediction predicted = {};         // of an update, on shapes
  CommLedger by_formulas = {};           // of an update
  std::vector<CommLedger> counted = {};  // by update
  std::size_t peak_bytes = 0;            // of the first update
  RankHolds holds = {};
};

inline ComputeOptions compute_of(const TrainingSetup& o) {
  ComputeOptions compute{.tf32 = false, .recompute = o.recompute, .seed = 5};
  if (o.dtype == DType::fp64) compute.dtype = ArithmeticType::fp64;
  if (o.dtype == DType::bf16) compute.amp_mode = AmpMode::bf16;
  if (o.dtype == DType::fp16) compute.amp_mode = AmpMode::fp16;
  return compute;
}

inline ForecasterOptions forecaster_options(const TrainingSetup& o) {
  ForecasterOptions options;
  options.network = std::make_shared<VitRecipe>(
      VitOptions{.embed_dim = o.embed, .depth = 2, .num_heads = o.heads, .patch_size = o.patch, .dropout = o.dropout});
  options.forecast.img_size = {{o.height, o.width}};
  options.forecast.pad_grid = o.pads;
  options.forecast.n_in_channels = o.inputs;
  options.forecast.n_out_channels = o.outputs;
  options.forecast.predict_change = o.predicts_change;
  options.forecast.time_features = true;
  options.forecast.loss = o.loss;
  options.forecast.rollout.rollout = o.rollout;
  options.forecast.rollout.recompute_steps = o.recompute_steps;
  if (o.rollout > 1) options.forecast.rollout.boundary_width = 1;
  std::vector<double> weights;
  for (std::int64_t c = 0; c < o.outputs; ++c) weights.push_back(0.5 + static_cast<double>(c));
  options.forecast.channel_weights = weights;
  return options;
}

inline FieldsInfo fields_info(const TrainingSetup& o) {
  FieldsInfo info;
  const auto channels = static_cast<std::size_t>(o.inputs);
  info.channel_names.assign(channels, "c");
  info.statistics = {Values(channels, 0.1), Values(channels, 0.8)};
  for (std::int64_t y = 0; y < o.height; ++y)
    info.row_weights.push_back(0.5 + static_cast<double>(y) / static_cast<double>(o.height - 1));
  for (std::int64_t x = 0; o.pads && x < o.width; ++x)
    info.longitudes.push_back(360 * static_cast<double>(x) / static_cast<double>(o.width));
  return info;
}

// Samples first, first + step, ... of an endless data set; of each one a band of rows.
inline Batch batch_of(const TrainingSetup& o, std::int64_t first, std::int64_t step, std::int64_t count, Part rows) {
  const auto fields = [&](std::int64_t channels, double phase) {
    Values values;
    for (std::int64_t b = 0; b < count; ++b)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t y = rows.begin; y < rows.end; ++y)
          for (std::int64_t x = 0; x < o.width; ++x) {
            const auto sample = static_cast<double>(first + b * step);
            values.push_back(std::sin(phase + 0.9 * sample + 1.3 * static_cast<double>(c) +
                                      0.7 * static_cast<double>(y) + 0.31 * static_cast<double>(x * x)));
          }
    Tensor tensor = Tensor::empty({count, channels, rows.size(), o.width}, DType::fp32, Device{});
    tensor.set_values(values);
    return tensor;
  };
  Tensor time = Tensor::empty({count, kTimeFeatures}, DType::fp64, Device{});
  Values features;
  for (std::int64_t b = 0; b < count; ++b)
    for (std::int64_t f = 0; f < kTimeFeatures; ++f)
      features.push_back(std::cos(static_cast<double>((first + b * step) * kTimeFeatures + f)));
  time.set_values(features);
  Batch batch{{"input", fields(o.inputs, 0)}, {"target", fields(o.outputs, 0.4)}, {"time", time}};
  for (std::int64_t k = 1; k < o.rollout; ++k) {
    batch[at_step("target", k)] = fields(o.outputs, 0.4 + static_cast<double>(k));
    if (o.inputs > o.outputs) batch[at_step("given", k)] = fields(o.inputs - o.outputs, 0.7 * static_cast<double>(k));
    batch[at_step("time", k)] = time;
  }
  return to_device(batch, o.device);
}

// Calls body(i, j) for every element i of a rank's shard; it is element j of the whole tensor.
template <class F>
void for_each_held(const Shape& full_shape, const Shard& shard, const F& body) {
  std::int64_t outer = 1, inner = 1;
  for (int axis = 0; axis < static_cast<int>(full_shape.size()); ++axis) {
    if (axis < shard.axis) outer *= full_shape[static_cast<std::size_t>(axis)];
    if (axis > shard.axis) inner *= full_shape[static_cast<std::size_t>(axis)];
  }
  const std::int64_t extent = full_shape[static_cast<std::size_t>(shard.axis)];
  std::size_t i = 0;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t k = shard.begin * inner; k < shard.end * inner; ++k)
      body(i++, static_cast<std::size_t>(o * extent * inner + k));
}

// Biases and the head start at zero, which would hide terms that are added twice or not at all.
inline void move_weights(Parameters& parameters) {
  for (const NamedParameter& p : parameters.named()) {
    Tensor weight = parameters.weight(p);
    Values values = weight.to_vector();
    double phase = 0;
    for (const char c : p.name) phase = 1.7 * phase + static_cast<double>(c);
    for_each_held(p.full_shape, p.shard, [&](std::size_t i, std::size_t whole) {
      values[i] += 0.05 * std::sin(std::fmod(phase, 100.0) + 0.37 * static_cast<double>(whole));
    });
    weight.set_values(values);
  }
  parameters.round_to_compute();
}

inline HeldTensors held(const Parameters& parameters, const Tensor& flat, double factor) {
  HeldTensors all;
  for (const NamedParameter& p : parameters.named()) {
    Sharing sharing = Sharing::copy;
    for (const Parameters::Section& section : parameters.sections())
      if (p.offset >= section.range.first && p.offset < section.range.end) sharing = section.sharing;
    Held& one = all[p.name] = {p.full_shape, p.shard, sharing, flat.slice(p.offset, p.shape).to_vector()};
    for (double& value : one.values) value *= factor;
  }
  return all;
}

// A forecaster that keeps the output of its first training pass, if that is no rollout. A test can plant an infinity in
// the gradient of a later pass.
class ObservedForecaster : public Forecaster {
 public:
  ObservedForecaster(const TrainingSetup& setup, Device device, const Parallel& parallel)
      : Forecaster(forecaster_options(setup), compute_of(setup), fields_info(setup), device, parallel) {}

  using Forecaster::loss;
  Tensor loss(const Batch& batch, const Pass& pass) const override {
    if (input().steps_of(batch) > 1) return Forecaster::loss(batch, pass);
    Tensor output = forecast(input().input_of(batch), pass);
    if (first_output_.empty() && holds_values(output.device())) first_output_ = output.to_vector();
    if (is_infinite_) output = with_infinite_gradient(output);
    return loss(output, input().target_of(batch));
  }

  const Values& first_output() const { return first_output_; }
  void plant_infinity(bool is_infinite) { is_infinite_ = is_infinite; }

 private:
  static Tensor with_infinite_gradient(const Tensor& x) {
    Tensor y = x;
    Tape::record("infinity", {&x}, {}, {&y}, [x = Target(x)](Gradients& gradients, const std::vector<Tensor>& dy) {
      Tensor infinite = dy[0];
      Values values = infinite.to_vector();
      values[0] = std::numeric_limits<double>::infinity();
      infinite.set_values(values);
      gradients.give(x, infinite);
    });
    return y;
  }

  mutable Values first_output_;
  bool is_infinite_ = false;
};

// The same on shapes.
class ObservedSource : public TaskSource {
 public:
  explicit ObservedSource(const TrainingSetup& setup) : setup_(setup) {}
  std::unique_ptr<Task> make_task(const ComputeOptions&, Device device, const Parallel& parallel) const override {
    return std::make_unique<ObservedForecaster>(setup_, device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>& rows) const override {
    const std::int64_t height = rows ? rows->count : setup_.height;
    return pair_layout({.input = {setup_.inputs, height, setup_.width},
                        .target = {setup_.outputs, height, setup_.width},
                        .time_features = true,
                        .steps = setup_.rollout,
                        .given_planes = setup_.inputs - setup_.outputs});
  }

 private:
  const TrainingSetup setup_;
};

// `samples` samples of all ranks in a pass.
inline TrainerOptions trainer_options(const TrainingSetup& setup, std::int64_t samples) {
  return {.batch = {.global_batch_size = samples * setup.parts, .grad_accumulation = setup.parts},
          .optimizer = {.kind = OptimizerKind::adamw, .eps = 1e-3, .weight_decay = 0.1, .grad_clip = setup.grad_clip},
          .schedule = {.lr = 0.01},
          .compute = compute_of(setup)};
}

inline PlannedRank planned(const Layout& layout, std::int64_t rank) {
  return {.sizes = {.dp = layout.dp, .tp = layout.tp, .cp = layout.cp},
          .order = layout.order,
          .exchange = layout.exchange(),
          .sequence = layout.sequence,
          .form = layout.form,
          .rank = rank};
}

// One rank of a layout, with its part of the model and of the batches. `samples`: of all ranks per pass.
class RankTraining {
 public:
  RankTraining(const TrainingSetup& setup, const Layout& layout, std::int64_t samples, const Communicator& world)
      : setup_(setup),
        layout_(layout),
        samples_(samples),
        stream_(std::make_shared<gpu::OwnedStream>(setup.device)),  // as a run has
        parallel_(start(layout, world)),
        task_(setup, setup.device, parallel_),
        initial_(held(task_.parameters(), task_.parameters().weights(), 1)) {
    move_weights(task_.parameters());
    trainer_ = std::make_unique<Trainer>(task_, trainer_options(setup, samples), parallel_);
  }

  const Parallel& parallel() const { return parallel_; }
  ObservedForecaster& task() { return task_; }
  Trainer& trainer() { return *trainer_; }

  StepResult step() {
    return trainer_->step([&] {
      current_ = loaded(next_part_++);
      return current_;
    });
  }

  RankValues train() {
    RankValues values{.dp_rank = parallel_.dp.rank(), .initial = initial_};
    const Part patches = parallel_.over_cp(ceil_div(setup_.height, setup_.patch));
    values.rows = {patches.begin * setup_.patch, std::min(patches.end * setup_.patch, setup_.height)};
    if (setup_.is_scored) score(values);
    for (int update = 0; update < setup_.updates; ++update) {
      task_.plant_infinity(update == 1 && setup_.infinity_on_rank == parallel_.world.rank());
      const CommLedger before = parallel_.world.ledger();
      const StepResult step = this->step();
      values.counted.push_back(parallel_.world.ledger().since(before));
      values.losses.push_back(step.loss);
      values.norms.push_back(step.grad_norm);
      values.applied.push_back(step.applied);
      if (update == 0) values.peak_bytes = peak_memory_bytes();
      const Parameters& parameters = task_.parameters();
      if (update == 0) values.gradients = gradients(1 / step.gradient_scale);
      if (update + 1 == setup_.updates) values.weights = held(parameters, parameters.weights(), 1);
    }
    trainer_->check_replicas();
    values.output = task_.first_output();
    values.loss_scale = trainer_->state()["loss_scale"];
    values.predicted = predict_step(ObservedSource(setup_), trainer_options(setup_, samples_),
                                    planned(layout_, parallel_.world.rank()), setup_.device.kind);
    values.by_formulas = by_formulas();
    values.holds = trainer_->holds();
    return values;
  }

 private:
  static Parallel start(const Layout& layout, const Communicator& world) {
    Parallel parallel =
        Parallel::start(world, {.dp = layout.dp, .tp = layout.tp, .cp = layout.cp}, layout.order, layout.exchange());
    parallel.sequence = layout.sequence;
    parallel.form = layout.form;
    return parallel;
  }

  CommLedger by_formulas() const {
    const VitConfig config{.height = round_up(setup_.height, setup_.patch),
                           .width = round_up(setup_.width, setup_.patch),
                           .patch = setup_.patch,
                           .embed = setup_.embed,
                           .depth = 2,
                           .heads = setup_.heads};
    const std::vector<std::int64_t> samples(static_cast<std::size_t>(setup_.parts), samples_ / parallel_.dp.size());
    return traffic_by_formulas(config, task_.parameters(), parallel_, samples, setup_.recompute,
                               trainer_->gradients().held.size());
  }

  // The rank's gradients. A sharded optimizer has only some of the sums: then whole tensors, on the first rank.
  HeldTensors gradients(double factor) {
    const Parameters& parameters = task_.parameters();
    if (!layout_.shard_optimizer) return held(parameters, parameters.grads(), factor);
    HeldTensors all;
    visit_whole(parameters, trainer_->gradients(), parallel_.world, [&](const NamedParameter& p, const Tensor& whole) {
      Held& one = all[p.name] = {p.full_shape, {0, 0, p.full_shape[0]}, Sharing::copy, whole.to_vector()};
      for (double& value : one.values) value *= factor;
    });
    return all;
  }

  // As Loaders has it: what is read is counted by no ledger, its copy on the device is.
  std::shared_ptr<const LoadedBatch> loaded(std::int64_t which) const {
    Batch read;
    {
      const OwnMemoryLedger apart;
      read = batch(which);
    }
    auto loaded = std::make_shared<LoadedBatch>();
    loaded->tensors = to_device(read, setup_.device);
    return loaded;
  }

  // The batch of pass `which`, counted over all updates.
  Batch batch(std::int64_t which) const {
    const std::int64_t ranks = parallel_.dp.size();
    const RowBand band = task_.band().value_or(RowBand{0, setup_.height});
    return batch_of(setup_, which * samples_ + parallel_.dp.rank(), ranks, samples_ / ranks,
                    {band.first, band.first + band.count});
  }

  void score(RankValues& values) {
    const Batch first = batch(100);
    const std::unique_ptr<Metrics> metrics = task_.metrics();
    metrics->begin();
    task_.score(first, *metrics);
    for (const std::span<double> sums : metrics->sums()) {
      parallel_.dp.all_reduce(sums);
      values.scores.insert(values.scores.end(), sums.begin(), sums.end());
    }
    values.score_loss = metrics->loss();
    if (values.dp_rank == 0) values.pictures = task_.pictures(first, 0).size();
  }

  const TrainingSetup setup_;
  const Layout layout_;
  const std::int64_t samples_;
  const StreamScope stream_;
  const Parallel parallel_;
  ObservedForecaster task_;
  const HeldTensors initial_;
  std::unique_ptr<Trainer> trainer_;
  std::int64_t next_part_ = 0;
  std::shared_ptr<const LoadedBatch> current_;
};

// Trains on every rank of the layout; results in rank order. `samples`: of all ranks per pass.
inline std::vector<RankValues> run_training(const TrainingSetup& setup, const Layout& layout, std::int64_t samples) {
  std::vector<RankValues> values(static_cast<std::size_t>(layout.ranks()));
  run_ranks({.ranks = layout.ranks()}, [&](const Communicator& world) {
    const OwnMemoryLedger memory;
    values[static_cast<std::size_t>(world.rank())] = RankTraining(setup, layout, samples, world).train();
  });
  return values;
}

// A rank's elements of a whole tensor.
inline Values part_held(const Held& whole, const Held& mine) {
  REQUIRE(whole.full_shape == mine.full_shape);
  Values part(mine.values.size());
  for_each_held(mine.full_shape, mine.shard, [&](std::size_t i, std::size_t j) { part.at(i) = whole.values.at(j); });
  return part;
}

// A rank's part of the whole batch's output.
inline Values output_held(const TrainingSetup& o, const Layout& layout, const RankValues& whole,
                          const RankValues& mine) {
  Values part;
  const std::int64_t picture = o.height * o.width;
  const auto samples = static_cast<std::int64_t>(whole.output.size()) / (o.outputs * picture);
  for (std::int64_t sample = mine.dp_rank; sample < samples; sample += layout.dp)
    for (std::int64_t c = 0; c < o.outputs; ++c) {
      const auto field = whole.output.begin() + (sample * o.outputs + c) * picture;
      part.insert(part.end(), field + mine.rows.begin * o.width, field + mine.rows.end * o.width);
    }
  return part;
}

// Checks that two runs or two replicas are equal; names each tensor that differs.
inline void check_same_bits(const HeldTensors& a, const HeldTensors& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, mine] : a) {
    INFO(name);
    CHECK(mine.values == b.at(name).values);
  }
}

}  // namespace isobar::testing
