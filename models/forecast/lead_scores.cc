#include "models/forecast/lead_scores.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "data/fields/units.h"
#include "kernels/common/check.h"

namespace isobar {

using nlohmann::ordered_json;

LeadScores::LeadScores(const Forecaster& forecaster, std::vector<std::int64_t> leads, double step_hours, bool has_acc)
    : forecaster_(forecaster),
      leads_(std::move(leads)),
      step_hours_(step_hours),
      has_acc_(has_acc),
      scored_(leads_.size(), 0) {
  const ForecastOptions& options = forecaster.options();
  forecast_.assign(leads_.size(), ScoreTotals(*options.n_out_channels, options.pixels(), forecaster.masked()));
  persistence_ = forecast_;
}

void LeadScores::add(std::int64_t k, std::span<const double> forecast, std::span<const double> persistence) {
  const auto at = static_cast<std::size_t>(k);
  forecast_[at].add(forecast);
  persistence_[at].add(persistence);
  ++scored_[at];
}

bool LeadScores::are_any() const {
  return std::ranges::any_of(scored_, [](std::int64_t starts) { return starts > 0; });
}

ordered_json LeadScores::json() const {
  const std::vector<std::string> names = forecaster_.output_names();
  const std::vector<double>& stds = forecaster_.info().statistics.stds;
  ordered_json json;
  json["starts"] = starts_;
  json["lead_steps"] = leads_;
  json["scored_starts"] = scored_;
  const auto add = [&](const char* key, const std::vector<ScoreTotals>& totals, bool acc) {
    for (std::size_t k = 0; k < totals.size(); ++k) {
      const std::vector<double> values = acc ? totals[k].acc() : totals[k].rmse();
      for (std::size_t c = 0; c < names.size(); ++c) {
        ordered_json& list = json[key][names[c]];
        scored_[k] > 0 ? list.push_back(values[c] * (acc ? 1 : stds[c])) : list.push_back(nullptr);
      }
    }
  };
  add("rmse", forecast_, false);
  add("persistence_rmse", persistence_, false);
  if (has_acc_) {
    add("acc", forecast_, true);
    add("persistence_acc", persistence_, true);
  }
  return json;
}

std::string LeadScores::lead_label(std::int64_t k) const {
  const std::int64_t lead = leads_[static_cast<std::size_t>(k)];
  if (step_hours_ > 0) return concat("+", static_cast<double>(lead) * step_hours_, " h");
  return concat("+", lead, lead == 1 ? " step" : " steps");
}

std::string LeadScores::table() const {
  const ordered_json json = this->json();
  const std::vector<std::string> names = forecaster_.output_names();
  std::vector<std::string> units = forecaster_.info().units;
  units.resize(names.size());
  int width = 8, unit_width = 4;
  for (std::size_t c = 0; c < names.size(); ++c) {
    units[c] = shown_unit(names[c], units[c]);
    width = std::max(width, static_cast<int>(names[c].size()));
    unit_width = std::max(unit_width, static_cast<int>(units[c].size()));
  }
  std::ostringstream out;
  const auto begin = [&](const std::string& name, const std::string& unit, const std::string& lead) {
    out << std::left << std::setw(width) << name << "  " << std::setw(unit_width) << unit << std::right << std::setw(11)
        << lead;
  };
  begin("variable", "unit", "lead");
  out << std::setw(12) << "RMSE" << std::setw(13) << "persistence" << (has_acc_ ? "       ACC  persistence" : "")
      << "  starts\n";
  // A lead without truth has no number (null).
  const auto number = [&](const char* key, std::size_t c, std::size_t k) {
    const ordered_json& value = json[key][names[c]][k];
    return value.is_null() ? std::nan("") : value.get<double>();
  };
  const auto write = [&](double value, int columns, int decimals) {
    out << std::setw(columns);
    if (std::isnan(value))
      out << "-";
    else
      out << std::fixed << std::setprecision(decimals) << value;
  };
  for (std::size_t c = 0; c < names.size(); ++c) {
    double largest = 0;
    for (std::size_t k = 0; k < leads_.size(); ++k)
      for (const char* key : {"rmse", "persistence_rmse"}) largest = std::fmax(largest, number(key, c, k));
    const int decimals = decimals_for(largest);
    for (std::size_t k = 0; k < leads_.size(); ++k) {
      begin(names[c], units[c], lead_label(static_cast<std::int64_t>(k)));
      write(number("rmse", c, k), 12, decimals);
      write(number("persistence_rmse", c, k), 13, decimals);
      if (has_acc_) {
        write(number("acc", c, k), 10, 4);
        write(number("persistence_acc", c, k), 13, 4);
      }
      out << std::setw(8) << scored_[k] << '\n';
    }
  }
  return out.str();
}

}  // namespace isobar
