#include "models/forecast/metrics.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "data/fields/units.h"
#include "kernels/common/check.h"

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

ForecastMetrics::ForecastMetrics(const FieldsInfo& info, std::int64_t outputs, std::int64_t pixels, bool masked,
                                 std::int64_t steps)
    : info_(info),
      names_(info.channel_names.begin(), info.channel_names.begin() + outputs),
      initial_(outputs, pixels, masked),
      steps_(steps),
      leads_{{initial_, initial_}} {
  if (steps > 1) leads_.push_back({initial_, initial_, "last_", concat(" after ", steps, " steps"), steps});
}

ForecastMetrics ForecastMetrics::of_leads(const FieldsInfo& info, std::int64_t outputs, std::int64_t pixels,
                                          bool masked, const std::vector<ScoredLead>& leads) {
  ForecastMetrics metrics(info, outputs, pixels, masked);
  metrics.is_of_leads_ = true;
  metrics.leads_.clear();
  for (const auto& [steps, name] : leads) {
    metrics.leads_.push_back({metrics.initial_, metrics.initial_, concat("lead_", name, "_"), " after " + name, steps});
    metrics.steps_ = steps;
  }
  return metrics;
}

const ForecastMetrics::Lead* ForecastMetrics::find_lead(std::int64_t steps) const {
  const auto found = std::ranges::find(leads_, steps, &Lead::steps);
  return found == leads_.end() ? nullptr : &*found;
}

ForecastMetrics::Lead& ForecastMetrics::lead_at(std::int64_t steps) {
  const auto found = std::ranges::find(leads_, steps, &Lead::steps);
  ISOBAR_CHECK(found != leads_.end(), "these metrics score no forecasts of ", steps, " steps");
  return *found;
}

void ForecastMetrics::add_lead(std::int64_t steps, std::span<const double> forecast_sums) {
  lead_at(steps).forecast.add(forecast_sums);
}

void ForecastMetrics::add_lead_persistence(std::int64_t steps, std::span<const double> sums) {
  lead_at(steps).persistence.add(sums);
}

void ForecastMetrics::add(std::span<const double> forecast_sums, double mean_loss, double weight) {
  leads_.front().forecast.add(forecast_sums);
  loss_[0] += mean_loss * weight;
  loss_[1] += weight;
}

ForecastMetrics::Lead& ForecastMetrics::last() {
  ISOBAR_CHECK(leads_.size() > 1, "the rollouts of these metrics have one step");
  return leads_.back();
}

void ForecastMetrics::begin() {
  for (Lead& lead : leads_) {
    lead.forecast = initial_;
    if (!persistence_known_) lead.persistence = initial_;
  }
  loss_ = {};
}

std::vector<std::span<double>> ForecastMetrics::sums() {
  std::vector<std::span<double>> sums{leads_.front().forecast.raw(), loss_};
  for (std::size_t lead = 1; lead < leads_.size(); ++lead) sums.push_back(leads_[lead].forecast.raw());
  for (Lead& lead : leads_)
    if (!persistence_known_) sums.push_back(lead.persistence.raw());
  return sums;
}

std::string ForecastMetrics::lack() const {
  for (const Lead& lead : leads_) {
    const std::vector<double> points = lead.forecast.points();
    for (std::size_t c = 0; c < names_.size(); ++c)
      if (points[c] == 0)
        return concat("channel ", names_[c], " is missing at every point of every target", lead.title);
  }
  return loss_[1] == 0 && !is_of_leads_ ? "no point of a target has a weight in the loss" : "";
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
  for (const Lead& lead : leads_) add_figures(report, lead, split);
  const std::vector<double> mean_sample_rmse = leads_.front().forecast.mean_sample_rmse();
  for (std::size_t c = 0; c < names_.size() && !is_of_leads_; ++c)
    report.scalars.emplace_back(rmse_tag(names_[c]), mean_sample_rmse[c]);
  for (const Lead& lead : leads_) add_curves(report, lead);
  report.sentence = is_of_leads_ ? sentence_of_leads() : sentence();
  for (const Lead& lead : leads_)
    report.table +=
        concat(report.table.empty() ? "" : "\n", table(lead, concat("RMSE of the ", name_of_set(split), lead.title)));
  return report;
}

void ForecastMetrics::add_figures(Report& report, const Lead& lead, DataSplit split) const {
  const std::vector<double> rmse = lead.forecast.rmse(), persistence = lead.persistence.rmse();
  const auto append = [](std::vector<Figure>& to, const std::vector<Figure>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  const std::string name = lead.prefix + "rmse", of_persistence = lead.prefix + "persistence_rmse";
  // The names for the validation set are older and stay unchanged.
  const std::string summed_up = split == DataSplit::valid ? of_persistence : figure_of(split, of_persistence);
  append(report.line, figures(name, rmse, false));
  append(report.line, figures(of_persistence, persistence, false));
  append(report.summary, figures(figure_of(split, name), rmse, false));
  append(report.summary, figures(summed_up, persistence, false));
  append(report.summary, figures(figure_of(split, name + "_physical"), rmse, true));
  append(report.summary, figures(summed_up + "_physical", persistence, true));
}

// The curves of metrics.jsonl as one group, each with persistence for comparison.
void ForecastMetrics::add_curves(Report& report, const Lead& lead) const {
  const std::vector<double> rmse = lead.forecast.rmse(), persistence = lead.persistence.rmse();
  for (std::size_t c = 0; c < names_.size(); ++c) {
    const std::string forecast_tag = "RMSE" + lead.title + "/" + names_[c],
                      persistence_tag = "RMSE of persistence" + lead.title + "/" + names_[c];
    report.scalars.emplace_back(forecast_tag, rmse[c]);
    report.scalars.emplace_back(persistence_tag, persistence[c]);
    report.charts.push_back({"RMSE beside persistence" + lead.title, names_[c], {forecast_tag, persistence_tag}});
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
  if (leads_.size() > 1)
    each << "; after " << steps_ << " steps " << std::fixed << std::setprecision(1)
         << 100 * mean_ratio(leads_.back().forecast.rmse(), leads_.back().persistence.rmse()) << " %";
  std::ostringstream line;
  line << "RMSE (persistence): " << std::fixed << std::setprecision(1) << 100 * mean_ratio(rmse, persistence)
       << " % of it on average" << each.str();
  return line.str();
}

// "after 24h 40.1 %, after 72h 71.9 % of persistence's RMSE".
std::string ForecastMetrics::sentence_of_leads() const {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1);
  for (const Lead& lead : leads_)
    line << (&lead == &leads_.front() ? "" : ", ") << lead.title.substr(1) << ' '
         << 100 * mean_ratio(lead.forecast.rmse(), lead.persistence.rmse()) << " %";
  line << " of persistence's RMSE";
  return line.str();
}

std::string ForecastMetrics::table(const Lead& lead, const std::string& what) const {
  const std::vector<double> rmse = lead.forecast.rmse(), persistence = lead.persistence.rmse();
  std::size_t width = 8;
  for (const std::string& name : names_) width = std::max(width, name.size());
  std::ostringstream out;
  out << what << ": normalised, and in the variables' own units\n";
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
