// isobar forecast: weights + data -> forecasts of several steps, their scores beside persistence, and a file of them.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
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
#include "data/fields/starts.h"
#include "data/fields/step_times.h"
#include "data/forecasts/writer.h"
#include "engine/files/atomic_file.h"
#include "engine/free_memory.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "models/forecast/description.h"
#include "models/forecast/fit.h"
#include "models/forecast/forecast_memory.h"
#include "models/forecast/forecast_run.h"
#include "models/forecast/recipe.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct ForecastFlags {
  ConfigOptions config;
  std::string weights, stats, out, scores, start, starts;
  std::vector<std::string> data;  // folders, files, stores or patterns
  std::int64_t steps = 1;
  std::optional<std::int64_t> batch;
  ForecastFormat format;
};

StartRequest starts_of(const ForecastFlags& o) {
  ISOBAR_CHECK(o.start.empty() != o.starts.empty(), "give either --start or --starts");
  ISOBAR_CHECK(!o.out.empty() || !o.starts.empty() || !o.scores.empty(), "--out is missing: where the forecast goes");
  return o.start.empty() ? StartRequest::range("--starts", o.starts) : StartRequest::one("--start", o.start);
}

fs::path statistics_folder(const ForecastFlags& o) {
  return o.stats.empty() ? statistics_beside(o.data.front()) : fs::path(o.stats);
}

std::vector<std::string> field_paths(const ForecastFlags& o) {
  std::vector<std::string> paths;
  for (const std::string& data : o.data) paths.push_back(fields_to_forecast(data).string());
  return paths;
}

// Error if an output would overwrite an input of the forecast, a file of its data or of its run, or the other output.
void check_outputs(const ForecastFlags& o, const fs::path& weights) {
  CommandInputs inputs{.weights = weights, .data = {}, .statistics = {}};
  for (const char* name : {kMeansFile, kStdsFile, kTimeMeansFile, kLabelsFile})
    inputs.statistics.push_back(statistics_folder(o) / name);
  for (const std::string& data : o.data) {
    inputs.data.insert(inputs.data.end(), {fields_to_forecast(data), data});
    if (is_pattern(data))
      for (const std::string& file : find_field_files(data)) inputs.data.emplace_back(file);
  }
  for (const auto& [flag, path] : {std::pair("--out", o.out), std::pair("--scores", o.scores)}) {
    if (path.empty()) continue;
    if (path == o.scores || !holds_variables(path)) check_format(flag, path);
    check_output(flag, path, inputs);
  }
  check_differ("--out", o.out, "--scores", o.scores);
  if (!o.out.empty()) check_replaceable(o.out);
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
    const FieldSeries data(config.recipe.fields_before_sizes(field_paths(o)));
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
  config.run.compute.trains = false;
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

// What the forecasts were made by, as the files' attributes have it.
std::string history_of(const ForecastFlags& o, const fs::path& weights) {
  std::string data;
  for (const std::string& path : o.data) data += " --data " + path;
  const std::string starts = o.start.empty() ? " --starts " + o.starts : " --start " + o.start;
  const std::optional<std::int64_t> iteration = iteration_of_weights(weights);
  return concat("isobar forecast --weights ", o.weights, data, starts, " --steps ", o.steps,
                iteration ? concat(" (weights of iteration ", *iteration, ")") : "");
}

ForecastContents contents_of(const ForecastFlags& o, std::span<const std::int64_t> starts, const ForecastRun& run,
                             const Forecaster& forecaster, const ForecastSources& sources, const fs::path& weights) {
  const FieldSeries& dataset = sources.windows.series();
  ForecastContents contents{.channels = forecaster.output_names(),
                            .units = forecaster.info().units,
                            .starts = std::ssize(starts),
                            .leads = run.leads(),
                            .start_hours = {},
                            .step_hours = sources.times.step_hours(),
                            .times_are_stored = dataset.hours_since_1970(starts.front()).has_value(),
                            .height = dataset.height(),
                            .width = dataset.width(),
                            .latitudes = dataset.latitudes(),
                            .longitudes = dataset.longitudes(),
                            .source = concat("isobar ", kVersion),
                            .history = history_of(o, weights)};
  contents.units.resize(contents.channels.size());
  for (std::string& unit : contents.units) unit = unit_of_log_scale(unit);
  if (sources.times.are_known())
    for (const std::int64_t start : starts) contents.start_hours.push_back(sources.times.hours(start));
  return contents;
}

void tell_of_forecast(const ForecastFlags& o, std::span<const std::int64_t> starts, const ForecastContents& contents,
                      const StepTimes& times) {
  const auto named = [&](std::int64_t step) {
    return concat("step ", step, times.are_known() ? concat(" (", time_at(times.hours(step)).iso(), ")") : "");
  };
  const std::string grid = concat(contents.height, ", ", contents.width, "]");
  std::cout << "written to " << o.out << ": ";
  if (!holds_variables(o.out))
    std::cout << "the forecast from " << named(starts.front()) << ", fields [lead " << o.steps << ", channel "
              << contents.channels.size() << ", " << grid << ", HDF5 that h5py, netCDF and xarray read\n";
  else
    std::cout << contents.channels.size() << " channels [time " << starts.size() << ", prediction_timedelta " << o.steps
              << ", " << grid << ", from " << named(starts.front())
              << (starts.size() > 1 ? " to " + named(starts.back()) : "") << ", that xarray reads\n";
}

// How many starts go through the network together: what a quarter of the free memory holds.
std::int64_t batch_of(const ForecastFlags& o, std::size_t starts, const ForecastConfig& config,
                      const Forecaster& forecaster) {
  const Device device = forecaster.device();
  const auto most = static_cast<std::int64_t>(starts);
  if (o.batch || most == 1) return std::min(o.batch.value_or(1), most);
  const std::size_t free = device.kind == DeviceKind::cuda ? gpu::free_memory() : free_memory_bytes();
  return std::min(most, starts_that_fit(config.recipe.forecaster_options(), config.run.compute, forecaster.info(),
                                        device.kind, free / 4));
}

// Runs every start, writes the files of --out and --scores, and prints the table.
void forecast_all(const ForecastFlags& o, const StartRequest& request, const ForecastConfig& config,
                  const Forecaster& forecaster, const ForecastSources& sources, const fs::path& weights) {
  const FieldSeries& dataset = sources.windows.series();
  const std::vector<std::int64_t> starts = request.steps(dataset, sources.times);
  const ForecastRun run(forecaster, sources, o.steps, climatology_for(o, forecaster, dataset, weights));
  for (const std::int64_t start : starts) {
    run.check_start(start);
    if (!request.are_dates()) run.check_no_hole(start);
  }
  const ForecastContents contents = contents_of(o, starts, run, forecaster, sources, weights);
  const auto writer = o.out.empty() ? nullptr : make_forecast_writer(o.out, contents, o.format);
  LeadScores scores(forecaster, run.leads(), dataset.labels().step_hours, run.has_acc());
  run.run(starts, batch_of(o, starts.size(), config, forecaster), scores,
          [&](std::int64_t i, std::int64_t k, std::span<const float> fields) {
            if (writer) writer->put(i, k, fields);
          });
  if (writer) {
    writer->close();
    tell_of_forecast(o, starts, contents, sources.times);
  }
  if (!o.scores.empty()) write_file_atomically(o.scores, scores.json().dump(2) + "\n");
  std::cout << (scores.are_any() ? scores.table() : "the data have no truth at any lead: no scores\n") << std::flush;
}

void forecast(const ForecastFlags& o) {
  const StartRequest starts = starts_of(o);
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path file = weights_at(o.weights);
  check_outputs(o, file);
  ModelDescription description = describe_model(file);
  const std::optional<TrainedForecast> trained = trained_forecast(o, description);
  const ForecastConfig config = config_of(o, trained, file);
  const FieldSeries dataset(config.recipe.fields_at(field_paths(o)));
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
  const StepTimes times(dataset);
  std::optional<FieldSeries> forcings;
  std::optional<StepTimes> forcing_times;
  if (const auto options = config.recipe.forcings_at(field_paths(o)); options && o.steps > 1) {
    forcings.emplace(*options);
    forcing_times.emplace(*forcings);
  }
  forecast_all(o, starts, config, forecaster,
               {.windows = windows,
                .times = times,
                .forcings = forcings ? &*forcings : nullptr,
                .forcing_times = forcing_times ? &*forcing_times : nullptr},
               file);
}

}  // namespace

void register_forecast(CLI::App& app) {
  auto options = std::make_shared<ForecastFlags>();
  CLI::App* command = app.add_subcommand("forecast", "Forecast from a trained model, and score it");
  command->add_option("--weights", options->weights, "FILE.safetensors, or a run's folder (its best weights)")
      ->required();
  add_config_options(*command, options->config);
  command
      ->add_option("--data", options->data,
                   "a folder (its test/ or valid/, else itself), a file, a store, or a pattern; several are one "
                   "sequence in time")
      ->required()
      ->expected(1, -1);
  command->add_option("--stats", options->stats, "a folder with global_means.npy, global_stds.npy, time_means.npy");
  command->add_option("--start", options->start,
                      "the step to start from, counted over the files in order, or a date in UTC, as 2018-12-20T06");
  command->add_option("--starts", options->starts,
                      "many starts, scored together: steps A:B:S (from A, below B), or dates FIRST:LAST:12h, both "
                      "included");
  command->add_option("--steps", options->steps, "how many steps of the model")
      ->check(whole_number_from(1))
      ->capture_default_str();
  command->add_option("--out", options->out,
                      "the forecasts: FILE.nc (NetCDF) or FILE.zarr, or FILE.h5 for that of the first start alone");
  command
      ->add_option("--batch", options->batch,
                   "starts that go through the network together, which changes no number; default: as many as a "
                   "quarter of the free memory holds, at most 16")
      ->check(whole_number_from(1));
  command->add_flag("--compress", options->format.compress, ".nc, .zarr: compress the fields (deflate, level 1)");
  command->add_flag("--wb2", options->format.long_names,
                    ".nc, .zarr: the names of WeatherBench 2, as temperature with an axis level for t850 and t500");
  command->add_option("--scores", options->scores, "FILE.json for RMSE and ACC");
  command->callback([options] { forecast(*options); });
}

}  // namespace isobar
