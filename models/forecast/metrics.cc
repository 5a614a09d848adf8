#include "models/forecast/metrics.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "data/fields/units.h"

namespace isobar {
namespace {

// The tutorial calls the wind at 10 m u10m.
std::string rmse_tag(const std::string& variable) {
  return "RMSE(" + (variable == "u10" ? "u10m" : variable) + ")/valid";
}

double mean_ratio(const std::vector<double>& rmse, const std::vector<double>& persistence) {
  double sum = 0;
  std::int64_t scored = 0;
  for (std::size_t c = 0; c < rmse.size(); ++c) {
    if (std::isnan(persistence[c])) continue;  // none of its points is there
    sum += rmse[c] / persistence[c];
    ++scored;
  }
  return sum / static_cast<double>(scored);
}

}  // namespace

ForecastMetrics::ForecastMetrics(const FieldsInfo& info, std::int64_t outputs, std::int64_t pixels, bool masked)
    : info_(info),
      names_(info.channel_names.begin(), info.channel_names.begin() + outputs),
      initial_(outputs, pixels, masked),
      forecast_(initial_),
      persistence_(initial_) {}

void ForecastMetrics::add(std::span<const double> forecast_sums, double mean_loss, double weight) {
  forecast_.add(forecast_sums);
  loss_[0] += mean_loss * weight;
  loss_[1] += weight;
}

void ForecastMetrics::begin() {
  forecast_ = initial_;
  loss_ = {};
  if (!persistence_known_) persistence_ = initial_;
}

std::vector<std::span<double>> ForecastMetrics::sums() {
  std::vector<std::span<double>> sums{forecast_.raw(), loss_};
  if (!persistence_known_) sums.push_back(persistence_.raw());
  return sums;
}

std::string ForecastMetrics::lack() const {
  const std::vector<double> points = forecast_.points();
  for (std::size_t c = 0; c < names_.size(); ++c)
    if (points[c] == 0) return "channel " + names_[c] + " is missing at every point of every target";
  return loss_[1] == 0 ? "no point of a target has a weight in the loss" : "";
}

std::vector<Figure> ForecastMetrics::figures(const std::string& name, const std::vector<double>& rmse,
                                             bool physical) const {
  std::vector<Figure> figures;
  for (std::size_t c = 0; c < names_.size(); ++c)
    figures.push_back({name, names_[c], rmse[c] * (physical ? info_.statistics.stds[c] : 1)});
  return figures;
}

Report ForecastMetrics::report(DataSplit split) const {
  Report report;
  const auto append = [](std::vector<Figure>& to, const std::vector<Figure>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(report.line, figures("rmse", rmse(), false));
  append(report.line, figures("persistence_rmse", persistence_rmse(), false));
  // The names for the validation set are older and stay unchanged.
  const std::string of_persistence =
      split == DataSplit::valid ? "persistence_rmse" : figure_of(split, "persistence_rmse");
  append(report.summary, figures(figure_of(split, "rmse"), rmse(), false));
  append(report.summary, figures(of_persistence, persistence_rmse(), false));
  append(report.summary, figures(figure_of(split, "rmse_physical"), rmse(), true));
  append(report.summary, figures(of_persistence + "_physical", persistence_rmse(), true));
  const std::vector<double> mean_sample_rmse = forecast_.mean_sample_rmse();
  for (std::size_t c = 0; c < names_.size(); ++c) report.scalars.emplace_back(rmse_tag(names_[c]), mean_sample_rmse[c]);
  add_curves(report);
  report.sentence = sentence();
  report.table = table(split);
  return report;
}

// The curves of metrics.jsonl as one group, each with persistence for comparison.
void ForecastMetrics::add_curves(Report& report) const {
  const std::vector<double> rmse = this->rmse(), persistence = persistence_rmse();
  for (std::size_t c = 0; c < names_.size(); ++c) {
    const std::string forecast_tag = "RMSE/" + names_[c], persistence_tag = "RMSE of persistence/" + names_[c];
    report.scalars.emplace_back(forecast_tag, rmse[c]);
    report.scalars.emplace_back(persistence_tag, persistence[c]);
    report.charts.push_back({"RMSE beside persistence", names_[c], {forecast_tag, persistence_tag}});
  }
}

// One line for the console, whatever the number of channels; metrics.jsonl has all of them.
std::string ForecastMetrics::sentence() const {
  constexpr std::size_t kMaxShown = 4;
  const std::vector<double> rmse = this->rmse(), persistence = persistence_rmse();
  std::ostringstream each;
  each << std::setprecision(4);
  for (std::size_t c = 0; c < std::min(kMaxShown, names_.size()); ++c)
    each << ", " << names_[c] << ' ' << rmse[c] << " (" << persistence[c] << ')';
  if (names_.size() > kMaxShown) each << ", ...";
  std::ostringstream line;
  line << "RMSE (persistence): " << std::fixed << std::setprecision(1) << 100 * mean_ratio(rmse, persistence)
       << " % of it on average" << each.str();
  return line.str();
}

std::string ForecastMetrics::table(DataSplit split) const {
  const std::vector<double> rmse = this->rmse(), persistence = persistence_rmse();
  std::size_t width = 8;
  for (const std::string& name : names_) width = std::max(width, name.size());
  std::ostringstream out;
  out << "RMSE of the " << name_of_set(split) << ": normalised, and in the variables' own units\n";
  out << std::left << std::setw(static_cast<int>(width)) << "variable" << std::right << std::setw(10) << "forecast"
      << std::setw(13) << "persistence" << std::setw(7) << "ratio" << std::setw(14) << "forecast" << std::setw(13)
      << "persistence"
      << "  unit\n";
  for (std::size_t c = 0; c < names_.size(); ++c) {
    const double std = info_.statistics.stds[c];
    out << std::left << std::setw(static_cast<int>(width)) << names_[c] << std::right << std::fixed
        << std::setprecision(4) << std::setw(10) << rmse[c] << std::setw(13) << persistence[c] << std::setw(6)
        << std::setprecision(0) << 100 * (rmse[c] / persistence[c]) << '%'
        << std::setprecision(decimals_for(std * std::max(rmse[c], persistence[c]))) << std::setw(14) << rmse[c] * std
        << std::setw(13) << persistence[c] * std
        << (c < info_.units.size() && !info_.units[c].empty() ? "  " + shown_unit(names_[c], info_.units[c]) : "")
        << '\n';
  }
  out << "on average " << std::fixed << std::setprecision(1) << 100 * mean_ratio(rmse, persistence)
      << " % of persistence's RMSE";
  return out.str();
}

}  // namespace isobar
