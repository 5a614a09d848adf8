// Scoring files: starts, leads, grids and channels are matched; scores equal formulas; what does not fit is refused.
#include "models/forecast/scoring.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "data/fields/spread_steps.h"
#include "data/forecasts/climatology.h"
#include "data/maps/curves.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "models/forecast/damping.h"
#include "models/forecast/score_pictures.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/variable_file.h"

using namespace isobar;
using testing::Approx;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
using testing::VariableFile;

namespace {

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;

const Numbers kLatitudes{60, 30, 0, -30}, kLongitudes{0, 90, 180, 270};

// The truth at hours since the beginning.
double truth_at(double hours, int row, int column) {
  return 280 + std::fmod(hours * 0.37 + row * column, 5.0) + row + std::sin(column + hours / 20);
}
double error_of(double start, double lead, int row, int column) {
  return 0.01 * lead * (1 + row) - 0.3 + 0.2 * std::cos(start + 3 * column);
}

struct TruthFile {
  double hours = 480;
  double step = 6;
  std::string unit = "K", units_of_time = "hours since 2020-02-20";
  Numbers latitudes = kLatitudes;
};

std::string write_truth(const std::string& path, const TruthFile& truth = {}) {
  VariableFile out(path);
  Numbers times;
  for (double h = 0; h < truth.hours; h += truth.step) times.push_back(h);
  out.axis("time", times, truth.units_of_time);
  out.axis("latitude", truth.latitudes, "degrees_north");
  out.axis("longitude", kLongitudes, "degrees_east");
  for (const char* name : {"t2m", "u10", "v10"})
    out.variable(name, {"time", "latitude", "longitude"}, [&](std::map<std::string, int>& at) {
      return truth_at(times[static_cast<std::size_t>(at["time"])], at["latitude"], at["longitude"]) +
             (name[0] == 'v' ? -279 : 0);
    });
  out.file.write_attribute("t2m", "units", truth.unit);
  out.file.close();
  return path;
}

struct ForecastFile {
  Numbers starts = {0, 36, 210}, leads = {12, 6};  // not in order
  std::string unit = "kelvin", units_of_time = "hours since 2020-02-20";
  std::string other = "cape";  // a channel that the truth does not have
  int first_row = 0, rows = 4;
  bool northwards = true, has_winds = true;
  double first_longitude = -180;
  double missing_at = -1;  // of a start: the forecast's first point
};

std::string write_forecast_file(const std::string& path, const ForecastFile& f = {}) {
  VariableFile out(path);
  out.axis("time", f.starts, f.units_of_time);
  out.axis("prediction_timedelta", f.leads, "hours");
  Numbers latitudes(kLatitudes.begin() + f.first_row, kLatitudes.begin() + f.first_row + f.rows);
  if (f.northwards) latitudes = {latitudes.rbegin(), latitudes.rend()};
  out.axis("latitude", latitudes, "degrees_north");
  out.axis("longitude", {f.first_longitude, f.first_longitude + 90, f.first_longitude + 180, f.first_longitude + 270},
           "degrees_east");
  const auto write = [&](const char* name, double offset) {
    out.variable(name, {"time", "prediction_timedelta", "longitude", "latitude"}, [&](std::map<std::string, int>& at) {
      const double start = f.starts[static_cast<std::size_t>(at["time"])],
                   lead = f.leads[static_cast<std::size_t>(at["prediction_timedelta"])];
      const int row = f.first_row + (f.northwards ? f.rows - 1 - at["latitude"] : at["latitude"]),
                column = (at["longitude"] + static_cast<int>(f.first_longitude / 90) + 4) % 4;
      if (start == f.missing_at && row == 0 && column == 0) return static_cast<double>(NAN);
      return truth_at(start + lead, row, column) + offset + error_of(start, lead, row, column);
    });
  };
  write("2m_temperature", 0);
  if (f.has_winds) {
    write("10m_u_component_of_wind", 0);
    write("10m_v_component_of_wind", -279);
  }
  out.variable(f.other, {"time", "prediction_timedelta", "longitude", "latitude"}, [](auto&) { return 0; });
  out.file.write_attribute("2m_temperature", "units", f.unit);
  out.file.close();
  return path;
}

std::string refusal(const ScoringOptions& options) {
  return testing::error_of([&] { ForecastScoring scoring(options); }, "no error");
}

double weight(int row) {
  constexpr double kDegree = 3.14159265358979323846 / 180;
  return std::cos(kLatitudes[static_cast<std::size_t>(row)] * kDegree);
}

// A forecast, its truth, and the climatology of that truth; steps 0 to 39 of the truth tell the damping.
ScoringOptions with_climatology(const TemporaryFolder& folder) {
  const std::string truth = write_truth(folder / "truth.nc"), forecast = write_forecast_file(folder / "f.nc"),
                    climatology = folder / "c.nc";
  write_climatology(FieldSeries({.paths = {truth}}), climatology, {.window = 5});
  return {.forecasts = {forecast},
          .truth = {truth},
          .climatology = climatology,
          .train_range = RangeValue(std::array<std::int64_t, 2>{0, 40})};
}

}  // namespace

TEST_CASE("scoring: scores of files with turned axes equal the formulas, by start and lead") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"), forecast = write_forecast_file(folder / "f.nc");
  ForecastScoring scoring({.forecasts = {forecast}, .truth = {truth}, .threads = 2});
  scoring.run();
  CHECK(scoring.lead_hours() == Numbers{6, 12});
  CHECK(scoring.channels() == Names{"u10", "v10", "t2m"});  // as the file has them: by their long names
  const nlohmann::ordered_json json = scoring.json();
  CHECK(json["starts"] == 3);
  CHECK(json["first_start"] == "2020-02-20T00:00");
  CHECK(json["last_start"] == "2020-02-28T18:00");
  CHECK(json["weights"] == "cos");
  CHECK(json["units"]["t2m"] == "K");
  CHECK(json["lead_hours"].get<Numbers>() == Numbers{6, 12});
  CHECK(json["forecasts"].get<Names>() == Names{forecast});
  CHECK(json["truth"].get<Names>() == Names{truth});
  CHECK(json["climatology"].is_null());
  for (std::size_t lead = 0; lead < 2; ++lead) {
    const double hours = lead == 0 ? 6 : 12;
    double mse = 0, bias = 0, persistence = 0;
    for (const double start : {0.0, 36.0, 210.0}) {
      double w = 0, squared = 0, sum = 0, squared_persistence = 0;
      for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 4; ++column) {
          const double e = error_of(start, hours, row, column),
                       p = truth_at(start, row, column) - truth_at(start + hours, row, column);
          w += weight(row), squared += weight(row) * e * e, sum += weight(row) * e;
          squared_persistence += weight(row) * p * p;
        }
      mse += squared / w / 3, bias += sum / w / 3, persistence += squared_persistence / w / 3;
    }
    const auto& global = json["regions"]["global"];
    CHECK(global["forecast"]["rmse"]["t2m"][lead].get<double>() == Approx(std::sqrt(mse)).epsilon(1e-4));
    CHECK(global["forecast"]["bias"]["u10"][lead].get<double>() == Approx(bias).margin(1e-5));
    CHECK(global["persistence"]["rmse"]["t2m"][lead].get<double>() == Approx(std::sqrt(persistence)).epsilon(1e-4));
    CHECK(global["forecast"]["wind_vector_rmse"]["wind10"][lead].get<double>() ==
          Approx(std::sqrt(2 * mse)).epsilon(1e-4));
    CHECK_FALSE(global["forecast"].contains("acc"));
    CHECK(global["forecast"]["starts"]["v10"][lead] == 3);
  }
  CHECK(json["regions"].size() == 4);
  CHECK(json["spectrum"]["truth"]["t2m"][1].size() == 3);
  CHECK(scoring.notes() == Names{"not scored, since the truth has no such channel: cape",
                                 "no ACC, no activity and no climatology beside the scores: --climatology names one"});
  CHECK_THAT(scoring.table("tropics"), ContainsSubstring("wind10"));
  CHECK_THAT(testing::error_of([&] { scoring.table("africa"); }),
             ContainsSubstring("there is no region africa on the forecasts' grid; there are global, "));
}

TEST_CASE("scoring: a start counts for the leads that have a truth, and for persistence where it has one itself") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"),
                    forecast = write_forecast_file(folder / "f.nc", {.starts = {-6, 0, 468}});
  ForecastScoring scoring({.forecasts = {forecast}, .truth = {truth}});
  scoring.run();
  const nlohmann::ordered_json json = scoring.json(), &global = json["regions"]["global"];
  CHECK(json["first_start"] == "2020-02-19T18:00");
  CHECK(json["last_start"] == "2020-03-10T12:00");
  using Counts = std::vector<int>;
  CHECK(global["forecast"]["starts"]["t2m"].get<Counts>() == Counts{3, 2});  // the last truth is of 474 hours
  CHECK(global["persistence"]["starts"]["t2m"].get<Counts>() == Counts{2, 1});
  CHECK(json["units"]["u10"] == "");
  CHECK(json["units"]["t2m"] == "K");
  CHECK(json["regions"]["tropics"]["forecast"]["starts"]["v10"].get<Counts>() == Counts{3, 2});
}

TEST_CASE("scoring: a row outside 30 to 60 degrees has no spectrum, and no other region than its own") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"),
                    forecast = write_forecast_file(folder / "f.nc", {.first_row = 2, .rows = 1});
  ForecastScoring scoring({.forecasts = {forecast}, .truth = {truth}});
  scoring.run();
  CHECK_FALSE(scoring.has_spectra());
  const nlohmann::ordered_json json = scoring.json();
  CHECK_FALSE(json.contains("spectrum"));
  CHECK_FALSE(json.contains("damping"));
  Names regions;
  for (const auto& [name, region] : json["regions"].items()) regions.push_back(name);
  CHECK(regions == Names{"global", "tropics"});
  CHECK(testing::error_of([&] { scoring.table("northern_extratropics"); }) ==
        "there is no region northern_extratropics on the forecasts' grid; there are global, tropics");
  CHECK(write_score_curves(scoring, folder / "png") == 3 + 1);
  CHECK_FALSE(std::filesystem::exists(folder / "png/spectrum_t2m.png"));
}

TEST_CASE("scoring: climatology, ACC and damped persistence over 28 February of a leap year") {
  const TemporaryFolder folder;
  ForecastScoring scoring(with_climatology(folder));
  scoring.run();
  CHECK_THAT(scoring.notes().back(), ContainsSubstring("c.nc is a mean of times that are scored too"));
  // The mean of the truth of the days before, at and after it, with the weights 1/4, 1/2, 1/4.
  const auto mean_at = [](double hours, int row, int column) {
    double sum = 0, weights = 0;
    for (const int day : {-1, 0, 1}) {
      const double at = hours + 24 * day;
      if (at < 0 || at >= 480) continue;
      const double w = day == 0 ? 2 : 1;
      sum += w * truth_at(at, row, column), weights += w;
    }
    return sum / weights;
  };
  const nlohmann::ordered_json json = scoring.json();
  for (std::size_t lead = 0; lead < 2; ++lead) {
    const double hours = lead == 0 ? 6 : 12;
    double acc = 0, damped = 0, then_now = 0, then_then = 0;
    for (int step = 0; step < 40; ++step) {
      if (6 * step + hours >= 240) continue;
      for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 4; ++column) {
          const double then = truth_at(6.0 * step, row, column) - mean_at(6.0 * step, row, column),
                       now = truth_at(6.0 * step + hours, row, column) - mean_at(6.0 * step + hours, row, column);
          then_now += weight(row) * then * now, then_then += weight(row) * then * then;
        }
    }
    const double share = then_now / then_then;
    for (const double start : {0.0, 36.0, 210.0}) {
      double w = 0, fo = 0, ff = 0, oo = 0, squared = 0;
      for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 4; ++column) {
          const double c = mean_at(start + hours, row, column), o = truth_at(start + hours, row, column),
                       f = o + error_of(start, hours, row, column),
                       d = c + share * (truth_at(start, row, column) - mean_at(start, row, column));
          w += weight(row), fo += weight(row) * (f - c) * (o - c), ff += weight(row) * (f - c) * (f - c);
          oo += weight(row) * (o - c) * (o - c), squared += weight(row) * (d - o) * (d - o);
        }
      acc += fo / std::sqrt(ff * oo) / 3, damped += squared / w / 3;
    }
    CHECK(json["damping"]["t2m"][lead].get<double>() == Approx(share).epsilon(1e-4));
    const auto& global = json["regions"]["global"];
    CHECK(global["forecast"]["acc"]["t2m"][lead].get<double>() == Approx(acc).epsilon(1e-4));
    CHECK(global["damped_persistence"]["rmse"]["t2m"][lead].get<double>() == Approx(std::sqrt(damped)).epsilon(1e-4));
    CHECK(global["climatology"]["acc"]["t2m"][lead].is_null());
    CHECK(global["climatology"]["rmse"]["t2m"][lead].get<double>() > 0);
  }
}

TEST_CASE("scoring: each number of the table is that of its column, its region and its lead") {
  const TemporaryFolder folder;
  ForecastScoring scoring(with_climatology(folder));
  scoring.run();
  const nlohmann::ordered_json json = scoring.json();
  for (const std::string region : {"global", "tropics", "northern_extratropics"}) {
    const auto& own = json["regions"][region];
    std::istringstream lines(scoring.table(region));
    std::size_t row = 0;
    for (std::string line; std::getline(lines, line);) {
      const bool is_wind = line.starts_with("wind10");
      if (!line.starts_with("t2m") && !is_wind) continue;
      INFO(region << ": " << line);
      std::istringstream words(line);
      std::string name, unit, lead, hours;
      double starts = 0;
      words >> name;
      if (!is_wind) words >> unit;  // the winds have none
      words >> lead >> hours >> starts;
      const std::size_t k = row++ % 2;
      CHECK(lead == (k == 0 ? "+6" : "+12"));
      CHECK(starts == 3);
      std::vector<double> expected;
      for (const char* kind : {"forecast", "persistence", "climatology", "damped_persistence"})
        expected.push_back(own[kind][is_wind ? "wind_vector_rmse" : "rmse"][is_wind ? "wind10" : "t2m"][k]);
      if (!is_wind)
        for (const char* figure : {"mae", "bias", "acc", "acc_pooled", "activity"})
          expected.push_back(own["forecast"][figure]["t2m"][k]);
      for (const double value : expected) {
        double shown = NAN;
        words >> shown;
        CHECK(std::abs(shown - value) < 1e-3);
      }
      CHECK((words >> name).fail());
    }
    CHECK(row == 4);
  }
}

TEST_CASE("scoring: files of other starts are one set, a range takes starts, a forecast's gaps are told") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"), first = write_forecast_file(folder / "a.nc"),
                    second = write_forecast_file(
                        folder / "b.nc",
                        {.starts = {60, 474, 600}, .leads = {6, 12}, .northwards = false, .missing_at = 60});
  ForecastScoring scoring({.forecasts = {second, first}, .truth = {truth}});
  scoring.run();
  CHECK(scoring.starts().size() == 4);  // of 474 and 600 hours nothing is known
  const Score& score = scoring.scorecard().score(Forecasts::forecast, 0, 0, 0);
  CHECK(score.cases() == 4);
  const std::vector<std::string> notes = scoring.notes();
  CHECK_THAT(notes.at(1), ContainsSubstring("none of their times: 2 starts"));
  const ForecastScoring one(
      {.forecasts = {write_forecast_file(folder / "c.nc", {.starts = {0, 600}})}, .truth = {truth}});
  CHECK_THAT(one.notes().at(1), ContainsSubstring("none of their times: 1 start") && !ContainsSubstring("starts"));
  CHECK_THAT(notes.back(), ContainsSubstring("t2m lacks up to 0.967 %"));

  ForecastScoring some({.forecasts = {first, second},
                        .truth = {truth},
                        .channels = {"t2m"},
                        .range = RangeValue(std::array<std::string, 2>{"2020-02-21T12", "2020-02-22"})});
  CHECK(some.starts().size() == 2);
  CHECK(some.channels() == Names{"t2m"});
  // A start that is the first or the last time of a range lies in it; the forecasts begin at steps 0, 6, 10, 35, 79.
  const auto starts_in = [&](std::int64_t begin, std::int64_t end) {
    const ForecastScoring part({.forecasts = {first, second}, .truth = {truth}, .range = StepRange{begin, end}});
    Numbers hours;
    for (const ForecastStart& start : part.starts()) hours.push_back(start.hours - scoring.starts().front().hours);
    return hours;
  };
  CHECK(starts_in(6, 11) == Numbers{36, 60});
  CHECK(starts_in(6, 10) == Numbers{36});
  CHECK(starts_in(7, 11) == Numbers{60});
  CHECK(refusal({.forecasts = {first}, .truth = {truth}, .range = StepRange{1, 6}}) ==
        "no forecast starts within --range");
}

TEST_CASE("scoring: a year's truth that names neither channels nor times is known by the file's name and the flag") {
  constexpr int kSteps = 366 * 4, kBegin = 50 * 24;  // 2020-02-20 is the 51st day
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"), year = folder / "2020.h5",
                    forecast = write_forecast_file(folder / "f.nc", {.northwards = false, .first_longitude = 0});
  std::vector<float> values;
  for (int step = 0; step < kSteps; ++step)
    for (const int offset : {0, -279, 0})
      for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 4; ++column)
          values.push_back(static_cast<float>(truth_at(6.0 * step - kBegin, row, column) + offset));
  testing::write_fields(year, {kSteps, 3, 4, 4}, values);
  const auto scores = [&](const std::string& path, const Names& names) {
    const RangeValue days(std::array<std::string, 2>{"2020-02-20", "2020-02-24"});
    ForecastScoring scoring({.forecasts = {forecast}, .truth = {path}, .truth_channels = names, .range = days});
    scoring.run();
    const nlohmann::ordered_json json = scoring.json();
    CHECK(json["starts"] == 2);
    return json["regions"]["global"]["forecast"]["rmse"];
  };
  const auto named = scores(truth, {}), by_year = scores(year, {"u10", "v10", "t2m"});
  for (const char* channel : {"u10", "v10", "t2m"})
    for (std::size_t lead = 0; lead < 2; ++lead)
      CHECK(by_year[channel][lead].get<double>() == Approx(named[channel][lead].get<double>()).epsilon(1e-6));
  CHECK_THAT(refusal({.forecasts = {forecast}, .truth = {year}}), ContainsSubstring("no channel in common"));
  CHECK_THAT(refusal({.forecasts = {forecast}, .truth = {year}, .truth_channels = {"t2m"}}),
             ContainsSubstring("2020.h5 has 3 channels; expected 1"));
  CHECK_THAT(refusal({.forecasts = {forecast}, .truth = {truth}, .truth_channels = {"u10", "v10", "t2m"}}),
             ContainsSubstring("truth.nc: channel 0 is 't2m', --truth-channels has 'u10' there"));
  CHECK_THAT(refusal({.forecasts = {write_forecast_file(folder / "x.nc")},
                      .truth = {year},
                      .truth_channels = {"u10", "v10", "t2m"}}),
             ContainsSubstring("x.nc: its longitudes begin at -180, but ") &&
                 ContainsSubstring("2020.h5 has none, and its columns are taken from 0 on"));
}

TEST_CASE("scoring: what does not fit is refused with both") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"), forecast = write_forecast_file(folder / "f.nc");
  const auto of = [&](const ForecastFile& file) { return write_forecast_file(folder / "x.nc", file); };
  CHECK_THAT(refusal({.forecasts = {of({.unit = "degC"})}, .truth = {truth}}),
             ContainsSubstring("x.nc: channel t2m is in degC, but in K in ") && ContainsSubstring("truth.nc"));
  CHECK_THAT(refusal({.forecasts = {of({.leads = {6, 8}})}, .truth = {truth}}),
             ContainsSubstring("x.nc has a lead time of 8 hours, but the steps of ") &&
                 ContainsSubstring("truth.nc are 6 hours apart"));
  CHECK_THAT(refusal({.forecasts = {forecast, of({.leads = {6, 12, 18}})}, .truth = {truth}}),
             ContainsSubstring("x.nc has 3 lead times (6 ... 18 h), but ") && ContainsSubstring("2 lead times"));
  CHECK_THAT(refusal({.forecasts = {of({.leads = {12}}), forecast}, .truth = {truth}}),
             ContainsSubstring("f.nc has 2 lead times (6 ... 12 h), but ") &&
                 ContainsSubstring("x.nc has 1 lead time (12 h)"));
  CHECK_THAT(refusal({.forecasts = {of({.leads = {6, 12, 6}})}, .truth = {truth}}),
             ContainsSubstring("x.nc has the lead time of 6 hours twice"));
  CHECK(refusal({.forecasts = {}, .truth = {truth}}) == "no forecast files are named");
  CHECK_THAT(refusal({.forecasts = {forecast, of({})}, .truth = {truth}}),
             ContainsSubstring("f.nc and ") && ContainsSubstring("both have the forecast from 2020-02-20T00:00"));
  CHECK_THAT(refusal({.forecasts = {forecast, of({.starts = {6}, .first_row = 1, .rows = 3})}, .truth = {truth}}),
             ContainsSubstring("x.nc has a grid of 3 x 4 points, but "));
  CHECK_THAT(refusal({.forecasts = {forecast, of({.starts = {6}, .has_winds = false})}, .truth = {truth}}),
             ContainsSubstring("x.nc has no channel u10, which "));
  CHECK_THAT(refusal({.forecasts = {forecast, of({.starts = {6}, .unit = "degC"})}, .truth = {truth}}),
             ContainsSubstring("x.nc: channel t2m is in degC, but in kelvin in "));
  CHECK_THAT(
      refusal({.forecasts = {forecast, of({.starts = {6}, .unit = "degC", .other = "10m_gust"})}, .truth = {truth}}),
      ContainsSubstring("x.nc: channel t2m is in degC, but in kelvin in "));
  CHECK_THAT(refusal({.forecasts = {of({.starts = {2000}})}, .truth = {truth}}),
             ContainsSubstring("no forecast has a truth: they start from 2020-05-13T08:00 to 2020-05-13T08:00, and the "
                               "truth of " +
                               truth + " is from 2020-02-20T00:00 to "));
  CHECK_THAT(refusal({.forecasts = {of({.units_of_time = "hours"})}, .truth = {truth}}),
             ContainsSubstring("x.nc has no dates"));
  CHECK_THAT(refusal({.forecasts = {forecast}, .truth = {write_truth(folder / "y.nc", {.units_of_time = "hours"})}}),
             ContainsSubstring("y.nc has no dates"));
  CHECK_THAT(
      refusal({.forecasts = {forecast}, .truth = {write_truth(folder / "y.nc", {.latitudes = {61, 31, 1, -29}})}}),
      ContainsSubstring("f.nc: its grid of 4 x 4 points") && ContainsSubstring("y.nc"));
  CHECK_THAT(refusal({.forecasts = {forecast}, .truth = {truth}, .channels = {"t2n"}}),
             ContainsSubstring("f.nc has no channel t2n; did you mean t2m?"));
  CHECK_THAT(refusal({.forecasts = {forecast}, .truth = {truth}, .channels = {"cape"}}),
             ContainsSubstring("truth.nc has no channel cape"));
}

TEST_CASE("scoring: a climatology in other units, without a channel, a day or an hour is refused by name") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"), forecast = write_forecast_file(folder / "f.nc"),
                    climatology = folder / "c.nc";
  const auto outcome = [&] {
    return testing::error_of([&] {
      ForecastScoring scoring({.forecasts = {forecast}, .truth = {truth}, .climatology = climatology});
      scoring.run();
    });
  };
  const auto write = [&](const TruthFile& file, const Names& channels = {}) {
    write_climatology(
        FieldSeries({.paths = {write_truth(folder / "z.nc", file)}, .channels = channels, .choose = !channels.empty()}),
        climatology, {.window = 1});
  };
  write({});
  CHECK(outcome().empty());
  write({.unit = "degC"});
  CHECK_THAT(outcome(), ContainsSubstring("t2m is in kelvin, but in degC in ") && ContainsSubstring("c.nc"));
  write({}, {"t2m", "u10"});
  CHECK_THAT(outcome(), ContainsSubstring("c.nc has no channel v10"));
  write({.hours = 72});
  for (const auto& [starts, is_of_scored] : {std::pair(Numbers{0, 240}, false), std::pair(Numbers{0, 48}, true)}) {
    const ForecastScoring scoring({.forecasts = {write_forecast_file(folder / "s.nc", {.starts = starts})},
                                   .truth = {truth},
                                   .climatology = climatology});
    const Names notes = scoring.notes();
    CHECK(std::ranges::any_of(notes, [](const std::string& note) {
            return note.find("is a mean of times that are scored too") != note.npos;
          }) == is_of_scored);
  }
  CHECK_THAT(outcome(), ContainsSubstring("c.nc has no value of u10 for the day and hour of 2020-02-28T18:00"));
  write({.step = 12});
  CHECK_THAT(outcome(), ContainsSubstring("c.nc has no climatology of the hour of 2020-02-20T06:00"));
  write({});
  CHECK(testing::error_of([&] {
          ForecastScoring scoring(
              {.forecasts = {forecast}, .truth = {truth}, .climatology = climatology, .train_range = StepRange{0, 2}});
        }) == "the training range holds no two steps that are 12 hours apart");
}

TEST_CASE("scoring: pictures of every variable, and an animation") {
  const TemporaryFolder folder;
  const std::string truth = write_truth(folder / "truth.nc"), forecast = write_forecast_file(folder / "f.nc"),
                    climatology = folder / "c.nc";
  write_climatology(FieldSeries({.paths = {truth}}), climatology, {.window = 5});
  ForecastScoring scoring({.forecasts = {forecast}, .truth = {truth}, .climatology = climatology});
  scoring.run();
  CHECK(write_score_curves(scoring, folder / "png") == 3 * 3 + 1);
  ForecastScoring plain({.forecasts = {forecast}, .truth = {truth}});
  plain.run();
  CHECK(write_score_curves(plain, folder / "plain") == 3 * 2 + 1);  // without a climatology there is no ACC
  CHECK_FALSE(std::filesystem::exists(folder / "plain/acc_u10.png"));
  // Each picture is that of these labels and curves.
  const auto is_drawn = [&](const std::string& name, const CurveLabels& labels, const std::vector<Curve>& curves) {
    const std::filesystem::path expected = folder / "expected.png";
    write_png(expected, draw_curves(labels, curves));
    return read_file(expected) == read_file(folder / "png" / (name + ".png"));
  };
  const Scorecard& card = scoring.scorecard();
  const auto by_lead = [&](const auto& value, bool has_climatology) {
    std::vector<Curve> curves;
    for (const auto& [kind, name] : {std::pair(Forecasts::forecast, "forecast"),
                                     {Forecasts::persistence, "persistence"},
                                     {Forecasts::climatology, "climatology"}})
      if (kind != Forecasts::climatology || has_climatology)
        curves.push_back({name, {6, 12}, {value(kind, 0), value(kind, 1)}, curve_color(curves.size())});
    return curves;
  };
  const auto t2m = static_cast<std::size_t>(std::ranges::find(scoring.channels(), "t2m") - scoring.channels().begin());
  CHECK(is_drawn(
      "rmse_t2m", {.title = "RMSE of t2m", .x = "lead time (h)", .y = "RMSE (K)", .from_zero = true},
      by_lead([&](Forecasts kind, std::int64_t lead) { return card.score(kind, 0, lead, t2m).rmse(); }, true)));
  CHECK(is_drawn(
      "acc_t2m", {.title = "ACC of t2m", .x = "lead time (h)", .y = "ACC", .from_zero = true},
      by_lead([&](Forecasts kind, std::int64_t lead) { return card.score(kind, 0, lead, t2m).acc(); }, false)));
  CHECK(is_drawn("rmse_wind10", {.title = "RMSE of wind10", .x = "lead time (h)", .y = "RMSE", .from_zero = true},
                 by_lead([&](Forecasts kind, std::int64_t lead) { return card.wind_rmse(kind, 0, lead, 0); }, true)));
  const auto spectrum = [](const std::string& name, const std::vector<double>& values, std::size_t number) {
    Curve curve{name, {}, {}, curve_color(number)};
    for (std::size_t k = 1; k < values.size(); ++k) {
      curve.x.push_back(std::log10(static_cast<double>(k)));
      curve.y.push_back(std::log10(values[k]));
    }
    return curve;
  };
  CHECK(is_drawn(
      "spectrum_t2m",
      {.title = "zonal spectrum of t2m, 30 to 60 degrees", .x = "log10 of the wavenumber", .y = "log10 of S"},
      {spectrum("truth", scoring.truth_spectrum(0, t2m), 0), spectrum("forecast +6 h", scoring.spectrum(0, t2m), 1),
       spectrum("forecast +12 h", scoring.spectrum(1, t2m), 2)}));
  animate_forecast(scoring, folder / "a.gif", "2m_temperature");
  const std::string gif = read_file(folder / "a.gif");
  CHECK(gif.substr(0, 6) == "GIF89a");
  std::size_t frames = 0;  // by their graphic control extensions
  for (std::size_t at = gif.find("\x21\xf9\x04"); at != gif.npos; at = gif.find("\x21\xf9\x04", at + 1)) ++frames;
  CHECK(frames == 2);  // a lead each
  CHECK_THAT(testing::error_of([&] { animate_forecast(scoring, folder / "b.gif", "u11"); }),
             ContainsSubstring("--animate-channel u11 is not scored; did you mean u10?"));
  CHECK_FALSE(std::filesystem::exists(folder / "b.gif"));
}

TEST_CASE("scoring: spread steps are even, and prefer no hour of the day") {
  CHECK(spread_steps(3, 7, 10, 4) == std::vector<std::int64_t>{3, 4, 5, 6});
  const std::vector<std::int64_t> steps = spread_steps(100, 500, 40, 4);
  REQUIRE(steps.size() == 40);
  std::array<int, 4> hours{};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i] >= 100 + static_cast<std::int64_t>(i) * 10);
    CHECK(steps[i] < 100 + static_cast<std::int64_t>(i + 1) * 10);
    ++hours[static_cast<std::size_t>(steps[i] % 4)];
  }
  CHECK(hours == std::array<int, 4>{10, 10, 10, 10});
  CHECK(spread_steps(0, 9, 3, 0) == std::vector<std::int64_t>{0, 3, 6});
  // By hand: the i-th of its tenth is the first one there whose hour of the day is i's.
  CHECK(spread_steps(0, 60, 6, 4) == std::vector<std::int64_t>{0, 13, 22, 31, 40, 53});
  CHECK(spread_steps(7, 23, 4, 4) == std::vector<std::int64_t>{7, 12, 17, 22});  // each part is one day
  CHECK(spread_steps(7, 22, 4, 4) == std::vector<std::int64_t>{7, 10, 14, 18});  // less than a day: as they come
  CHECK(spread_steps(3, 7, 4, 4) == std::vector<std::int64_t>{3, 4, 5, 6});
  CHECK(spread_steps(3, 8, 4, 4) == std::vector<std::int64_t>{3, 4, 5, 6});
}
