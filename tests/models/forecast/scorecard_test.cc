// Scores: by hand, and against the formulas written out over all starts, with weights, regions and missing points.
#include "models/forecast/scorecard.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/hashed_numbers.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx;

namespace {

using Numbers = std::vector<double>;
using Fields = std::vector<float>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

// One channel on one row with the weight 1.
Score score_of(const std::vector<std::array<Numbers, 3>>& starts) {
  Score score;
  for (const auto& [f, o, c] : starts) {
    ScoreMoments moments;
    moments.add(row_moments(f, o, c), 1);
    score.add(moments);
  }
  return score;
}

}  // namespace

TEST_CASE("scorecard: regions hold both bounds, and those without rows are left out") {
  const Numbers weights{1, 2, 3, 4, 5};
  const auto regions = scored_regions(Numbers{60, 20, 0, -20, -60}, weights);
  REQUIRE(regions.size() == 4);
  CHECK(regions[0].row_weights == weights);
  CHECK(regions[1].name == "tropics");
  CHECK(regions[1].row_weights == Numbers{0, 2, 3, 4, 0});
  CHECK(regions[2].name == "northern_extratropics");
  CHECK(regions[2].row_weights == Numbers{1, 2, 0, 0, 0});
  CHECK(regions[3].name == "southern_extratropics");
  CHECK(regions[3].row_weights == Numbers{0, 0, 0, 4, 5});
  CHECK(scored_regions(Numbers{75, 20.1}, Numbers{1, 1}).size() == 2);
  CHECK(scored_regions({}, Numbers{1, 1}).size() == 1);
}

TEST_CASE("scorecard: two starts by hand") {
  // f' = (2, 1, -1), (0, 2, 0); o' = (1, 1, 0), (0, 1, 1); e = (1, 0, -1), (0, 1, -1).
  const Score score = score_of({{Numbers{12, 11, 9}, Numbers{11, 11, 10}, Numbers{10, 10, 10}},
                                {Numbers{5, 7, 5}, Numbers{5, 6, 6}, Numbers{5, 5, 5}}});
  CHECK(score.cases() == 2);
  CHECK(score.rmse() == Approx(std::sqrt(2.0 / 3)).epsilon(1e-15));
  CHECK(score.mae() == Approx(2.0 / 3).epsilon(1e-15));
  CHECK(score.bias() == Approx(0).margin(1e-15));
  CHECK(score.acc() == Approx((3 / std::sqrt(12.0) + 2 / std::sqrt(8.0)) / 2).epsilon(1e-14));
  CHECK(score.acc_pooled() == Approx(5 / std::sqrt(10.0 * 4)).epsilon(1e-14));
  // Variances: f' 14/9, 8/9; o' 2/9, 2/9.
  CHECK(score.activity() == Approx((std::sqrt(7.0) + std::sqrt(4.0)) / 2).epsilon(1e-14));
}

TEST_CASE("scorecard: a start counts as much as another, whatever points it misses, none without any point") {
  const Score score = score_of({{Numbers{3, kNan, 5}, Numbers{1, 1, kNan}, Numbers{}},
                                {Numbers{1, 2, 3}, Numbers{1, 1, 1}, Numbers{}},
                                {Numbers{1, 1, 1}, Numbers{kNan, kNan, kNan}, Numbers{}}});
  CHECK(score.cases() == 2);
  CHECK(score.rmse() == Approx(std::sqrt((4 + 5.0 / 3) / 2)).epsilon(1e-15));
  CHECK(score.bias() == Approx((2 + 1.0) / 2).epsilon(1e-15));
  CHECK(score.lost_share() == Approx(1.0 / 5));  // of the truth's five points
  CHECK(score.anomaly_cases() == 0);
  CHECK(std::isnan(score.acc()));
  CHECK(std::isnan(score_of({}).rmse()));
  // A point that the climatology misses is out of the anomalies only.
  const Score part = score_of({{Numbers{2, 9}, Numbers{4, 0}, Numbers{1, kNan}}});
  CHECK(part.mae() == Approx(5.5));
  CHECK(part.acc() == Approx(1));
  // Climatology as a forecast has no anomaly to correlate.
  const Score flat = score_of({{Numbers{1, 1}, Numbers{4, 0}, Numbers{1, 1}}});
  CHECK(std::isnan(flat.acc()));
  CHECK(flat.activity() == 0);
}

TEST_CASE("scorecard: winds are the pairs of one level, in any spelling") {
  const auto winds = wind_vectors(
      std::vector<std::string>{"v850", "u10", "t2m", "u850", "10m_v_component_of_wind", "u500", "u", "uv1"});
  REQUIRE(winds.size() == 2);
  CHECK(winds[0].name == "wind10");
  CHECK(winds[0].u == 1);
  CHECK(winds[0].v == 4);
  CHECK(winds[1].name == "wind850");
  CHECK(winds[1].u == 3);
  CHECK(winds[1].v == 0);
}

TEST_CASE("scorecard: every score of every kind equals its formula over all starts") {
  constexpr std::size_t kStarts = 3, kChannels = 3, kRows = 3, kColumns = 4, kPoints = kRows * kColumns,
                        kValues = kChannels * kPoints;
  const Numbers latitudes{50, 20, -10}, weights{0.5, 1.0, 1.5};
  const Numbers damping{0.5, 0.25, 0.75};
  ScorecardOptions options{.channels = {"u10", "v10", "t2m"},
                           .regions = scored_regions(latitudes, weights),
                           .leads = 1,
                           .width = kColumns,
                           .has_climatology = true,
                           .damping = damping};
  options.threads = 2;
  Scorecard card(options);
  struct Start {
    Fields f, o, c, o0, c0;
  };
  std::vector<Start> starts(kStarts);
  std::uint64_t seed = 0;
  for (Start& start : starts) {
    for (Fields* fields : {&start.f, &start.o, &start.c, &start.o0, &start.c0})
      for (const double value : testing::hashed_values(kValues, ++seed)) fields->push_back(static_cast<float>(value));
    start.f[3] = start.o[17] = start.o0[5] = kMissing;
    card.add(0, {start.f, start.o, start.c, start.o0, start.c0});
  }

  for (std::size_t region = 0; region < options.regions.size(); ++region)
    for (std::size_t kind = 0; kind < 4; ++kind) {
      const auto forecast_at = [&](const Start& s, std::size_t channel, std::size_t point) -> double {
        const std::size_t i = channel * kPoints + point;
        const double o0 = static_cast<double>(s.o0[i]), c0 = static_cast<double>(s.c0[i]),
                     c = static_cast<double>(s.c[i]);
        if (kind == 0) return static_cast<double>(s.f[i]);
        return kind == 1 ? o0 : kind == 2 ? c : c + damping[channel] * (o0 - c0);
      };
      const auto weight_of = [&](std::size_t point) { return options.regions[region].row_weights[point / kColumns]; };
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        double mse = 0, mae = 0, bias = 0, acc = 0, activity = 0, all_fo = 0, all_ff = 0, all_oo = 0;
        for (const Start& s : starts) {
          double w = 0, e2 = 0, e1 = 0, e = 0, f_mean = 0, o_mean = 0, fo = 0, ff = 0, oo = 0, f_var = 0, o_var = 0;
          for (int pass = 0; pass < 2; ++pass)
            for (std::size_t point = 0; point < kPoints; ++point) {
              const std::size_t i = channel * kPoints + point;
              const double f = forecast_at(s, channel, point), o = static_cast<double>(s.o[i]),
                           c = static_cast<double>(s.c[i]), a = weight_of(point);
              if (std::isnan(f) || std::isnan(o)) continue;
              if (pass == 1) {
                f_var += a * std::pow(f - c - f_mean / w, 2);
                o_var += a * std::pow(o - c - o_mean / w, 2);
                continue;
              }
              w += a;
              e2 += a * (f - o) * (f - o);
              e1 += a * std::abs(f - o);
              e += a * (f - o);
              f_mean += a * (f - c);
              o_mean += a * (o - c);
              fo += a * (f - c) * (o - c);
              ff += a * (f - c) * (f - c);
              oo += a * (o - c) * (o - c);
            }
          mse += e2 / w / kStarts;
          mae += e1 / w / kStarts;
          bias += e / w / kStarts;
          acc += fo / std::sqrt(ff * oo) / kStarts;
          activity += std::sqrt(f_var / o_var) / kStarts;
          all_fo += fo, all_ff += ff, all_oo += oo;
        }
        const Score& score = card.score(static_cast<Forecasts>(kind), region, 0, channel);
        INFO("region " << region << " kind " << kind << " channel " << channel);
        CHECK(score.cases() == kStarts);
        CHECK(score.rmse() == Approx(std::sqrt(mse)).epsilon(1e-12));
        CHECK(score.mae() == Approx(mae).epsilon(1e-12));
        CHECK(score.bias() == Approx(bias).epsilon(1e-10));
        if (kind == 2) continue;  // no anomaly
        CHECK(score.acc() == Approx(acc).epsilon(1e-10));
        CHECK(score.acc_pooled() == Approx(all_fo / std::sqrt(all_ff * all_oo)).epsilon(1e-10));
        CHECK(score.activity() == Approx(activity).epsilon(1e-10));
      }
      double squared = 0;
      for (const Start& s : starts) {
        double w = 0, sum = 0;
        for (std::size_t point = 0; point < kPoints; ++point) {
          const double du = forecast_at(s, 0, point) - static_cast<double>(s.o[point]),
                       dv = forecast_at(s, 1, point) - static_cast<double>(s.o[kPoints + point]);
          if (std::isnan(du) || std::isnan(dv)) continue;
          w += weight_of(point);
          sum += weight_of(point) * (du * du + dv * dv);
        }
        squared += sum / w / kStarts;
      }
      CHECK(card.wind_rmse(static_cast<Forecasts>(kind), region, 0, 0) == Approx(std::sqrt(squared)).epsilon(1e-12));
    }
}

TEST_CASE("scorecard: a wind without a point in a region is no case of it, and points are weighed by their rows") {
  // Two rows of two points; the northern row is the extratropics, the southern one the tropics.
  const Numbers weights{1, 3};
  Scorecard card({.channels = {"u850", "v850"},
                  .regions = scored_regions(Numbers{45, 10}, weights),
                  .leads = 2,
                  .width = 2,
                  .has_climatology = false,
                  .damping = {},
                  .threads = 1});
  REQUIRE(card.winds().size() == 1);
  const Fields zero(8, 0);
  // u, then v; the truth is 0. North: 3, 4 and a point without v. South: nothing in the first start.
  const Fields first{3, 9, kMissing, kMissing, 4, kMissing, 1, 1}, second{0, 1, 2, 2, 0, 0, 0, 1};
  for (const Fields* f : {&first, &second})
    card.add(1, {.forecast = *f, .truth = zero, .climatology = {}, .start = {}, .climatology_at_start = {}});
  const auto rmse = [&](std::size_t region) { return card.wind_rmse(Forecasts::forecast, region, 1, 0); };
  CHECK(rmse(0) == Approx(std::sqrt((25 + (1 + 3 * 4 + 3 * 5) / 8.0) / 2)).epsilon(1e-14));
  CHECK(rmse(1) == Approx(std::sqrt(4.5)).epsilon(1e-14));  // the tropics, of the second start alone
  CHECK(rmse(2) == Approx(std::sqrt((25 + 0.5) / 2)).epsilon(1e-14));
  CHECK(std::isnan(card.wind_rmse(Forecasts::forecast, 0, 0, 0)));     // another lead
  CHECK(std::isnan(card.wind_rmse(Forecasts::persistence, 0, 1, 0)));  // without a start
  CHECK(card.score(Forecasts::persistence, 0, 1, 0).cases() == 0);
  CHECK(card.scored() == std::vector<Forecasts>{Forecasts::forecast, Forecasts::persistence});
}
