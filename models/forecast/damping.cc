#include "models/forecast/damping.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include "data/fields/spread_steps.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// [channels, LAT, LON], NaN where missing.
std::vector<double> anomalies_at(const TruthFields& truth, const ClimatologyFields& climatology, std::int64_t step) {
  const std::vector<float> fields = truth.read(step), means = climatology.read(truth.series().time_of(step));
  std::vector<double> anomalies;
  for (std::size_t i = 0; i < fields.size(); ++i)
    anomalies.push_back(static_cast<double>(fields[i]) - static_cast<double>(means[i]));
  return anomalies;
}

struct Products {
  double then_now = 0, then_then = 0;
};

}  // namespace

std::vector<double> damping_of(const TruthFields& truth, const ClimatologyFields& climatology, StepRange range,
                               std::span<const double> lead_hours, std::span<const double> row_weights) {
  const FieldSeries& series = truth.series();
  std::vector<std::vector<Products>> sums(lead_hours.size());  // [leads, channels]
  for (const std::int64_t start : spread_steps(range[0], range[1], kDampingStarts, steps_per_day(series))) {
    const std::vector<double> then = anomalies_at(truth, climatology, start);
    for (std::size_t lead = 0; lead < lead_hours.size(); ++lead) {
      const std::optional<std::int64_t> step = truth.step_at(truth.hours(start) + lead_hours[lead]);
      if (!step || *step >= range[1]) continue;
      const std::vector<double> now = anomalies_at(truth, climatology, *step);
      const std::size_t points = truth.points(), width = points / row_weights.size();
      sums[lead].resize(then.size() / points);
      for (std::size_t i = 0; i < then.size(); ++i) {
        if (std::isnan(then[i]) || std::isnan(now[i])) continue;
        Products& sum = sums[lead][i / points];
        const double weight = row_weights[i % points / width];
        sum.then_now += weight * then[i] * now[i];
        sum.then_then += weight * then[i] * then[i];
      }
    }
  }
  std::vector<double> damping;
  for (std::size_t lead = 0; lead < lead_hours.size(); ++lead) {
    ISOBAR_CHECK(!sums[lead].empty(), "the training range holds no two steps that are ", lead_hours[lead],
                 " hours apart");
    for (const Products& sum : sums[lead]) damping.push_back(sum.then_then > 0 ? sum.then_now / sum.then_then : 0);
  }
  return damping;
}

}  // namespace isobar
