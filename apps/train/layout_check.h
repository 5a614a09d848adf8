// isobar check: compares three steps of a layout with the same three steps on one rank.
#pragma once

#include <cstdint>
#include <string>

#include "apps/train/config.h"
#include "apps/train/layout_judge.h"
#include "comm/parallel.h"

namespace isobar {

struct CheckedLayout {
  const RunConfig& config;
  const OpenedRecipe& data;
  Device device;
};

// The largest deviations of the layout from one rank.
struct LayoutCheck {
  // loss and norm: over three steps. gradients: of the third step. weights: after it.
  Deviation loss, norm, gradients, weights;
  bool passed() const {
    return loss.of_bound <= 1 && norm.of_bound <= 1 && gradients.of_bound <= 1 && weights.of_bound <= 1;
  }
};

// Collective; the first rank also computes the serial steps, and has the result. The bound in fp64 is 1e-12 of a
// tensor's largest element. In other precisions the reference is three steps of one rank in fp64 on the CPU: the layout
// may differ from it by twice the difference of one rank in the checked precision, plus a rounding. The gradient of the
// key bias is exactly zero in theory, so its tolerance is taken from the query bias. Adam's eps is raised to 1e-3;
// otherwise Adam would turn rounding noise into steps of full size.
LayoutCheck check_layout(const CheckedLayout& checked, const Parallel& parallel);

// Four lines of text.
std::string to_text(const LayoutCheck& check);

}  // namespace isobar
