#include "apps/train/batch_ramp.h"

#include <algorithm>

namespace isobar {

BatchRamp::BatchRamp(std::int64_t batch, std::int64_t start, std::int64_t increment, std::int64_t samples)
    : batch_(batch) {
  const std::int64_t increments = (batch - start) / increment;
  const double samples_of_increment = static_cast<double>(samples) / static_cast<double>(increments);
  while (consumed_.back() <= samples && batch > start) {
    const auto steps = static_cast<std::int64_t>(static_cast<double>(consumed_.back()) / samples_of_increment);
    consumed_.push_back(consumed_.back() + start + increment * std::min(steps, increments));
  }
}

std::int64_t BatchRamp::batch_after(std::int64_t iterations) const {
  return samples_of(iterations + 1) - samples_of(iterations);
}

std::int64_t BatchRamp::samples_of(std::int64_t iterations) const {
  const std::int64_t ramp = std::ssize(consumed_) - 1;
  return iterations <= ramp ? consumed_[static_cast<std::size_t>(iterations)]
                            : consumed_.back() + batch_ * (iterations - ramp);
}

std::int64_t BatchRamp::iterations_for(std::int64_t samples) const {
  const std::int64_t ramp = std::ssize(consumed_) - 1;
  return ramp + std::max<std::int64_t>(samples - consumed_.back(), 0) / batch_;
}

}  // namespace isobar
