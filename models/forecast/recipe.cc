#include "models/forecast/recipe.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/era5/field_file.h"
#include "data/era5/field_labels.h"
#include "data/era5/first_step.h"
#include "data/era5/latitude.h"
#include "data/era5/layout.h"
#include "kernels/common/check.h"
#include "models/forecast/description.h"
#include "models/forecast/fit.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// "+6 h", or in steps where the data do not say when a step is.
std::string lead_time(const Era5Dataset& dataset, std::int64_t step) {
  if (dataset.file_without_time() != nullptr) return concat("+", dataset.dt(), dataset.dt() == 1 ? " step" : " steps");
  const StepTime from = dataset.time_of(step), to = dataset.time_of(step + dataset.dt());
  const double days = to.day_of_year - from.day_of_year + (to.year == from.year ? 0 : from.days_in_year);
  return concat("+", std::round(days * 240) / 10, " h");
}

// What a user should know where files do not say when their steps are.
std::optional<std::string> about_time(const Era5Dataset& train, const Era5Dataset& valid, bool time_features) {
  const FieldFile* file = train.file_without_time();
  if (file == nullptr) file = valid.file_without_time();
  if (file == nullptr) return std::nullopt;
  return concat(
      file->path(), " has no 'time', and its name and its ", file->steps(), " steps are not those of a year: ",
      time_features ? "for time_features the steps are spread evenly over the year in the name" : "no hours are known");
}

// "2013-01-01 06:00"; empty where the files have no times of their own.
std::string valid_time(const Era5Dataset& dataset, std::int64_t step) {
  if (!dataset.hours_since_1970(step)) return "";
  std::string time = dataset.time_of(step).iso();
  std::replace(time.begin(), time.end(), 'T', ' ');
  return time;
}

void check_same_rows(const Era5Dataset& train, const Era5Dataset& valid) {
  const bool known = !train.latitudes().empty() && !valid.latitudes().empty();
  ISOBAR_CHECK(!known || train.latitudes() == valid.latitudes(), valid.file_name(0),
               ": its latitudes are not those of ", train.file_name(0));
}

}  // namespace

std::unique_ptr<Recipe> make_forecast_recipe() {
  return std::make_unique<ForecastRecipe>();
}

DataSizes sizes_of(const Era5Dataset& data) {
  return {data.channels(), data.height(), data.width(), data.file_without_time() == nullptr};
}

std::vector<KeyTable> ForecastRecipe::keys() {
  KeyTable fields = forecast.keys();
  fields.check = [this, own = std::move(fields.check)](const KeyOrigins& origins) {
    own(origins);
    vit.check_image(forecast.height(), forecast.width(), "img_size", origins);
  };
  return {vit.keys(), std::move(fields), split.keys()};
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

bool ForecastRecipe::wants_sizes() const {
  return !forecast.img_size || !forecast.n_in_channels || !forecast.n_out_channels || !vit.patch_size ||
         !forecast.time_features;
}

std::string ForecastRecipe::fill_sizes(const DataSizes& data, KeyOrigins& origins) {
  KeyFiller filler(origins);
  filler.fill("img_size", forecast.img_size, {data.height, data.width});
  filler.fill("patch_size", vit.patch_size, default_patch_size(forecast.height(), forecast.width()));
  filler.fill("n_in_channels", forecast.n_in_channels, data.channels);
  filler.fill("n_out_channels", forecast.n_out_channels, *forecast.n_in_channels);
  filler.fill("time_features", forecast.time_features, data.tells_time);
  return filler.told();
}

std::vector<std::string> ForecastRecipe::complete(KeyOrigins& origins) {
  const bool wants_ranges = split.is_one_path() && !split.allow_overlap && !(split.train_range && split.valid_range);
  if (!wants_ranges && !wants_sizes()) return {};

  const Era5Dataset data({.paths = {split.train_data_path}, .catalog = catalog_});
  std::vector<std::string> sentences;
  if (const std::string sizes = fill_sizes(sizes_of(data), origins); !sizes.empty())
    sentences.push_back("from the data: " + sizes);
  if (!wants_ranges) return sentences;
  KeyFiller ranges(origins);
  SplitOptions completed = split;
  completed.complete_ranges(data.steps());
  ranges.fill("train_range", split.train_range, *completed.train_range);
  ranges.fill("valid_range", split.valid_range, *completed.valid_range);
  sentences.push_back(concat("training and validation are parts of ", split.train_data_path, " (", data.steps(),
                             " steps): ", ranges.told()));
  return sentences;
}

Era5Dataset ForecastRecipe::open_fields(const std::string& path, const std::optional<StepRange>& range,
                                        const char* range_key) const {
  return Era5Dataset({.paths = {path},
                      .channels = forecast.channel_names.value_or(std::vector<std::string>()),
                      .height = forecast.height(),
                      .width = forecast.width(),
                      .grid_key = "img_size",
                      .dt = split.dt,
                      .range = range,
                      .range_key = range_key,
                      .catalog = catalog_});
}

std::vector<std::string> ForecastRecipe::channel_names_of(const Era5Dataset& dataset) const {
  ISOBAR_CHECK(dataset.channels() == *forecast.n_in_channels, dataset.file_name(0), ": fields has ", dataset.channels(),
               " channels, but n_in_channels is ", *forecast.n_in_channels);
  return forecast.channel_names.value_or(dataset.channel_names());
}

// Where nobody has made statistics, or the run's own are to be made anew, they are made from the training steps and
// kept in the run folder, which the config then names. Returns the sentence that says so.
std::optional<std::string> ForecastRecipe::choose_statistics(const fs::path& kept, bool resumed) {
  const fs::path own = fs::absolute(kept).lexically_normal();
  const fs::path looked_in = fs::path(split.global_means_path).parent_path();
  const std::array paths{&split.global_means_path, &split.global_stds_path, &split.time_means_path};
  bool missing = true;
  for (const std::string* path : paths) missing = missing && !fs::exists(*path);
  const bool anew = !resumed && looked_in == own;
  if (!anew && !missing) return std::nullopt;
  bool taken = resumed;
  for (std::string* path : paths) {
    *path = (own / fs::path(*path).filename()).string();
    taken = taken && fs::exists(*path);
  }
  make_statistics_ = !taken;
  return concat("no statistics in ", looked_in.string(), ": ",
                taken ? "the run's own are taken, " : "they are made from the training steps and kept in ",
                own.string());
}

FieldsInfo ForecastRecipe::info_of(const Era5Dataset& dataset, const Statistics& statistics) const {
  return {.channel_names = channel_names_of(dataset),
          .statistics = statistics,
          .row_weights = latitude_weights(dataset),
          .latitudes = dataset.latitudes(),
          .longitudes = dataset.longitudes()};
}

std::vector<std::string> ForecastRecipe::open(const fs::path& kept, bool resumed) {
  std::vector<std::string> sentences;
  if (const auto sentence = choose_statistics(kept, resumed)) sentences.push_back(*sentence);
  train_.emplace(open_fields(split.train_data_path, split.train_range, "train_range"));
  forecast.channel_names = channel_names_of(*train_);
  pictured_channels(forecast, {forecast.channel_names->begin(),
                               forecast.channel_names->begin() + *forecast.n_out_channels});  // throws early
  valid_.emplace(open_fields(split.valid_data_path, split.valid_range, "valid_range"));
  if (const auto sentence = about_time(*train_, *valid_, *forecast.time_features)) sentences.push_back(*sentence);
  if (make_statistics_ && !made_) made_ = compute_statistics(*train_);
  if (made_) check_deviations(made_->stds, concat("the training steps of ", split.train_data_path));
  const auto pairs = [&](const Era5Dataset& steps, const std::optional<std::int64_t>& limit) {
    return PairDataset(steps,
                       {.kind = split.sampler, .limit = limit.value_or(0), .time_features = *forecast.time_features});
  };
  train_pairs_.emplace(pairs(*train_, split.limit_nsamples));
  valid_pairs_.emplace(pairs(*valid_, split.limit_nsamples_val));
  check_same_rows(*train_, *valid_);
  if (!split.allow_overlap) refuse_overlap(*train_, *valid_);
  check_labels(valid_->labels(), valid_->file_name(0), train_->labels(), train_->file_name(0));
  info_ = info_of(*train_,
                  made_ ? static_cast<const Statistics&>(*made_)
                        : load_statistics(split.global_means_path, split.global_stds_path, *forecast.n_in_channels));
  label_from_statistics(info_, *train_, fs::path(split.global_means_path).parent_path());
  if (others_look_) return sentences;
  for (const PairDataset* set : {&*train_pairs_, &*valid_pairs_})
    check_first_step(set->steps(), set->step_of(0), info_.channel_names, info_.statistics);
  return sentences;
}

void ForecastRecipe::keep(const fs::path& kept) const {
  if (made_) write_statistics(*made_, train_->height(), train_->width(), kept.string());
}

// Time means, which may be as large as all weights, are for the process that keeps them.
std::string ForecastRecipe::findings() const {
  nlohmann::json json{{"catalog", catalog_->pack()}};
  if (made_) json["statistics"] = {{"means", made_->means}, {"stds", made_->stds}, {"labels", nullptr}};
  if (made_ && made_->labels) json["statistics"]["labels"] = to_json(*made_->labels);
  std::string packed;
  nlohmann::json::to_cbor(json, packed);
  return packed;
}

void ForecastRecipe::adopt(const std::string& findings) {
  others_look_ = true;
  try {
    const nlohmann::json json = nlohmann::json::from_cbor(findings);
    *catalog_ = FieldCatalog::unpack(json.at("catalog"));
    if (!json.contains("statistics")) return;
    const nlohmann::json& statistics = json.at("statistics");
    made_.emplace();
    statistics.at("means").get_to(made_->means);
    statistics.at("stds").get_to(made_->stds);
    if (!statistics.at("labels").is_null()) made_->labels = labels_from_json(statistics.at("labels"), "the statistics");
  } catch (const nlohmann::json::exception& error) {
    throw_error("what the first process found in the data cannot be read: ", error.what());
  }
}

std::vector<std::string> ForecastRecipe::warnings() const {
  return doubts_about_units({.units = info_.units}, info_.channel_names, info_.statistics.means);
}

std::vector<std::string> ForecastRecipe::notes() const {
  std::vector<std::string> notes;
  for (const auto& [set, dataset] : {std::pair("training", &*train_), std::pair("validation", &*valid_)})
    if (const std::string left_out = describe_left_out(*dataset, split.sampler); !left_out.empty())
      notes.push_back(std::string(set) + ": " + left_out);
  return notes;
}

void ForecastRecipe::check_start(const GivenWeights& weights) const {
  if (const auto trained = fields_info_of(weights, forecast, split.dt))
    check_units(*trained, weights.file.string(), *train_, info_);
}

void ForecastRecipe::check_resume(const GivenWeights& weights) const {
  check_start(weights);
  if (const auto trained = fields_info_of(weights, forecast, split.dt))
    check_lead_time(*trained, split.dt, weights.file.string(), *train_);
}

ForecasterOptions ForecastRecipe::forecaster_options() const {
  return {.vit = vit, .forecast = forecast, .dt = split.dt};
}

Holding ForecastRecipe::holding(const ComputeOptions& compute, const Parallel& parallel) const {
  ISOBAR_CHECK(!wants_sizes(),
               "the sizes of the grid, the channels, the patches or the time features are left to the "
               "data: set img_size, n_in_channels, n_out_channels, patch_size and time_features");
  const VitConfig config = vit_config(forecaster_options(), compute);
  Parameters parameters;
  const Vit vit(config, parameters, parallel);
  return {dealt_of(config.trunk, parallel), parameters.held()};
}

std::unique_ptr<Task> ForecastRecipe::make_task(const ComputeOptions& compute, Device device,
                                                const Parallel& parallel) const {
  return make_task_of(info_, compute, device, parallel);
}

std::unique_ptr<Task> ForecastRecipe::make_trained_task(const GivenWeights& weights, const ComputeOptions& compute,
                                                        Device device) const {
  FieldsInfo info = info_;
  if (const auto trained = fields_info_of(weights, forecast, split.dt)) info.statistics = trained->statistics;
  return make_task_of(info, compute, device);
}

std::unique_ptr<Task> ForecastRecipe::make_task_of(const FieldsInfo& info, const ComputeOptions& compute, Device device,
                                                   const Parallel& parallel) const {
  ForecasterOptions options = forecaster_options();
  const std::int64_t drawn = valid_pairs_->step_of(0);
  options.lead_time = lead_time(*valid_, drawn);
  options.valid_time = valid_time(*valid_, drawn + split.dt);
  return std::make_unique<Forecaster>(options, compute, info, device, parallel);
}

}  // namespace isobar
