// A batch that grows at the beginning of a run, as Megatron-LM's: after n samples the next batch has
//
//   start + increment · ⌊n / (samples / ((batch - start) / increment))⌋ samples while n <= samples, then `batch`
//
//   source  NVIDIA/Megatron-LM, its number of micro-batches with --rampup-batch-size
#pragma once

#include <cstdint>
#include <vector>

namespace isobar {

class BatchRamp {
 public:
  // A constant batch.
  explicit BatchRamp(std::int64_t batch) : batch_(batch) {}
  // increment divides batch - start; samples >= 1.
  BatchRamp(std::int64_t batch, std::int64_t start, std::int64_t increment, std::int64_t samples);

  // The samples of the iteration after `iterations` ones, and of all these.
  std::int64_t batch_after(std::int64_t iterations) const;
  std::int64_t samples_of(std::int64_t iterations) const;
  // As many iterations as so many samples are enough for: those of the ramp, and whole batches.
  std::int64_t iterations_for(std::int64_t samples) const;

 private:
  std::int64_t batch_;
  std::vector<std::int64_t> consumed_ = {0};  // after 0, 1, 2, ... iterations, until the batch is constant
};

}  // namespace isobar
