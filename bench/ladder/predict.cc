#include "bench/ladder/predict.h"

#include <algorithm>
#include <iterator>

#include "kernels/common/check.h"
#include "lab/accesses/counter.h"

namespace isobar {

RungCounts RungCounts::times(double factor) const {
  return {sectors * factor,           least_sectors * factor, global_wavefronts * factor,
          shared_wavefronts * factor, least_shared * factor,  merged_shared * factor};
}

RungCounts count_rung(const Ladder& ladder, const Rung& rung, const LadderPointers& arrays) {
  RungCounts counts;
  if constexpr (kCountsAccesses) {
    std::vector<std::span<const std::byte>> memory;
    const std::vector<LadderArray> shapes = ladder.arrays();
    for (std::size_t i = 0; i < shapes.size(); ++i)
      memory.push_back(std::as_bytes(std::span(arrays[i], static_cast<std::size_t>(shapes[i].size))));
    for (const auto& [launch, costs] : accesses::count(memory, [&] { rung.run(arrays); })) {
      for (const auto& [place, cost] : costs) {
        const auto moved = static_cast<double>(cost.moved), least = static_cast<double>(cost.least);
        if (place.is_shared) {
          counts.shared_wavefronts += moved, counts.least_shared += least;
          counts.merged_shared += static_cast<double>(cost.merged);
        } else {
          counts.sectors += moved, counts.least_sectors += least;
          counts.global_wavefronts += std::max(static_cast<double>(cost.requests), moved / 4);
        }
      }
    }
  } else {
    throw_error("this build does not count memory accesses");
  }
  return counts;
}

Prediction predict(const Ladder& ladder, const Rung& rung, const RungCounts& counts, const Gpu& gpu) {
  const double cycles = gpu.multiprocessors * gpu.hertz;  // of all multiprocessors, a second
  const bool on_tensor_units = rung.accuracy == Accuracy::tf32;
  const Cost cost = ladder.cost();
  const Prediction units[] = {
      {cost.bytes / gpu.memory, "memory"},
      {(counts.global_wavefronts + counts.merged_shared) / (gpu.wavefronts * cycles), "loads and stores"},
      {cost.flops / 2 / ((on_tensor_units ? gpu.tensor_fma : gpu.fma) * cycles),
       on_tensor_units ? "tensor units" : "multiply-adds"},
      {ladder.exponentials() / (gpu.exponentials * cycles), "exponentials"}};
  return *std::max_element(std::begin(units), std::end(units),
                           [](const Prediction& a, const Prediction& b) { return a.seconds < b.seconds; });
}

}  // namespace isobar
