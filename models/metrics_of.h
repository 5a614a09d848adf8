// Metrics as the task that is to add to them made them.
#pragma once

#include "kernels/common/check.h"
#include "models/task.h"

namespace isobar {

// Error where `metrics` are another kind of task's.
template <class OwnMetrics>
OwnMetrics& metrics_of(Metrics& metrics) {
  auto* own = dynamic_cast<OwnMetrics*>(&metrics);
  ISOBAR_CHECK(own, "a batch is scored into metrics that another kind of task made");
  return *own;
}

}  // namespace isobar
