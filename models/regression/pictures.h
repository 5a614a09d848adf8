// The picture of a regression: for some samples what goes in, what comes out, and what should have.
#pragma once

#include "engine/tensor.h"
#include "models/task.h"

namespace isobar {

// [B, channels, H, W] each.
struct RegressionSamples {
  Tensor input, prediction, target;
};

// A row for each sample, of its first channels as grey images. Black is the smallest value of the target, white the
// largest.
Picture draw_regression(const RegressionSamples& samples);

}  // namespace isobar
