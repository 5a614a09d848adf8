#include "apps/train/rank_map.h"

#include <iomanip>
#include <sstream>

#include "comm/parallel.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// "heads 0-3 of 8"
std::string text_of(const Holding::Dealt& dealt) {
  const Part& part = dealt.part;
  if (part.size() == 0) return concat("no ", dealt.what);
  const std::string last = part.size() > 1 ? concat("-", part.end - 1) : "";
  return concat(dealt.what, " ", part.begin, last, " of ", dealt.total);
}

std::string mebibytes(std::size_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

// sharing: ranks that deal out the moments, and the average, of what they hold.
std::string text_of(const Holding& holding, const ComputeOptions& compute, const OptimizerOptions& optimizer,
                    std::size_t sharing) {
  std::string text;
  for (const Holding::Dealt& dealt : holding.dealt) text += text_of(dealt) + ", ";
  const DType activation = compute.activation();
  const auto count = static_cast<std::size_t>(holding.parameters);
  const std::size_t numbers = count * size_of(accumulator_of(activation));
  text += concat(count, " parameters: ", mebibytes(numbers), " of weights");
  if (is_16_bit(activation)) text += concat(" and ", mebibytes(count * size_of(activation)), " rounded");
  text += concat(", ", mebibytes(numbers), " of gradients, ", mebibytes(2 * numbers / sharing), " of moments");
  return optimizer.ema > 0 ? text + concat(", ", mebibytes(numbers / sharing), " of the average") : text;
}

}  // namespace

std::string describe_ranks(const HoldingOf& holding_of, const ComputeOptions& compute,
                           const OptimizerOptions& optimizer, const MeshSizes& sizes, const std::string& order,
                           std::int64_t shards) {
  const Mesh mesh(sizes, order);
  const auto sharing = static_cast<std::size_t>(shards == ExchangeOptions::kAll ? sizes.dp * sizes.cp : shards);
  std::ostringstream out;
  out << to_text(mesh);
  // Data ranks hold the same.
  for (const std::int64_t first : mesh.group_of(0, "tp-cp")) {
    const Holding holding = holding_of(compute, Parallel::imagined(first, sizes, order));
    out << to_text(mesh.group_of(first, "dp")) << ": " << text_of(holding, compute, optimizer, sharing) << '\n';
  }
  return out.str();
}

}  // namespace isobar
