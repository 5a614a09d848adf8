#include "apps/train/rank_map.h"

#include <memory>
#include <sstream>

#include "comm/parallel.h"
#include "engine/storage.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// "heads 0-3 of 8"
std::string text_of(const Dealt& dealt) {
  const std::int64_t count = dealt.end - dealt.begin;
  if (count == 0) return concat("no ", dealt.what);
  const std::string last = count > 1 ? concat("-", dealt.end - 1) : "";
  return concat(dealt.what, " ", dealt.begin, last, " of ", dealt.total);
}

// sharing: ranks that deal out the moments, and the average, of what they hold.
std::string text_of(const Parameters& parameters, const ComputeOptions& compute, const OptimizerOptions& optimizer,
                    std::size_t sharing) {
  std::string text;
  for (const char* group : {"pp", "tp", "cp"})
    for (const Dealt& dealt : parameters.dealt())
      if (dealt.group == group) text += text_of(dealt) + ", ";
  const DType activation = compute.activation();
  const auto count = static_cast<std::size_t>(parameters.held());
  const std::size_t numbers = count * size_of(accumulator_of(activation));
  const auto trained = static_cast<std::size_t>(parameters.held_trained());
  const std::size_t gradients = trained * size_of(accumulator_of(activation));
  text += concat(count, " parameters", trained < count ? concat(" (", count - trained, " frozen)") : "", ": ",
                 text_of_bytes(numbers), " of weights");
  if (is_16_bit(activation)) text += concat(" and ", text_of_bytes(count * size_of(activation)), " rounded");
  text +=
      concat(", ", text_of_bytes(gradients), " of gradients, ", text_of_bytes(2 * gradients / sharing), " of moments");
  return optimizer.ema > 0 ? text + concat(", ", text_of_bytes(gradients / sharing), " of the average") : text;
}

}  // namespace

std::string describe_ranks(const TaskSource& source, const ComputeOptions& compute, const OptimizerOptions& optimizer,
                           const MeshSizes& sizes, const std::string& order, std::int64_t shards,
                           const PipelineOptions& pipeline) {
  const Mesh mesh(sizes, order);
  const auto sharing = static_cast<std::size_t>(shards == ExchangeOptions::kAll ? sizes.dp * sizes.cp : shards);
  std::ostringstream out;
  out << to_text(mesh);
  // Data ranks hold the same.
  for (const std::int64_t first : mesh.group_of(0, "tp-cp-pp")) {
    Parallel parallel = Parallel::imagined(first, sizes, order);
    parallel.pipeline = pipeline;
    const std::unique_ptr<Task> task = source.make_task(compute, meta_like(DeviceKind::cpu), parallel);
    out << to_text(mesh.group_of(first, "dp")) << ": " << text_of(task->parameters(), compute, optimizer, sharing)
        << '\n';
  }
  return out.str();
}

}  // namespace isobar
