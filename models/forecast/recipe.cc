#include "models/forecast/recipe.h"

#include <numeric>
#include <utility>

#include "data/fields/latitude.h"
#include "data/fields/layout.h"
#include "data/files/hdf5.h"
#include "kernels/common/check.h"
#include "models/forecast/description.h"
#include "models/forecast/meaning.h"
#include "models/forecast/opened.h"

namespace isobar {

namespace fs = std::filesystem;

std::unique_ptr<Recipe> make_forecast_recipe(std::shared_ptr<NetworkRecipe> network) {
  return std::make_unique<ForecastRecipe>(std::move(network));
}

namespace {

// The variables' names. If the data give them, those whose points may be missing are taken for the first ones: which
// they are changes neither sizes nor exchanges.
std::vector<std::string> names_on_shapes(const ForecastOptions& forecast) {
  std::vector<std::string> names = forecast.channel_names.value_or(std::vector<std::string>());
  if (!forecast.channel_names)
    for (const auto& [name, value] : forecast.missing.value_or(NumbersOrWords())) names.push_back(name);
  names.resize(static_cast<std::size_t>(forecast.variables()));
  return names;
}

// A forecast of fields of which only the sizes are known.
class ForecastOnShapes : public TaskSource {
 public:
  explicit ForecastOnShapes(ForecasterOptions options) : options_(std::move(options)) {}

  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    const auto channels = static_cast<std::size_t>(options_.forecast.variables());
    const auto extras = static_cast<std::size_t>(options_.forecast.extras());
    const auto rows = static_cast<std::size_t>(options_.forecast.height());
    FieldsInfo info;
    info.channel_names = names_on_shapes(options_.forecast);
    info.statistics = {.means = std::vector<double>(channels, 0.0), .stds = std::vector<double>(channels, 1.0)};
    info.extra_means.assign(extras, 0.0);
    info.extra_stds.assign(extras, 1.0);
    info.row_weights.assign(rows, 1.0);
    return std::make_unique<Forecaster>(options_, compute, std::move(info), device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>& rows) const override {
    const ForecastOptions& forecast = options_.forecast;
    const std::int64_t height = rows ? rows->count : forecast.height(), width = forecast.width();
    return pair_layout({.input = {forecast.input_planes(), height, width},
                        .target = {*forecast.n_out_channels, height, width},
                        .time_features = *forecast.time_features,
                        .counts_points = forecast.targets_may_be_missing(names_on_shapes(forecast)),
                        .steps = forecast.rollout.longest(),
                        .given_planes = forecast.given_planes()});
  }

 private:
  const ForecasterOptions options_;
};

}  // namespace

DataSizes sizes_of(const FieldSeries& data) {
  return {data.channels(), data.height(), data.width(), data.file_without_times() == nullptr};
}

std::vector<KeyTable> ForecastRecipe::keys() {
  KeyTable fields = forecast.keys();
  fields.check = [this, own = std::move(fields.check)](const KeyOrigins& origins) {
    own(origins);
    network_->check(network_ports(forecast, *network_), origins.where("img_size"));
  };
  return {std::move(fields), forecast.rollout.keys(), split.keys()};
}

std::vector<std::pair<std::string, fs::path>> ForecastRecipe::paths_in(const fs::path& folder) const {
  const DataLayout layout = layout_of(folder);
  return {{"train_data_path", layout.train},
          {"valid_data_path", layout.valid},
          {"inf_data_path", layout.test},
          {"global_means_path", layout.statistics / kMeansFile},
          {"global_stds_path", layout.statistics / kStdsFile},
          {"time_means_path", layout.statistics / kTimeMeansFile}};
}

bool ForecastRecipe::needs_sizes() const {
  return !forecast.img_size || !forecast.n_in_channels || !forecast.n_out_channels || network_->needs_data() ||
         !forecast.time_features || !forecast.pad_grid;
}

std::string ForecastRecipe::fill_sizes(const DataSizes& data, KeyOrigins& origins) {
  KeyFiller filler(origins);
  const bool has_grid = forecast.img_size.has_value();
  filler.fill("img_size", forecast.img_size, {data.height, data.width});
  filler.fill("n_in_channels", forecast.n_in_channels, data.channels);
  filler.fill("n_out_channels", forecast.n_out_channels, *forecast.n_in_channels);
  filler.fill("time_features", forecast.time_features, data.has_times);
  Ports ports = forecast_ports(forecast);
  ports.may_be_padded = forecast.pad_grid.value_or(!has_grid);
  network_->fill(ports, filler);
  const std::int64_t multiple = network_->multiple();
  const bool fits = forecast.height() % multiple == 0 && forecast.width() % multiple == 0;
  filler.fill("pad_grid", forecast.pad_grid, !has_grid && !fits);
  return filler.summary();
}

std::vector<std::string> ForecastRecipe::fill_from_data(KeyOrigins& origins,
                                                        const std::shared_ptr<FieldCatalog>& catalog) {
  std::vector<std::string> sentences;
  if (const std::string counts = forecast.fill_from_roles(origins); !counts.empty())
    sentences.push_back("from the roles of the channels: " + counts);
  const bool wants_ranges = split.is_one_path() && !split.allow_overlap && !(split.train_range && split.valid_range);
  if (!wants_ranges && !needs_sizes() && !split.lead_time) return sentences;

  const FieldSeries data(fields_before_sizes({split.train_data_path}, catalog));
  if (split.lead_time) sentences.push_back(fill_dt(data, origins));
  if (const std::string sizes = fill_sizes(sizes_of(data), origins); !sizes.empty())
    sentences.push_back("from the data: " + sizes);
  if (!wants_ranges) return sentences;
  KeyFiller ranges(origins);
  SplitOptions completed = split;
  completed.count_dates(data);
  completed.complete_ranges(data.steps());
  ranges.fill("train_range", split.train_range, *completed.train_range);
  ranges.fill("valid_range", split.valid_range, *completed.valid_range);
  sentences.push_back(concat("training and validation are parts of ", split.train_data_path, " (", data.steps(),
                             " steps): ", ranges.summary()));
  return sentences;
}

FieldSeriesOptions ForecastRecipe::fields_before_sizes(const std::vector<std::string>& paths,
                                                       const std::shared_ptr<FieldCatalog>& catalog) const {
  return {.paths = paths,
          .channels = forecast.channels ? *forecast.channel_names : std::vector<std::string>(),
          .choose = forecast.channels.has_value(),
          .spans_files = split.span_files,
          .catalog = catalog};
}

// Sets dt to the lead time. Error if dt was set to another number of steps.
std::string ForecastRecipe::fill_dt(const FieldSeries& data, KeyOrigins& origins) {
  const std::int64_t steps = steps_of_lead_time(*split.lead_time, data);
  ISOBAR_CHECK(split.dt == 1 || split.dt == steps, origins.where("dt"), " is ", split.dt, ", but ",
               origins.where("lead_time"), " is ", *split.lead_time, ", which is ", steps,
               steps == 1 ? " step" : " steps", " of ", data.file_name(0));
  split.dt = steps;
  origins.set("dt", "lead_time");
  return concat("lead_time ", *split.lead_time, ": dt ", steps);
}

FieldSeriesOptions ForecastRecipe::fields_at(const std::vector<std::string>& paths) const {
  return {.paths = paths,
          .channels = forecast.channel_names.value_or(std::vector<std::string>()),
          .choose = forecast.channels.has_value(),
          .missing = channels_with_missing_points(),
          .filled_chunks = channels_with_filled_chunks(),
          .sums = forecast.accumulate.value_or(std::vector<std::string>()),
          .log_scales = log_scales(),
          .height = forecast.height(),
          .width = forecast.width(),
          .grid_key = "img_size",
          .dt = split.dt,
          .spans_files = split.span_files};
}

std::optional<FieldSeriesOptions> ForecastRecipe::forcings_at(const std::vector<std::string>& paths) const {
  if (!forecast.channels || forecast.forcings() == 0) return std::nullopt;
  FieldSeriesOptions options = fields_at(paths);
  options.channels.erase(options.channels.begin(), options.channels.begin() + *forecast.n_out_channels);
  return options;
}

std::vector<std::string> ForecastRecipe::channels_with_missing_points() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : forecast.missing.value_or(NumbersOrWords()))
    if (forecast.may_be_missing(name)) names.push_back(name);
  return names;
}

std::vector<std::string> ForecastRecipe::channels_with_filled_chunks() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : forecast.missing.value_or(NumbersOrWords()))
    if (value == NumberOrWord("fill")) names.push_back(name);
  return names;
}

std::map<std::string, double> ForecastRecipe::log_scales() const {
  std::map<std::string, double> scales;
  for (const auto& [name, value] : forecast.transforms.value_or(NumbersOrWords()))
    scales[name] = forecast.log_scale(name);
  return scales;
}

PairOptions ForecastRecipe::pairs_of(DataSplit set, const FieldSeries& dataset, bool is_scored,
                                     const CarriedConstants& carried) const {
  return {.kind = split.sampler,
          .limit = split.source(set).limit.value_or(0),
          .time_features = *forecast.time_features,
          .windows = windows_of(dataset, carried),
          .counts_points = forecast.targets_may_be_missing(channel_names_of(dataset)),
          .diagnostics_before = is_scored,
          .steps = is_scored ? forecast.rollout.valid_steps() : forecast.rollout.longest()};
}

WindowOptions ForecastRecipe::windows_of(const FieldSeries& dataset, const CarriedConstants& carried) const {
  const auto numbers = [](std::int64_t first, std::int64_t end) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(end - first));
    std::iota(list.begin(), list.end(), first);
    return list;
  };
  const std::int64_t outputs = *forecast.n_out_channels;
  WindowOptions windows{.channels = numbers(0, forecast.prognostics()),
                        .forcings = numbers(outputs, forecast.variables()),
                        .diagnostics = numbers(forecast.prognostics(), outputs),
                        .history = forecast.history,
                        .constants = read_constants(forecast.constant_channels.value_or(TextMap()), dataset, carried)};
  if (forecast.computed_channels && !forecast.computed_channels->empty())
    windows.computed = std::make_shared<const ComputedPlanes>(*forecast.computed_channels,
                                                              GridPoints{dataset.latitudes(), dataset.longitudes()},
                                                              dataset.labels().step_hours, RadiationUnit::joule);
  return windows;
}

Statistics ForecastRecipe::statistics_at(const std::string& means, const std::string& stds,
                                         const FieldSeries& dataset) const {
  return forecast.channels ? load_statistics(means, stds, dataset.channel_names())
                           : load_statistics(means, stds, dataset.channels());
}

std::vector<double> ForecastRecipe::change_stds_at(const fs::path& folder, const FieldSeries& dataset) const {
  if (!needs_changes()) return {};
  const std::string path = (folder / kTimeDiffStdsFile).string();
  ISOBAR_CHECK(fs::exists(path), "config key channel_weights is change, and there is no ", path,
               ": isobar data stats writes it");
  std::vector<double> stds = forecast.channels ? load_time_diff_stds(path, dataset.channel_names())
                                               : load_time_diff_stds(path, dataset.channels());
  stds.resize(static_cast<std::size_t>(*forecast.n_out_channels));
  return stds;
}

std::vector<std::string> ForecastRecipe::channel_names_of(const FieldSeries& dataset) const {
  ISOBAR_CHECK(dataset.channels() == forecast.variables(), dataset.file_name(0), ": fields has ", dataset.channels(),
               " channels, but n_in_channels is ", *forecast.n_in_channels);
  return forecast.channel_names.value_or(dataset.channel_names());
}

FieldsInfo ForecastRecipe::info_of(const Windows& windows, const Statistics& statistics) const {
  const FieldSeries& dataset = windows.series();
  FieldsInfo info{.channel_names = channel_names_of(dataset),
                  .statistics = statistics,
                  .row_weights = latitude_weights(dataset, forecast.latitude_weights),
                  .latitudes = dataset.latitudes(),
                  .longitudes = dataset.longitudes()};
  const auto& computed = windows.options().computed;
  for (std::size_t plane = 0; computed && plane < computed->names().size(); ++plane) {
    info.extra_means.push_back(computed->mean(plane));
    info.extra_stds.push_back(computed->deviation(plane));
  }
  info.extra_names = forecast.extra_names();
  info.constants = windows.options().constants;
  for (const ConstantField& constant : info.constants) {
    info.extra_means.push_back(constant.mean);
    info.extra_stds.push_back(constant.deviation);
  }
  return info;
}

// KeyTable::check of the fields asks the network whether it supports the grid.
void ForecastRecipe::check_filled_keys(const KeyOrigins& origins) {
  std::vector<KeyTable> tables = keys();
  tables.push_back(network_->keys());
  check_keys(tables, origins);
}

std::unique_ptr<OpenedRecipe> ForecastRecipe::open(KeyOrigins& origins, const OpenRequest& request) {
  if (!request.process.trial.empty()) hdf5::File::try_by(request.process.trial);
  ForecastFindings findings = ForecastFindings::unpack(request.findings);
  std::vector<std::string> sentences = fill_from_data(origins, findings.catalog);
  check_filled_keys(origins);
  return std::make_unique<OpenedForecast>(*this, request, std::move(findings), std::move(sentences));
}

std::unique_ptr<OpenedSplit> ForecastRecipe::open_split(DataSplit set, const GivenWeights& weights) const {
  return std::make_unique<OpenedForecastSplit>(*this, set, weights);
}

std::unique_ptr<OpenedPrediction> ForecastRecipe::open_prediction(const PredictionRequest&,
                                                                  const GivenWeights& weights) const {
  throw_error(weights.file.string(), " is a model of the task ", kForecastTask, ": use isobar forecast");
}

FieldsMeaning ForecastRecipe::meaning_of(const GivenWeights& weights) const {
  const std::optional<FieldsInfo> info = fields_info_of(weights, forecast, split.dt);
  return info ? meaning_of(*info) : FieldsMeaning();
}

FieldsMeaning ForecastRecipe::meaning_of(const FieldsInfo& info) const {
  return isobar::meaning_of(forecast, info, *network_);
}

ForecasterOptions ForecastRecipe::forecaster_options() const {
  return {.network = network_, .forecast = forecast, .dt = split.dt};
}

std::unique_ptr<TaskSource> ForecastRecipe::on_shapes() const {
  ISOBAR_CHECK(!needs_sizes(),
               "the sizes of the grid, the channels, the patches, the time features or the padding are left to the "
               "data: set img_size, n_in_channels, n_out_channels, patch_size, time_features and pad_grid");
  return std::make_unique<ForecastOnShapes>(forecaster_options());
}

}  // namespace isobar
