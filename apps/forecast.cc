// isobar forecast: weights + data -> forecasts of several steps, their scores beside persistence, and an HDF5 file.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/given_weights.h"
#include "apps/outputs.h"
#include "apps/train/config.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "data/fields/field_labels.h"
#include "data/fields/layout.h"
#include "data/fields/log_scale.h"
#include "engine/files/atomic_file.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "models/forecast/description.h"
#include "models/forecast/fit.h"
#include "models/forecast/recipe.h"
#include "models/forecast/rollout.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct ForecastFlags {
  ConfigOptions config;
  std::string weights, data, stats, out, scores, starts;
  std::optional<std::int64_t> start;
  std::int64_t steps = 1;
};

// The start steps first, first + step, ...; `count` of them, at least one.
struct Starts {
  std::int64_t first = 0, step = 1, count = 1;

  std::int64_t at(std::int64_t i) const { return first + i * step; }
};

// "A:B:S" as Python's range(A, B, S); S is optional.
Starts parse_range(const std::string& text) {
  std::smatch parts;
  const std::regex form(R"((\d{1,15}):(-?\d{1,15})(?::(-?\d{1,15}))?)");
  ISOBAR_CHECK(std::regex_match(text, parts, form), "--starts ", text, " is not of the form A:B:S");
  const std::int64_t step = parts[3].matched ? std::stoll(parts[3]) : 1, end = std::stoll(parts[2]);
  ISOBAR_CHECK(step != 0, "--starts ", text, ": the step must not be 0");
  const std::int64_t first = std::stoll(parts[1]), length = step > 0 ? end - first : first - end;
  ISOBAR_CHECK(length > 0, "--starts ", text, " is empty");
  const Starts starts{first, step, 1 + (length - 1) / std::abs(step)};
  ISOBAR_CHECK(starts.at(starts.count - 1) >= 0, "--starts ", text, " goes below step 0");
  return starts;
}

Starts starts_of(const ForecastFlags& o) {
  ISOBAR_CHECK(o.start.has_value() != !o.starts.empty(), "give either --start or --starts");
  ISOBAR_CHECK(!o.out.empty() || !o.starts.empty() || !o.scores.empty(), "--out is missing: where the forecast goes");
  return o.start ? Starts{.first = *o.start} : parse_range(o.starts);
}

fs::path statistics_folder(const ForecastFlags& o) {
  return o.stats.empty() ? statistics_beside(o.data) : fs::path(o.stats);
}

// Error if an output would overwrite an input of the forecast, a file of its data or of its run, or the other output.
void check_outputs(const ForecastFlags& o, const fs::path& weights) {
  CommandInputs inputs{.weights = weights, .data = {fields_to_forecast(o.data), o.data}, .statistics = {}};
  for (const char* name : {kMeansFile, kStdsFile, kTimeMeansFile, kLabelsFile})
    inputs.statistics.push_back(statistics_folder(o) / name);
  for (const auto& [flag, path] : {std::pair("--out", o.out), std::pair("--scores", o.scores)}) {
    if (path.empty()) continue;
    check_format(flag, path);
    check_output(flag, path, inputs);
  }
  check_differ(o.out, o.scores);
}

// The folder of time_means.npy: the statistics folder of --data, else the statistics that the weights' run computed.
fs::path climatology_folder(const ForecastFlags& o, const fs::path& weights) {
  const fs::path folder = statistics_folder(o), run = run_of(weights);
  const bool from_run = o.stats.empty() && !fs::exists(folder / kTimeMeansFile) && !run.empty() &&
                        fs::exists(run / "stats" / kTimeMeansFile);
  return from_run ? run / "stats" : folder;
}

// The config of a forecast, and its recipe (owned by the config).
struct ForecastConfig {
  RunConfig run;
  ForecastRecipe& recipe;
};

// From the entries of a config file or of the weights. Error for another task.
ForecastConfig forecast_config(const ConfigEntries& entries, const std::string& weights) {
  const std::string task = task_of(entries), model = model_of(entries);
  ISOBAR_CHECK(task == kForecastTask, weights, " is a model of the task ", task, ", which forecasts nothing");
  const std::shared_ptr<NetworkRecipe> network = make_network_recipe(model);
  auto own = std::make_unique<ForecastRecipe>(network);
  ForecastRecipe& recipe = *own;
  return {read_config(entries, RunConfig(task, model, network, std::move(own))), recipe};
}

// The description stored with the weights: the config that they were trained with, and their fields.
struct TrainedForecast {
  ConfigEntries entries;
  FieldsInfo info;
  std::int64_t dt = 1;
};

// None for weights without a description.
std::optional<TrainedForecast> trained_forecast(const ForecastFlags& o, ModelDescription& description) {
  if (!description.config) return std::nullopt;
  TrainedForecast trained{.entries = entries_from(to_json(*description.config), o.weights), .info = {}};
  const ForecastConfig config = forecast_config(trained.entries, description.weights.file.string());
  const std::optional<FieldsInfo> info =
      fields_info_of(description.weights, config.recipe.forecast, config.recipe.split.dt);
  if (!info) return std::nullopt;
  trained.info = *info;
  trained.dt = config.recipe.split.dt;
  return trained;
}

// The config of the weights if they have a description, else the one that --config and --set make. Sizes that it leaves
// to the data are filled in; the channels are those that the weights were trained on.
ForecastConfig config_of(const ForecastFlags& o, const std::optional<TrainedForecast>& trained,
                         const fs::path& weights) {
  ISOBAR_CHECK(trained || !o.config.config.empty() || !o.config.assignments.empty(), o.weights,
               " does not say what model it is of: give --config or --set");
  ConfigEntries entries;
  if (trained && o.config.config.empty())
    entries = trained->entries;
  else
    entries = load_config(o.config.config.empty() ? "base" : o.config.config, config_search_path()).entries;
  for (const std::string& assignment : o.config.assignments) set_from_assignment(entries, assignment);
  ForecastConfig config = forecast_config(entries, o.weights);
  print_left_out(config.run);
  config.recipe.forecast.fill_from_roles(config.run.origins);
  if (config.recipe.needs_sizes() || config.recipe.split.lead_time) {
    const FieldSeries data(config.recipe.fields_before_sizes(fields_to_forecast(o.data).string()));
    if (config.recipe.needs_sizes())
      std::cout << "from the data: " << config.recipe.fill_sizes(sizes_of(data), config.run.origins) << '\n';
    if (config.recipe.split.lead_time)
      config.recipe.split.dt = steps_of_lead_time(*config.recipe.split.lead_time, data);
  }
  if (trained) {
    check_planes(config.recipe.forecast, trained->info, weights.string());
    config.recipe.forecast.channel_names = trained->info.channel_names;
  }
  config.run.check();
  return config;
}

FieldsInfo info_for(const ForecastFlags& o, const ForecastRecipe& recipe, const Windows& windows,
                    const FieldsInfo* trained, const fs::path& weights) {
  const bool own = trained != nullptr && o.stats.empty();
  const fs::path folder = statistics_folder(o);
  const FieldSeries& dataset = windows.series();
  FieldsInfo info = recipe.info_of(
      windows, own ? trained->statistics
                   : recipe.statistics_at((folder / kMeansFile).string(), (folder / kStdsFile).string(), dataset));
  if (own) {
    info.extra_means = trained->extra_means;
    info.extra_stds = trained->extra_stds;
    info.never_there = trained->never_there;
    label_from_weights(info, dataset, *trained, weights.string());
  } else
    label_from_statistics(info, dataset, folder);
  return info;
}

Tensor climatology_for(const ForecastFlags& o, const Forecaster& forecaster, const FieldSeries& dataset,
                       const fs::path& weights) {
  const fs::path folder = climatology_folder(o, weights), file = folder / kTimeMeansFile;
  if (!fs::exists(file)) {
    std::cout << "no " << file.string() << ": no ACC" << std::endl;
    return {};
  }
  if (auto labels = load_labels(folder.string()); labels && !forecaster.options().channels) {
    labels->step_hours = 0;  // a mean over time does not depend on the time step
    check_labels(dataset.labels(), dataset.file_name(0), *labels, (folder / kLabelsFile).string());
  }
  const ForecastOptions& options = forecaster.options();
  return forecaster.input().climatology_of(
      options.channels ? load_time_means(file.string(), dataset.channel_names(), options.height(), options.width())
                       : load_time_means(file.string(), options.variables(), options.height(), options.width()));
}

void tell_of_forecast(const ForecastFlags& o, std::int64_t start, const Forecaster& forecaster,
                      const FieldSeries& dataset) {
  const std::string from = dataset.hours_since_1970(start) ? concat(" (", dataset.time_of(start).iso(), ")") : "";
  std::cout << "written to " << o.out << ": the forecast from step " << start << from << ", fields [lead " << o.steps
            << ", channel " << forecaster.output_names().size() << ", " << dataset.height() << ", " << dataset.width()
            << "], HDF5 that h5py, netCDF and xarray read\n";
}

// Runs every start, writes the files of --out and --scores, and prints the table.
void forecast_all(const ForecastFlags& o, const Starts& starts, const Forecaster& forecaster, const Windows& windows,
                  const fs::path& weights) {
  const FieldSeries& dataset = windows.series();
  Rollout rollout(forecaster, windows, o.steps, climatology_for(o, forecaster, dataset, weights));
  for (const std::int64_t i : {std::int64_t{0}, starts.count - 1}) rollout.check_start(starts.at(i));
  const std::vector<float> fields = rollout.run(starts.at(0));
  for (std::int64_t i = 1; i < starts.count; ++i) rollout.run(starts.at(i));
  if (!o.out.empty()) {
    std::vector<std::string> units = forecaster.info().units;
    units.resize(forecaster.output_names().size());
    for (std::string& unit : units) unit = unit_of_log_scale(unit);
    write_forecast(o.out, fields, starts.at(0), o.steps, forecaster.output_names(), units, dataset);
    tell_of_forecast(o, starts.at(0), forecaster, dataset);
  }
  if (!o.scores.empty()) write_file_atomically(o.scores, rollout.scores().dump(2) + "\n");
  std::cout << rollout.table() << std::flush;
}

void forecast(const ForecastFlags& o) {
  const Starts starts = starts_of(o);
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path file = weights_at(o.weights);
  check_outputs(o, file);
  ModelDescription description = describe_model(file);
  const std::optional<TrainedForecast> trained = trained_forecast(o, description);
  const ForecastConfig config = config_of(o, trained, file);
  const FieldSeries dataset(config.recipe.fields_at(fields_to_forecast(o.data).string()));
  if (trained) {
    check_orientation(trained->info, dataset);
    check_lead_time(trained->info, trained->dt, file.string(), dataset);
  }
  const Windows windows(dataset, config.recipe.windows_of(
                                     dataset, trained ? carried_by(trained->info, file.string()) : CarriedConstants()));
  Forecaster forecaster(config.recipe.forecaster_options(), config.run.compute,
                        info_for(o, config.recipe, windows, trained ? &trained->info : nullptr, file), device);
  read_model(file, forecaster);
  print_weights_origin(file);
  forecast_all(o, starts, forecaster, windows, file);
}

}  // namespace

void register_forecast(CLI::App& app) {
  auto options = std::make_shared<ForecastFlags>();
  CLI::App* command = app.add_subcommand("forecast", "Forecast from a trained model, and score it");
  command->add_option("--weights", options->weights, "FILE.safetensors, or a run's folder (its best weights)")
      ->required();
  add_config_options(*command, options->config);
  command->add_option("--data", options->data, "a folder (its test/ or valid/, else itself) or an .h5 file")
      ->required();
  command->add_option("--stats", options->stats, "a folder with global_means.npy, global_stds.npy, time_means.npy");
  command->add_option("--start", options->start, "the step to start from, counted over the files in order");
  command->add_option("--starts", options->starts, "A:B:S: many starts, scored together");
  command->add_option("--steps", options->steps, "how many steps of the model")
      ->check(whole_number_from(1))
      ->capture_default_str();
  command->add_option("--out", options->out, "FILE.h5 for the forecast (of the first start)");
  command->add_option("--scores", options->scores, "FILE.json for RMSE and ACC");
  command->callback([options] { forecast(*options); });
}

}  // namespace isobar
