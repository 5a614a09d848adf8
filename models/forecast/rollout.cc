#include "models/forecast/rollout.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "data/fields/first_step.h"
#include "data/fields/units.h"
#include "data/files/hdf5.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

Rollout::Rollout(const Forecaster& forecaster, const Windows& windows, std::int64_t steps, Tensor climatology)
    : forecaster_(forecaster),
      dataset_(windows.series()),
      windows_(windows),
      steps_(steps),
      climatology_(std::move(climatology)) {
  const FieldSeries& dataset = dataset_;
  const ForecastOptions& options = forecaster.options();
  ISOBAR_CHECK(steps == 1 || options.channels || *options.n_out_channels == *options.n_in_channels,
               "n_out_channels: a forecast of ", *options.n_out_channels,
               " channels cannot be continued by a model that reads ", *options.n_in_channels,
               ", unless config keys channels and forcing_channels name them");
  ISOBAR_CHECK(steps <= (dataset.steps() - 1) / dataset.dt(), "a forecast of ", steps,
               " steps is longer than the data, ", dataset.file_name(0), ": ", dataset.steps(), " steps",
               dataset.dt() > 1 ? ", taken dt at a time" : "");
  const ScoreTotals none(*forecaster.options().n_out_channels, dataset.height() * dataset.width(), forecaster.masked());
  forecast_.assign(static_cast<std::size_t>(steps), none);
  persistence_ = forecast_;
}

// A step as both input and target, on the device.
Batch Rollout::load(std::int64_t step) const {
  const RowBand rows = dataset_.all_rows();
  const auto fields = [&](std::int64_t planes, auto read) {
    const Tensor tensor = Tensor::empty({1, planes, rows.count, dataset_.width()}, DType::fp32, Device{});
    read(tensor.data_as<float>());
    return tensor;
  };
  Batch batch;
  batch["input"] = fields(windows_.input_planes(), [&](float* to) { windows_.read_input(step, rows, to); });
  batch["target"] = fields(windows_.target_planes(), [&](float* to) { windows_.read_target(step, rows, to); });
  if (windows_.diagnostics() > 0)
    batch["before"] = fields(windows_.diagnostics(), [&](float* to) { windows_.read_diagnostics(step, rows, to); });
  if (*forecaster_.options().time_features) {
    batch["time"] = Tensor::empty({1, kTimeFeatures}, DType::fp64, Device{});
    const auto features = dataset_.time_of(step).features();
    batch["time"].set_values({features.begin(), features.end()});
  }
  return to_device(batch, forecaster_.device());
}

void Rollout::check_start(std::int64_t start) const {
  ISOBAR_CHECK(start >= 0 && start < dataset_.steps(), "start step ", start, " is not in the data, which has ",
               dataset_.steps(), " steps");
  ISOBAR_CHECK(windows_.has_inputs(start), "start step ", start, ": the data have no ", forecaster_.options().history,
               " earlier states before it, which the model reads");
  const std::string& file = dataset_.file_name_of(start);
  const std::int64_t last = start + lead(steps_ - 1);
  const bool in_one_file = last - start < dataset_.timeline().rest_of_file(start).count;
  ISOBAR_CHECK(in_one_file || (last < dataset_.steps() && dataset_.regular(start, last)), "a forecast of ", steps_,
               " steps from step ", start, " ends at step ", last, ", which is not in ", file);
  const std::vector<std::int64_t> holes = dataset_.holes({start, last - start + 1});
  ISOBAR_CHECK(holes.empty(), "a forecast of ", steps_, " steps from step ", start, " crosses a hole in time of ", file,
               ": step ", holes.front(), " is ", dataset_.time_of(holes.front()).iso(), ", step ", holes.front() + 1,
               " is ", dataset_.time_of(holes.front() + 1).iso());
}

std::vector<float> Rollout::run(std::int64_t start) {
  check_start(start);
  if (forecast_.front().samples() == 0)
    check_first_step(dataset_, start, forecaster_.info().channel_names, forecaster_.info().statistics);
  const FieldInput& fields_of = forecaster_.input();
  const Batch first = load(start);
  Tensor input = fields_of.input_of(first);
  const Tensor persistence = fields_of.persistence_of(input, first);
  std::vector<float> fields;
  for (std::int64_t k = 0; k < steps_; ++k) {
    const std::int64_t step = start + lead(k);
    const Tensor forecast = forecaster_.forecast(input);
    const Batch truth = load(step);
    const Tensor target = fields_of.target_of(truth);
    const auto at = static_cast<std::size_t>(k);
    forecast_[at].add(forecaster_.scores(forecast, target, climatology_));
    persistence_[at].add(forecaster_.scores(persistence, target, climatology_));
    const std::vector<float> physical = fields_of.to_physical(fields_of.without_never_there(forecast));
    fields.insert(fields.end(), physical.begin(), physical.end());
    if (k + 1 < steps_)
      input = fields_of.input_after(input, fields_of.with_never_there_filled(forecast), fields_of.input_of(truth));
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

std::string Rollout::lead_label(std::int64_t k) const {
  const double hours = dataset_.labels().step_hours;
  if (hours > 0) return concat("+", static_cast<double>(lead(k)) * hours, " h");
  return concat("+", lead(k), lead(k) == 1 ? " step" : " steps");
}

std::string Rollout::table() const {
  const ordered_json json = scores();
  const bool acc = json.contains("acc");
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
  out << std::setw(12) << "RMSE" << std::setw(13) << "persistence" << (acc ? "       ACC  persistence" : "") << '\n';
  for (std::size_t c = 0; c < names.size(); ++c) {
    const auto rmse = json["rmse"][names[c]].get<std::vector<double>>(),
               persistence = json["persistence_rmse"][names[c]].get<std::vector<double>>();
    const int decimals =
        decimals_for(std::max(*std::ranges::max_element(rmse), *std::ranges::max_element(persistence)));
    for (std::size_t k = 0; k < rmse.size(); ++k) {
      begin(names[c], units[c], lead_label(static_cast<std::int64_t>(k)));
      out << std::fixed << std::setprecision(decimals) << std::setw(12) << rmse[k] << std::setw(13) << persistence[k];
      if (acc) {
        out << std::setprecision(4) << std::setw(10) << json["acc"][names[c]][k].get<double>() << std::setw(13)
            << json["persistence_acc"][names[c]][k].get<double>();
      }
      out << '\n';
    }
  }
  return out.str();
}

namespace {

// Writes a coordinate of the grid; if the data have none, the indices of its rows or columns. Returns its name.
std::string write_axis(hdf5::File& file, const char* name, const char* units, const char* counted,
                       const std::vector<double>& degrees, std::int64_t count) {
  if (!degrees.empty()) {
    file.write(name, std::array{count}, std::span<const double>(degrees));
    file.write_attribute(name, "units", units);
    return name;
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  file.write(counted, std::array{count}, std::span<const std::int64_t>(numbers));
  return counted;
}

}  // namespace

void write_forecast(const fs::path& path, const std::vector<float>& fields, std::int64_t start, std::int64_t steps,
                    const std::vector<std::string>& channels, const std::vector<std::string>& units,
                    const FieldSeries& dataset) {
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
    file.write_attribute("fields", "coordinates", "time");
  }
  const std::string rows = write_axis(file, "lat", "degrees_north", "row", dataset.latitudes(), dataset.height());
  const std::string columns = write_axis(file, "lon", "degrees_east", "column", dataset.longitudes(), dataset.width());
  file.write_dimensions("fields", std::array<std::string, 4>{"lead", "channel", rows, columns});
  if (file.has("units")) file.write_dimensions("units", std::array<std::string, 1>{"channel"});
  if (file.has("time")) file.write_dimensions("time", std::array<std::string, 1>{"lead"});
  file.close();
}

}  // namespace isobar
