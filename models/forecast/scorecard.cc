#include "models/forecast/scorecard.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "data/fields/channels.h"
#include "data/parallel_tasks.h"

namespace isobar {
namespace {

constexpr double kTropics = 20;  // degrees; the bound belongs to the tropics and to the extratropics

}  // namespace

std::vector<ScoredRegion> scored_regions(std::span<const double> latitudes, std::span<const double> row_weights) {
  std::vector<ScoredRegion> regions{{"global", {row_weights.begin(), row_weights.end()}}};
  if (latitudes.empty()) return regions;
  const auto add = [&](const char* name, auto is_inside) {
    ScoredRegion region{name, regions.front().row_weights};
    bool has_rows = false;
    for (std::size_t row = 0; row < latitudes.size(); ++row) {
      if (is_inside(latitudes[row]))
        has_rows = true;
      else
        region.row_weights[row] = 0;
    }
    if (has_rows) regions.push_back(std::move(region));
  };
  add("tropics", [](double degrees) { return std::abs(degrees) <= kTropics; });
  add("northern_extratropics", [](double degrees) { return degrees >= kTropics; });
  add("southern_extratropics", [](double degrees) { return degrees <= -kTropics; });
  return regions;
}

void ScoreMoments::add(const ScoreMoments& other, double weight) {
  points += weight * other.points;
  error += weight * other.error;
  absolute += weight * other.absolute;
  squared += weight * other.squared;
  anomalies += weight * other.anomalies;
  f += weight * other.f;
  o += weight * other.o;
  ff += weight * other.ff;
  oo += weight * other.oo;
  fo += weight * other.fo;
  lost += weight * other.lost;
}

ScoreMoments row_moments(std::span<const double> forecast, std::span<const double> truth,
                         std::span<const double> climatology) {
  ScoreMoments sums;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (std::isnan(truth[i])) continue;
    if (std::isnan(forecast[i])) {
      ++sums.lost;
      continue;
    }
    const double error = forecast[i] - truth[i];
    ++sums.points;
    sums.error += error;
    sums.absolute += std::abs(error);
    sums.squared += error * error;
    if (climatology.empty() || std::isnan(climatology[i])) continue;
    const double f = forecast[i] - climatology[i], o = truth[i] - climatology[i];
    ++sums.anomalies;
    sums.f += f;
    sums.o += o;
    sums.ff += f * f;
    sums.oo += o * o;
    sums.fo += f * o;
  }
  return sums;
}

void Score::add(const ScoreMoments& moments) {
  points_ += moments.points;
  lost_ += moments.lost;
  if (moments.points > 0) {
    ++cases_;
    squared_ += moments.squared / moments.points;
    absolute_ += moments.absolute / moments.points;
    error_ += moments.error / moments.points;
  }
  if (moments.anomalies <= 0) return;
  ++anomaly_cases_;
  ff_ += moments.ff;
  oo_ += moments.oo;
  fo_ += moments.fo;
  if (const double both = moments.ff * moments.oo; both > 0) {
    ++correlated_cases_;
    acc_ += moments.fo / std::sqrt(both);
  }
  const double f_variance = moments.ff - moments.f * moments.f / moments.anomalies,
               o_variance = moments.oo - moments.o * moments.o / moments.anomalies;
  if (o_variance > 0) {
    ++active_cases_;
    activity_ += std::sqrt(std::max(f_variance, 0.0) / o_variance);
  }
}

double Score::rmse() const {
  return std::sqrt(squared_ / static_cast<double>(cases_));
}

double Score::acc_pooled() const {
  return fo_ / std::sqrt(ff_ * oo_);
}

std::vector<WindVector> wind_vectors(std::span<const std::string> channels) {
  std::vector<WindVector> winds;
  for (std::size_t u = 0; u < channels.size(); ++u) {
    const std::string name = short_channel_name(channels[u]);
    if (!name.starts_with('u') || name.size() == 1) continue;
    const std::string level = name.substr(1);
    if (!std::ranges::all_of(level, [](char c) { return c >= '0' && c <= '9'; })) continue;
    const auto v = std::ranges::find_if(
        channels, [&](const std::string& other) { return short_channel_name(other) == "v" + level; });
    if (v != channels.end()) winds.push_back({"wind" + level, u, static_cast<std::size_t>(v - channels.begin())});
  }
  return winds;
}

Scorecard::Scorecard(ScorecardOptions options) : options_(std::move(options)), winds_(wind_vectors(options_.channels)) {
  const std::size_t tables =
      kForecastsNames.size() * options_.regions.size() * static_cast<std::size_t>(options_.leads);
  scores_.resize(tables * options_.channels.size());
  wind_.resize(tables * winds_.size());
}

std::size_t Scorecard::place(std::size_t of, std::size_t region, std::int64_t lead, std::size_t item,
                             std::size_t items) const {
  const auto leads = static_cast<std::size_t>(options_.leads);
  return ((of * options_.regions.size() + region) * leads + static_cast<std::size_t>(lead)) * items + item;
}

Scorecard::Planes Scorecard::planes_of(std::int64_t lead, const ScoredCase& fields, std::size_t channel) const {
  const auto plane = [&](std::span<const float> all) -> std::vector<double> {
    if (all.empty()) return {};
    const std::size_t points = all.size() / options_.channels.size();
    const std::span<const float> own = all.subspan(channel * points, points);
    return {own.begin(), own.end()};
  };
  Planes planes{.truth = plane(fields.truth), .climatology = plane(fields.climatology), .forecasts = {}};
  const auto of = [&](Forecasts kind) -> std::vector<double>& {
    return planes.forecasts[static_cast<std::size_t>(kind)];
  };
  of(Forecasts::forecast) = plane(fields.forecast);
  of(Forecasts::persistence) = plane(fields.start);
  of(Forecasts::climatology) = planes.climatology;
  if (options_.damping.empty() || fields.start.empty() || planes.climatology.empty()) return planes;
  std::vector<double>& damped = of(Forecasts::damped);
  damped = planes.climatology;
  const std::vector<double> then = plane(fields.climatology_at_start);
  const double share = options_.damping[static_cast<std::size_t>(lead) * options_.channels.size() + channel];
  for (std::size_t i = 0; i < damped.size(); ++i) damped[i] += share * (of(Forecasts::persistence)[i] - then[i]);
  return planes;
}

// A task needs the planes of a channel or two, so that memory is bounded by the threads.
void Scorecard::add(std::int64_t lead, const ScoredCase& fields) {
  const std::size_t channels = options_.channels.size();
  parallel_tasks(static_cast<std::int64_t>(channels + winds_.size()), options_.threads, [&](std::int64_t task) {
    const auto number = static_cast<std::size_t>(task);
    if (number < channels) return add_channel(lead, number, planes_of(lead, fields, number));
    const WindVector& wind = winds_[number - channels];
    add_wind(lead, number - channels, planes_of(lead, fields, wind.u), planes_of(lead, fields, wind.v));
  });
}

void Scorecard::add_channel(std::int64_t lead, std::size_t channel, const Planes& planes) {
  const auto width = static_cast<std::size_t>(options_.width);
  for (std::size_t of = 0; of < planes.forecasts.size(); ++of) {
    if (planes.forecasts[of].empty()) continue;
    std::vector<ScoreMoments> totals(options_.regions.size());
    for (std::size_t row = 0; row * width < planes.truth.size(); ++row) {
      const auto part = [&](const std::vector<double>& plane) {
        return plane.empty() ? std::span<const double>() : std::span(plane).subspan(row * width, width);
      };
      const ScoreMoments moments =
          row_moments(part(planes.forecasts[of]), part(planes.truth), part(planes.climatology));
      for (std::size_t r = 0; r < totals.size(); ++r) totals[r].add(moments, options_.regions[r].row_weights[row]);
    }
    for (std::size_t r = 0; r < totals.size(); ++r)
      scores_[place(of, r, lead, channel, options_.channels.size())].add(totals[r]);
  }
}

void Scorecard::add_wind(std::int64_t lead, std::size_t wind, const Planes& u, const Planes& v) {
  const auto width = static_cast<std::size_t>(options_.width);
  for (std::size_t of = 0; of < u.forecasts.size(); ++of) {
    if (u.forecasts[of].empty()) continue;
    std::vector<double> squared(options_.regions.size(), 0.0), weights = squared;
    for (std::size_t row = 0; row * width < u.truth.size(); ++row) {
      double sum = 0, points = 0;
      for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
        const double du = u.forecasts[of][i] - u.truth[i], dv = v.forecasts[of][i] - v.truth[i];
        if (std::isnan(du) || std::isnan(dv)) continue;
        sum += du * du + dv * dv;
        ++points;
      }
      for (std::size_t r = 0; r < squared.size(); ++r) {
        squared[r] += options_.regions[r].row_weights[row] * sum;
        weights[r] += options_.regions[r].row_weights[row] * points;
      }
    }
    for (std::size_t r = 0; r < squared.size(); ++r) {
      if (weights[r] <= 0) continue;
      WindSum& total = wind_[place(of, r, lead, wind, winds_.size())];
      total.squared += squared[r] / weights[r];
      ++total.cases;
    }
  }
}

std::vector<Forecasts> Scorecard::scored() const {
  std::vector<Forecasts> kinds{Forecasts::forecast, Forecasts::persistence};
  if (options_.has_climatology) kinds.push_back(Forecasts::climatology);
  if (!options_.damping.empty()) kinds.push_back(Forecasts::damped);
  return kinds;
}

const Score& Scorecard::score(Forecasts of, std::size_t region, std::int64_t lead, std::size_t channel) const {
  return scores_[place(static_cast<std::size_t>(of), region, lead, channel, options_.channels.size())];
}

double Scorecard::wind_rmse(Forecasts of, std::size_t region, std::int64_t lead, std::size_t wind) const {
  const WindSum& sum = wind_[place(static_cast<std::size_t>(of), region, lead, wind, winds_.size())];
  return std::sqrt(sum.squared / static_cast<double>(sum.cases));
}

}  // namespace isobar
