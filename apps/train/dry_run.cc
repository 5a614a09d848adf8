#include "apps/train/dry_run.h"

#include <algorithm>
#include <iomanip>
#include <memory>
#include <sstream>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// Gives the parts of a step's batch on the device meta, as Loaders gives them on the device that is meant: a GPU has
// the next part beside the current one. What the host reads into is counted by no ledger.
class ShapedParts {
 public:
  ShapedParts(std::vector<TensorSpec> layout, const BatchCut& cut, Device device)
      : layout_(std::move(layout)), cut_(cut), device_(device) {}

  std::shared_ptr<const LoadedBatch> next() {
    current_ = ahead_ ? std::exchange(ahead_, nullptr) : make();
    return current_;
  }
  void read_ahead() {
    if (device_.like != DeviceKind::cpu) ahead_ = make();
  }

 private:
  std::shared_ptr<const LoadedBatch> make() {
    const std::int64_t part = made_++ % cut_.parts;
    const std::int64_t samples = cut_.own(part_of(cut_.batch, part, cut_.parts).size());
    auto loaded = std::make_shared<LoadedBatch>();
    for (const TensorSpec& spec : layout_) {
      Shape shape{samples};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      loaded->tensors[spec.name] = Tensor::empty(std::move(shape), spec.dtype, device_);
    }
    return loaded;
  }

  const std::vector<TensorSpec> layout_;
  const BatchCut cut_;
  const Device device_;
  std::int64_t made_ = 0;
  std::shared_ptr<const LoadedBatch> current_, ahead_;
};

// The rank, its task and its trainer.
struct ShapedRank {
  ShapedRank(const TaskSource& source, const TrainerOptions& options, const PlannedRank& place, Device device,
             const std::shared_ptr<ImaginedWorld>& world)
      : parallel(imagined(place, world)),
        task(source.make_task(options.compute, device, parallel)),
        trainer(*task, options, parallel) {}

  static Parallel imagined(const PlannedRank& place, const std::shared_ptr<ImaginedWorld>& world) {
    Parallel parallel = Parallel::imagined(place.rank, place.sizes, place.order, place.exchange, world);
    parallel.sequence = place.sequence;
    parallel.form = place.form;
    parallel.pipeline = place.pipeline;
    return parallel;
  }

  const Parallel parallel;
  const std::unique_ptr<Task> task;
  Trainer trainer;
};

std::vector<TensorSpec> layout_of_samples(const TaskSource& source, const Dataset* samples,
                                          const std::optional<RowBand>& rows) {
  if (samples == nullptr) return source.sample_layout(rows);
  return rows ? samples->band(*rows)->layout() : samples->layout();
}

// Rates do not change what a step needs, and a graph is not for ranks that are not there.
TrainerOptions on_shapes(TrainerOptions options) {
  options.schedule = {};
  options.iterations_per_epoch = 1;
  options.compute.cuda_graph = false;
  return options;
}

}  // namespace

StepPrediction predict_step(const TaskSource& source, const TrainerOptions& given, const PlannedRank& place,
                            DeviceKind like, const Dataset* samples) {
  const TrainerOptions options = on_shapes(given);
  options.batch.cut(0, place.sizes.dp);  // Error where it has too few samples
  const Device device = meta_like(like);
  const auto world = std::make_shared<ImaginedWorld>(ImaginedWorld{.like = like});
  // Which of the ranks with other parts of a stage has the most ranges of gradients (GradientReducer) is not known:
  // with rows of a vocabulary that do not divide it is not always the first one.
  const Mesh mesh(place.sizes, place.order);
  for (const std::int64_t first : mesh.group_of(0, "pp"))
    for (const std::int64_t other : mesh.group_of(first, "tp")) {
      if (other == place.rank) continue;
      PlannedRank asked = place;
      asked.rank = other;
      const OwnMemoryLedger apart;
      const ShapedRank made(source, options, asked, device, world);
    }
  const OwnMemoryLedger memory;
  ShapedRank rank(source, options, place, device, world);
  const Communicator& dp = rank.parallel.dp;
  ShapedParts parts(layout_of_samples(source, samples, rank.task->band()), options.batch.cut(dp.rank(), dp.size()),
                    device);
  const CommLedger before = rank.parallel.world.ledger();
  const CostAccount kernels;
  const StageWatch stages;
  rank.trainer.step([&] { return parts.next(); }, [&](bool) { parts.read_ahead(); });
  return {.parameters = rank.task->parameters().count(),
          .held = rank.task->parameters().held(),
          .holds = rank.trainer.holds(),
          .peak_bytes = peak_memory_bytes(),
          .memory = memory_use(),
          .stages = stages.stages(),
          .kernels = kernels.kernels(),
          .cost = kernels.total(),
          .traffic = rank.parallel.world.ledger().since(before)};
}

namespace {

// "stages 1-12" where neighbours need the same.
std::string text_of_stages(const std::vector<StageUse>& stages) {
  std::ostringstream out;
  const auto same = [&](std::size_t a, std::size_t b) {
    return stages[a].kept == stages[b].kept && stages[a].largest == stages[b].largest;
  };
  for (std::size_t first = 0, last = 0; first < stages.size(); first = last) {
    while (last < stages.size() && same(first, last)) ++last;
    out << "  stage" << (last - first > 1 ? concat("s ", first, "-", last - 1) : concat(" ", first)) << ": "
        << text_of_bytes(stages[first].kept) << (last - first > 1 ? " kept each" : " kept") << ", the largest tensor "
        << text_of_bytes(stages[first].largest) << '\n';
  }
  return out.str();
}

std::string decimal(double value, double unit, const char* name) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << value / unit << name;
  return out.str();
}

}  // namespace

std::string memory_text(const StepPrediction& p) {
  std::string text = text_of_bytes(p.peak_bytes) + " at the peak";
  for (const MemoryUse& use : p.memory)
    if (use.peak_bytes > 0) text += concat(", ", text_of_bytes(use.peak_bytes), " of ", use.tag);
  return text;
}

std::string to_text(const StepPrediction& p) {
  std::ostringstream out;
  out << p.held << " of " << p.parameters << " parameters: " << text_of_bytes(p.holds.weights.counted)
      << " of weights, " << text_of_bytes(p.holds.gradients.counted) << " of gradients, "
      << text_of_bytes(p.holds.moments.counted) << " of moments\n";
  out << "memory: " << memory_text(p) << '\n' << text_of_stages(p.stages);
  out << "kernels: " << decimal(p.cost.flops, 1e12, " Tflop") << ", " << decimal(p.cost.bytes, 1e9, " GB moved")
      << '\n';
  const std::string traffic = to_text(p.traffic);
  out << (traffic.empty() ? "nothing is exchanged\n" : "exchanged, bytes of payload:\n" + traffic);
  return out.str();
}

}  // namespace isobar
