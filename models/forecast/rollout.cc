#include "models/forecast/rollout.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "data/era5/first_step.h"
#include "data/era5/hdf5.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

Rollout::Rollout(const Forecaster& forecaster, const Era5Dataset& dataset, std::int64_t steps, Tensor climatology)
    : forecaster_(forecaster), dataset_(dataset), steps_(steps), climatology_(std::move(climatology)) {
  ISOBAR_CHECK(steps <= (dataset.steps() - 1) / dataset.dt(), "a forecast of ", steps,
               " steps is longer than the data, ", dataset.file_name(0), ": ", dataset.steps(), " steps",
               dataset.dt() > 1 ? ", taken dt at a time" : "");
  const ScoreTotals none(*forecaster.options().n_out_channels, dataset.height() * dataset.width());
  forecast_.assign(static_cast<std::size_t>(steps), none);
  persistence_ = forecast_;
}

std::vector<double> Rollout::time_features(std::int64_t step) const {
  if (!*forecaster_.options().time_features) return {};
  const auto features = dataset_.time_of(step).features();
  return {features.begin(), features.end()};
}

// A step as both input and target, on the device.
Batch Rollout::load(std::int64_t step) const {
  const Shape shape{1, dataset_.channels(), dataset_.height(), dataset_.width()};
  const Tensor fields = Tensor::empty(shape, DType::fp32, Device{});
  dataset_.read_step(step, fields.data_as<float>());
  Batch batch{{"input", fields}, {"target", fields}};
  if (*forecaster_.options().time_features) {
    batch["time"] = Tensor::empty({1, kTimeFeatures}, DType::fp64, Device{});
    batch["time"].set_values(time_features(step));
  }
  return to_device(batch, forecaster_.device());
}

void Rollout::check_start(std::int64_t start) const {
  ISOBAR_CHECK(start >= 0 && start < dataset_.steps(), "start step ", start, " is not in the data, which has ",
               dataset_.steps(), " steps");
  const std::size_t file = dataset_.file_of(start);
  const std::int64_t last = start + lead(steps_ - 1);
  ISOBAR_CHECK(last < dataset_.steps() && dataset_.file_of(last) == file, "a forecast of ", steps_, " steps from step ",
               start, " ends at step ", last, ", which is not in ", dataset_.file_name(file));
  const std::vector<std::int64_t> holes = dataset_.holes({start, last - start + 1});
  ISOBAR_CHECK(holes.empty(), "a forecast of ", steps_, " steps from step ", start, " crosses a hole in time of ",
               dataset_.file_name(file), ": step ", holes.front(), " is ", dataset_.time_of(holes.front()).iso(),
               ", step ", holes.front() + 1, " is ", dataset_.time_of(holes.front() + 1).iso());
}

std::vector<float> Rollout::run(std::int64_t start) {
  check_start(start);
  if (forecast_.front().samples() == 0)
    check_first_step(dataset_, start, forecaster_.info().channel_names, forecaster_.info().statistics);
  Tensor input = forecaster_.input().input_of(load(start));
  const Tensor persistence = forecaster_.input().persistence_of(input);
  std::vector<float> fields;
  for (std::int64_t k = 0; k < steps_; ++k) {
    const std::int64_t step = start + lead(k);
    const Tensor forecast = forecaster_.forecast(input);
    const Tensor target = forecaster_.input().target_of(load(step));
    const auto at = static_cast<std::size_t>(k);
    forecast_[at].add(forecaster_.scores(forecast, target, climatology_));
    persistence_[at].add(forecaster_.scores(persistence, target, climatology_));
    const std::vector<float> physical = forecaster_.input().to_physical(forecast);
    fields.insert(fields.end(), physical.begin(), physical.end());
    if (k + 1 < steps_) input = forecaster_.input().input_after(forecast, time_features(step));
  }
  return fields;
}

ordered_json Rollout::scores() const {
  const std::vector<std::string> names = forecaster_.output_names();
  const std::vector<double>& stds = forecaster_.info().statistics.stds;
  ordered_json json;
  json["starts"] = forecast_.front().samples();
  for (std::int64_t k = 0; k < steps_; ++k) json["lead_steps"].push_back(lead(k));
  const auto add = [&](const char* key, const std::vector<ScoreTotals>& totals, bool acc) {
    for (const ScoreTotals& total : totals) {
      const std::vector<double> values = acc ? total.acc() : total.rmse();
      for (std::size_t c = 0; c < names.size(); ++c) json[key][names[c]].push_back(values[c] * (acc ? 1 : stds[c]));
    }
  };
  add("rmse", forecast_, false);
  add("persistence_rmse", persistence_, false);
  if (climatology_.defined()) {
    add("acc", forecast_, true);
    add("persistence_acc", persistence_, true);
  }
  return json;
}

std::string Rollout::table() const {
  const ordered_json json = scores();
  std::size_t width = 8;
  for (const auto& [name, values] : json["rmse"].items()) width = std::max(width, name.size());
  const bool acc = json.contains("acc");
  std::ostringstream out;
  out << std::left << std::setw(static_cast<int>(width)) << "variable" << std::right << std::setw(6) << "lead"
      << std::setw(12) << "RMSE" << std::setw(13) << "persistence" << (acc ? "       ACC  persistence" : "") << '\n';
  for (const auto& [name, rmse] : json["rmse"].items()) {
    for (std::size_t k = 0; k < rmse.size(); ++k) {
      out << std::left << std::setw(static_cast<int>(width)) << name << std::right << std::setw(6)
          << json["lead_steps"][k].get<std::int64_t>() << std::setw(12) << rmse[k].get<double>() << std::setw(13)
          << json["persistence_rmse"][name][k].get<double>();
      if (acc) {
        out << std::fixed << std::setprecision(4) << std::setw(10) << json["acc"][name][k].get<double>()
            << std::setw(13) << json["persistence_acc"][name][k].get<double>() << std::defaultfloat
            << std::setprecision(6);
      }
      out << '\n';
    }
  }
  return out.str();
}

void write_forecast(const fs::path& path, const std::vector<float>& fields, std::int64_t start, std::int64_t steps,
                    const std::vector<std::string>& channels, const std::vector<std::string>& units,
                    const Era5Dataset& dataset) {
  const std::array<std::int64_t, 4> shape{steps, std::ssize(channels), dataset.height(), dataset.width()};
  std::vector<std::int64_t> lead;
  for (std::int64_t k = 1; k <= steps; ++k) lead.push_back(k * dataset.dt());
  hdf5::File file = hdf5::File::create(path.string());
  file.write("fields", shape, std::span<const float>(fields));
  file.write("lead", std::array{steps}, std::span<const std::int64_t>(lead));
  file.write("channel", channels);
  if (!std::ranges::all_of(units, &std::string::empty)) file.write("units", units);
  if (const auto begin = dataset.hours_since_1970(start); begin && dataset.labels().step_hours > 0) {
    std::vector<double> hours;
    for (std::int64_t steps_ahead : lead)
      hours.push_back(*begin + static_cast<double>(steps_ahead) * dataset.labels().step_hours);
    file.write("time", std::array{steps}, std::span<const double>(hours));
    file.write_attribute("time", "units", "hours since 1970-01-01 00:00:00");
    file.write_attribute("time", "calendar", "proleptic_gregorian");
  }
  if (!dataset.latitudes().empty()) {
    file.write("lat", std::array{dataset.height()}, std::span<const double>(dataset.latitudes()));
  }
  if (!dataset.longitudes().empty()) {
    file.write("lon", std::array{dataset.width()}, std::span<const double>(dataset.longitudes()));
  }
  file.close();
}

}  // namespace isobar
