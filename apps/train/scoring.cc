#include "apps/train/scoring.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/tape.h"
#include "models/staged_task.h"

namespace isobar {
namespace {

// The next batches of the loader, on the task's device. A rank may have no sample of a set's last batch.
std::vector<Batch> next_batches(Loader& loader, std::int64_t count, Device device) {
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) batches.push_back(to_device(loader.next()->tensors, device));
  return batches;
}

void score_batches(const Task& task, const std::vector<Batch>& batches, Metrics& metrics, Pipeline* pipeline) {
  if (pipeline != nullptr)
    return pipeline->score(batches, [&](const Tensor& output, const Batch& batch) {
      task.staged()->score_output(output, batch, metrics);
    });
  for (const Batch& batch : batches)
    if (batch_size(batch) > 0) task.score(batch, metrics);
}

}  // namespace

bool score_all(const Task& task, EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
               const ScoringRanks& ranks, const std::function<void(std::int64_t samples)>& scored) {
  const TapeScope off(nullptr);
  const MemoryScope memory("validation");
  Loader& loader = set.loader();
  metrics.begin();
  loader.seek({0, 0});
  const std::int64_t batches = loader.batches_per_epoch();
  const std::int64_t at_once = ranks.pipeline == nullptr ? 1 : ranks.pipeline->batches_at_once();
  for (std::int64_t i = 0; i < batches; i += at_once) {
    if (is_true_on_any(ranks.voters, stop())) return false;
    const std::int64_t count = std::min(at_once, batches - i);
    score_batches(task, next_batches(loader, count, task.device()), metrics, ranks.pipeline);
    scored(set.samples() * (i + count) / batches);
  }
  for (const std::span<double> sums : metrics.sums()) ranks.sums.all_reduce(sums);
  metrics.end();
  return true;
}

bool score_all(const Task& task, EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop) {
  const Communicator alone;
  return score_all(task, set, metrics, stop, ScoringRanks{alone, alone});
}

void rehearse_scoring(const Task& task, EvaluationSet& set, Pipeline* pipeline) {
  const TapeScope off(nullptr);
  Loader& loader = set.loader();
  const std::int64_t batches = loader.batches_per_epoch();
  if (batches == 0) return;  // no samples
  const std::unique_ptr<Metrics> metrics = task.metrics();
  metrics->begin();
  for (const std::int64_t batch : std::set<std::int64_t>{0, batches - 1}) {
    loader.seek({0, batch});
    score_batches(task, next_batches(loader, 1, task.device()), *metrics, pipeline);
  }
}

}  // namespace isobar
