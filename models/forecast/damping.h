// Damped persistence: the climatology and a share of the anomaly of the start, c + rho (o_start - c_start).
#pragma once

#include <span>
#include <vector>

#include "data/fields/field_series.h"
#include "data/forecasts/verification.h"

namespace isobar {

// rho by lead time and channel, [leads, channels], that minimises the weighted squared error over pairs of times of the
// truth, lead hours apart, whose first is in `range`:
//   rho = sum a o'(t) o'(t + lead) / sum a o'(t)^2,  o' = o - c, over points and up to kDampingStarts times t.
// row_weights: [LAT]. Error naming the lead time if no such pair exists.
std::vector<double> damping_of(const TruthFields& truth, const ClimatologyFields& climatology, StepRange range,
                               std::span<const double> lead_hours, std::span<const double> row_weights);

inline constexpr std::int64_t kDampingStarts = 1000;

}  // namespace isobar
