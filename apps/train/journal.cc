#include "apps/train/journal.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <span>
#include <sstream>

#include "data/era5/units.h"
#include "data/maps/map_image.h"
#include "data/maps/png.h"
#include "kernels/common/check.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

// The tutorial writes the wind at 10 m as u10m.
std::string rmse_tag(const std::string& variable) {
  return "RMSE(" + (variable == "u10" ? "u10m" : variable) + ")/valid";
}

std::string file_name_of(std::string variable) {
  std::replace_if(
      variable.begin(), variable.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return variable;
}

std::string padded(std::int64_t iteration) {
  std::ostringstream out;
  out << std::setw(8) << std::setfill('0') << iteration;
  return out.str();
}

const char* precision_of(const Config& config, Device device) {
  if (config.amp_mode != AmpMode::none) return name_of_enum(config.amp_mode);
  const bool tf32 = config.dtype == ArithmeticType::fp32 && config.tf32 && device.kind == DeviceKind::cuda;
  return tf32 ? "tf32" : name_of_enum(config.dtype);
}

// Of tensors on a GPU; of the whole process on the CPU.
std::int64_t peak_memory(Device device) {
  if (device.kind == DeviceKind::cuda) return static_cast<std::int64_t>(peak_memory_bytes());
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

// "+6 h", or in steps where the data do not say when a step is.
std::string lead_time(const Era5Dataset& dataset, std::int64_t step) {
  try {
    const StepTime from = dataset.time_of(step), to = dataset.time_of(step + dataset.dt());
    const double days = to.day_of_year - from.day_of_year + (to.year == from.year ? 0 : from.days_in_year);
    return text("+", std::round(days * 240) / 10, " h");
  } catch (const Error&) {
    return text("+", dataset.dt(), dataset.dt() == 1 ? " step" : " steps");
  }
}

}  // namespace

void Tally::add(const StepResult& result, double iteration_seconds) {
  ++iterations;
  seconds += iteration_seconds;
  data_seconds += result.data_seconds;
  loss += result.loss;
}

RunRecord::RunRecord(const RunFolder& folder, const Forecaster& forecaster, std::optional<std::int64_t> purge_step)
    : folder_(folder), forecaster_(forecaster), names_(forecaster.output_names()), board_(folder.logs(), purge_step) {}

void RunRecord::train(std::int64_t iteration, std::int64_t epoch, const StepResult& result, const Tally& since_last) {
  const double batch = static_cast<double>(forecaster_.config().global_batch_size);
  ordered_json line{{"event", "train"},
                    {"iteration", iteration},
                    {"epoch", epoch},
                    {"loss", result.loss},
                    {"lr", result.lr},
                    {"samples_per_second", since_last.iterations_per_second() * batch},
                    {"data_seconds", since_last.data_seconds}};
  if (result.applied) line["grad_norm"] = result.grad_norm;
  if (forecaster_.config().amp_mode == AmpMode::fp16) line["loss_scale"] = result.loss_scale;
  folder_.append_metrics(line);
}

void RunRecord::initial_loss(double loss) {
  board_.scalar("Loss/train", loss, 0);
}

void RunRecord::epoch_end(std::int64_t iteration, std::int64_t epoch, const Tally& tally, double next_lr) {
  const double rate = tally.iterations_per_second();
  const double samples_rate = rate * static_cast<double>(forecaster_.config().global_batch_size);
  std::ostringstream time, loss;
  time << std::fixed << "Time taken for epoch " << epoch << " is " << tally.seconds << " sec, avg " << samples_rate
       << " samples/sec";
  loss << std::fixed << "  Avg train loss=" << tally.mean_loss();
  folder_.log(time.str());
  folder_.log(loss.str());
  folder_.log(text("  Waited for data: ", tally.data_seconds, " sec"));
  board_.scalar("Loss/train", tally.mean_loss(), iteration);
  board_.scalar("Learning Rate", next_lr, iteration);
  board_.scalar("Avg iters per sec", rate, iteration);
  board_.scalar("Avg samples per sec", samples_rate, iteration);
  board_.scalar("Seconds waited for data", tally.data_seconds, iteration);
}

void RunRecord::valid(std::int64_t iteration, std::int64_t epoch, const Validation& validation, double seconds) {
  folder_.append_metrics({{"event", "valid"},
                          {"iteration", iteration},
                          {"epoch", epoch},
                          {"loss", validation.loss},
                          {"rmse", by_name(validation.rmse)},
                          {"persistence_rmse", by_name(validation.persistence_rmse)}});
  folder_.log(text("  Avg val loss=", validation.loss));
  folder_.log(rmse_line(validation));
  folder_.log(text("  Total validation time: ", seconds, " sec"));
  board_.scalar("Loss/valid", validation.loss, iteration);
  for (std::size_t c = 0; c < names_.size(); ++c)
    board_.scalar(rmse_tag(names_[c]), validation.mean_sample_rmse[c], iteration);
}

void RunRecord::picture(std::int64_t iteration, const PairDataset& pairs, std::int64_t sample) {
  const Era5Dataset& dataset = pairs.steps();
  const Batch batch = read_batch(pairs, std::array{sample});
  const Tensor input = forecaster_.input_of(to_device(batch, forecaster_.device()));
  const std::vector<float> forecast = forecaster_.to_physical(forecaster_.forecast(input));
  const std::span target(tensor_of(batch, "target").data_as<float>(), static_cast<std::size_t>(dataset.values()));

  const std::size_t channel = std::min<std::size_t>(2, names_.size() - 1);
  const auto pixels = static_cast<std::size_t>(dataset.height() * dataset.width());
  const auto field = [&](std::span<const float> values) {
    return Field{static_cast<int>(dataset.height()), static_cast<int>(dataset.width()),
                 values.subspan(channel * pixels, pixels)};
  };
  const std::string& name = names_[channel];
  const std::vector<float> lat(dataset.latitudes().begin(), dataset.latitudes().end());
  const std::vector<float> lon(dataset.longitudes().begin(), dataset.longitudes().end());
  board_.image("Visualization, " + name, target_and_prediction(field(target), field(forecast)), iteration);
  const Image map = target_forecast_error(field(target), field(forecast),
                                          {.variable = name,
                                           .unit = shown_unit(name, unit_of(channel)),
                                           .lead_time = lead_time(dataset, pairs.step_of(sample)),
                                           .lat = lat,
                                           .lon = lon});
  try {
    write_png(folder_.images() / ("map_" + file_name_of(name) + "_" + padded(iteration) + ".png"), map);
  } catch (const Error& error) {
    std::cerr << "isobar: warning: " << error.what() << "; the run goes on without this map" << std::endl;
  }
}

ordered_json RunRecord::by_name(const std::vector<double>& values, bool physical) const {
  ordered_json object = ordered_json::object();
  for (std::size_t c = 0; c < names_.size(); ++c) {
    object[names_[c]] = values[c] * (physical ? forecaster_.grid().statistics.stds[c] : 1);
  }
  return object;
}

// One line for the console, whatever the number of channels; metrics.jsonl has all of them.
std::string RunRecord::rmse_line(const Validation& validation) const {
  constexpr std::size_t kMost = 4;
  std::ostringstream each;
  each << std::setprecision(4);
  double ratios = 0;
  for (std::size_t c = 0; c < names_.size(); ++c) {
    const double rmse = validation.rmse[c], persistence = validation.persistence_rmse[c];
    ratios += rmse / persistence;
    if (c < kMost) each << ", " << names_[c] << ' ' << rmse << " (" << persistence << ')';
  }
  if (names_.size() > kMost) each << ", ...";
  std::ostringstream line;
  line << "  RMSE (persistence): " << std::fixed << std::setprecision(1)
       << 100 * ratios / static_cast<double>(names_.size()) << " % of it on average" << each.str();
  return line.str();
}

// As the data say it; empty where nobody does.
std::string RunRecord::unit_of(std::size_t channel) const {
  const std::vector<std::string>& units = forecaster_.grid().units;
  return channel < units.size() ? units[channel] : "";
}

std::string RunRecord::table(const Validation& validation) const {
  std::size_t width = 8;
  for (const std::string& name : names_) width = std::max(width, name.size());
  std::ostringstream out;
  out << "RMSE of the validation set: normalised, and in the variables' own units\n";
  out << std::left << std::setw(static_cast<int>(width)) << "variable" << std::right << std::setw(10) << "forecast"
      << std::setw(13) << "persistence" << std::setw(7) << "ratio" << std::setw(14) << "forecast" << std::setw(13)
      << "persistence"
      << "  unit\n";
  double ratios = 0;
  for (std::size_t c = 0; c < names_.size(); ++c) {
    const double rmse = validation.rmse[c], persistence = validation.persistence_rmse[c];
    const double std = forecaster_.grid().statistics.stds[c], ratio = rmse / persistence;
    ratios += ratio;
    out << std::left << std::setw(static_cast<int>(width)) << names_[c] << std::right << std::fixed
        << std::setprecision(4) << std::setw(10) << rmse << std::setw(13) << persistence << std::setw(6)
        << std::setprecision(0) << 100 * ratio << '%' << std::defaultfloat << std::setprecision(5) << std::setw(14)
        << rmse * std << std::setw(13) << persistence * std << "  " << shown_unit(names_[c], unit_of(c)) << '\n';
  }
  out << "on average " << std::fixed << std::setprecision(1) << 100 * ratios / static_cast<double>(names_.size())
      << " % of persistence's RMSE";
  return out.str();
}

void RunRecord::summary(const Result& result) {
  const Config& config = forecaster_.config();
  const Validation& validation = result.validation;
  folder_.write_summary({{"device", name_of(forecaster_.device().kind)},
                         {"precision", precision_of(config, forecaster_.device())},
                         {"parameters", forecaster_.parameters().count()},
                         {"iterations", result.iterations},
                         {"train_loss", result.train_loss},
                         {"val_loss", validation.loss},
                         {"val_rmse", by_name(validation.rmse)},
                         {"persistence_rmse", by_name(validation.persistence_rmse)},
                         {"val_rmse_physical", by_name(validation.rmse, true)},
                         {"persistence_rmse_physical", by_name(validation.persistence_rmse, true)},
                         {"samples_per_second", result.samples_per_second},
                         {"data_seconds", result.data_seconds},
                         {"peak_memory_bytes", peak_memory(forecaster_.device())},
                         {"wall_seconds", result.wall_seconds}});
  folder_.log(table(validation));
}

}  // namespace isobar
