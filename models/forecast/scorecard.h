// Scores of forecasts by variable, lead time and region, beside those of persistence, climatology and damped
// persistence. All sums are in fp64, and memory does not grow with the number of starts.
//
// Of one start and lead time, over the points i of a region with area weights a_i where all of forecast f, truth o and,
// for anomalies, climatology c are there; W = sum a:
//
//   MSE = sum a (f - o)^2 / W      MAE = sum a |f - o| / W      bias = sum a (f - o) / W
//   f' = f - c,  o' = o - c        ACC = sum a f'o' / sqrt(sum a f'^2 · sum a o'^2)
//   activity = sqrt(sum a (f' - <f'>)^2 / sum a (o' - <o'>)^2),  <x> = sum a x / W
//
// and over the N starts that have such points
//
//   RMSE = sqrt(mean_N MSE);  MAE, bias, ACC, activity: mean_N;  pooled ACC: the sums of ACC over all starts first.
//
// Of a wind vector (u, v): RMSE = sqrt(mean_N sum a ((u_f - u_o)^2 + (v_f - v_o)^2) / W).
// Definitions: WeatherBench 2 (Rasp et al. 2024), section 3. WeatherBench gives no score where a point is missing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace isobar {

// A part of the globe, and the weights of its rows.
struct ScoredRegion {
  std::string name;
  std::vector<double> row_weights;  // [LAT], 0: the row is outside
};

// The globe ("global"), and those of "tropics" (|latitude| <= 20), "northern_extratropics" (latitude >= 20) and
// "southern_extratropics" (latitude <= -20) that have rows. latitudes [LAT]; empty: the globe only. row_weights: [LAT].
std::vector<ScoredRegion> scored_regions(std::span<const double> latitudes, std::span<const double> row_weights);

// Sums over the points of a row or, weighted, of a region.
struct ScoreMoments {
  double points = 0, error = 0, absolute = 0, squared = 0;  // where f and o are there; error: f - o
  double anomalies = 0;                                     // how many points have f, o and c
  double f = 0, o = 0, ff = 0, oo = 0, fo = 0;              // of their anomalies
  double lost = 0;                                          // points where o is there, but not f

  void add(const ScoreMoments& other, double weight);
};

// forecast, truth, climatology: [LON], NaN where missing; climatology may be empty.
ScoreMoments row_moments(std::span<const double> forecast, std::span<const double> truth,
                         std::span<const double> climatology);

// The scores of one variable, lead time and region, over starts.
class Score {
 public:
  void add(const ScoreMoments& moments);

  std::int64_t cases() const { return cases_; }
  std::int64_t anomaly_cases() const { return anomaly_cases_; }
  double lost_share() const { return lost_ / (lost_ + points_); }  // of the truth's points, by weight
  // NaN without any case.
  double rmse() const;
  double mae() const { return absolute_ / static_cast<double>(cases_); }
  double bias() const { return error_ / static_cast<double>(cases_); }
  double acc() const { return acc_ / static_cast<double>(correlated_cases_); }
  double acc_pooled() const;
  double activity() const { return activity_ / static_cast<double>(active_cases_); }

 private:
  std::int64_t cases_ = 0, anomaly_cases_ = 0, correlated_cases_ = 0, active_cases_ = 0;
  double squared_ = 0, absolute_ = 0, error_ = 0;  // of the cases' means
  double acc_ = 0, activity_ = 0;
  double ff_ = 0, oo_ = 0, fo_ = 0;
  double points_ = 0, lost_ = 0;
};

// What is scored.
enum class Forecasts : std::uint8_t { forecast, persistence, climatology, damped };
inline constexpr std::array<const char*, 4> kForecastsNames{"forecast", "persistence", "climatology",
                                                            "damped_persistence"};

// Two channels that are a wind vector: "wind10" of u10 and v10, "wind850" of u850 and v850.
struct WindVector {
  std::string name;
  std::size_t u = 0, v = 0;
};
std::vector<WindVector> wind_vectors(std::span<const std::string> channels);

struct ScorecardOptions {
  std::vector<std::string> channels = {};
  std::vector<ScoredRegion> regions = {};
  std::int64_t leads = 0, width = 0;
  bool has_climatology = false;
  // [leads, channels]: the share of the start's anomaly that is left; empty: no damped persistence.
  std::vector<double> damping = {};
  int threads = 0;
};

// The fields of one start and lead time, each [channels, LAT, LON], NaN where missing.
struct ScoredCase {
  std::span<const float> forecast, truth;
  std::span<const float> climatology;           // at the valid time; empty: there is none
  std::span<const float> start;                 // the truth at the start; empty: there is none
  std::span<const float> climatology_at_start;  // empty: there is none
};

class Scorecard {
 public:
  explicit Scorecard(ScorecardOptions options);

  const ScorecardOptions& options() const { return options_; }
  const std::vector<WindVector>& winds() const { return winds_; }

  void add(std::int64_t lead, const ScoredCase& fields);

  // Those that have scores, in the order of Forecasts.
  std::vector<Forecasts> scored() const;
  const Score& score(Forecasts of, std::size_t region, std::int64_t lead, std::size_t channel) const;
  // RMSE of the vector; NaN without any case.
  double wind_rmse(Forecasts of, std::size_t region, std::int64_t lead, std::size_t wind) const;

 private:
  // Planes [LAT, LON] of one channel in fp64; empty: they are not there.
  struct Planes {
    std::vector<double> truth, climatology;
    std::array<std::vector<double>, kForecastsNames.size()> forecasts;
  };
  Planes planes_of(std::int64_t lead, const ScoredCase& fields, std::size_t channel) const;
  void add_channel(std::int64_t lead, std::size_t channel, const Planes& planes);
  void add_wind(std::int64_t lead, std::size_t wind, const Planes& u, const Planes& v);
  std::size_t place(std::size_t of, std::size_t region, std::int64_t lead, std::size_t item, std::size_t items) const;

  struct WindSum {
    double squared = 0;
    std::int64_t cases = 0;
  };

  ScorecardOptions options_;
  std::vector<WindVector> winds_;
  std::vector<Score> scores_;  // [forecasts, regions, leads, channels]
  std::vector<WindSum> wind_;  // [forecasts, regions, leads, winds]
};

}  // namespace isobar
