// Small cases of the kernels that docs/kernel_report.md predicts: with rows, strides and alignments as in a training
// step of `base` or `mp`, but few of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/accesses/counter.h"

namespace isobar::accesses {

struct Counted {
  std::string kernel;  // as docs/kernel_report.md names it
  Costs costs;
};

// Runs all cases on the emulator; throws Error where a kernel of one did not run.
std::vector<Counted> count_kernels();

}  // namespace isobar::accesses
