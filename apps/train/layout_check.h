// isobar check: three steps of a layout beside the same three on one rank.
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

// How far the layout is from one rank.
struct LayoutCheck {
  Deviation loss, norm, gradients, weights;  // of three steps, of these too, of the third, after it
  bool passed() const {
    return loss.of_bound <= 1 && norm.of_bound <= 1 && gradients.of_bound <= 1 && weights.of_bound <= 1;
  }
};

// Every rank calls it; the first one makes the serial steps too, and has the result. Bound: in fp64 1e-12 of a tensor's
// largest element. Otherwise the difference from three steps of one rank in fp64 on the CPU may be twice that of one
// rank in the precision checked, and a rounding. The gradient of a bias of keys is rounding noise, since attention does
// not change with it, and is judged by the size of the queries' one. Adam's eps is raised to 1e-3, or it would turn
// noise into steps of full size.
LayoutCheck check_layout(const CheckedLayout& checked, const Parallel& parallel);

// Four lines for people.
std::string to_text(const LayoutCheck& check);

}  // namespace isobar
