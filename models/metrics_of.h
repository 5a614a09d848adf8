// Casts metrics to the type of the task that made them.
#pragma once

#include "kernels/common/check.h"
#include "models/task.h"

namespace isobar {

// Error if `metrics` were made by a task of another type.
template <class OwnMetrics>
OwnMetrics& metrics_of(Metrics& metrics) {
  auto* own = dynamic_cast<OwnMetrics*>(&metrics);
  ISOBAR_CHECK(own, "a batch is scored into metrics that another kind of task made");
  return *own;
}

}  // namespace isobar
