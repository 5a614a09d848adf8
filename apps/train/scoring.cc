#include "apps/train/scoring.h"

#include <memory>
#include <set>
#include <span>

#include "engine/tape.h"

namespace isobar {
namespace {

// A rank may have no sample of a validation's last batch.
void score_batch(const Task& task, const LoadedBatch& batch, Metrics& metrics) {
  if (!batch.samples.empty()) task.score(to_device(batch.tensors, task.device()), metrics);
}

}  // namespace

bool score_all(const Task& task, EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
               const Communicator& ranks, const Communicator& voters,
               const std::function<void(std::int64_t samples)>& scored) {
  const TapeScope off(nullptr);
  const MemoryScope memory("validation");
  Loader& loader = set.loader();
  metrics.begin();
  loader.seek({0, 0});
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t i = 0; i < batches; ++i) {
    if (is_true_on_any(voters, stop())) return false;
    score_batch(task, *loader.next(), metrics);
    scored(set.samples() * (i + 1) / batches);
  }
  for (const std::span<double> sums : metrics.sums()) ranks.all_reduce(sums);
  metrics.end();
  return true;
}

void rehearse_scoring(const Task& task, EvaluationSet& set) {
  const TapeScope off(nullptr);
  Loader& loader = set.loader();
  const std::int64_t batches = loader.batches_per_epoch();
  if (batches == 0) return;  // no samples
  const std::unique_ptr<Metrics> metrics = task.metrics();
  metrics->begin();
  for (const std::int64_t batch : std::set<std::int64_t>{0, batches - 1}) {
    loader.seek({0, batch});
    score_batch(task, *loader.next(), *metrics);
  }
}

}  // namespace isobar
