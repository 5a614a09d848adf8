#include "models/forecast/opened.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "data/fields/field_file.h"
#include "data/fields/field_labels.h"
#include "data/fields/first_step.h"
#include "data/fields/latitude.h"
#include "data/fields/layout.h"
#include "data/fields/preliminary.h"
#include "data/fields/split.h"
#include "kernels/common/check.h"
#include "models/forecast/description.h"
#include "models/forecast/fit.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// "+6 h", or a number of steps if the times of steps are unknown.
std::string lead_time(const FieldSeries& dataset, std::int64_t step) {
  if (dataset.file_without_times() != nullptr) return concat("+", dataset.dt(), dataset.dt() == 1 ? " step" : " steps");
  const auto hours = [&](std::int64_t at) {  // steps that are spread over a year are of one file, and so of one year
    return dataset.hours_since_1970(at).value_or(24 * dataset.time_of(at).day_of_year);
  };
  return concat("+", std::round((hours(step + dataset.dt()) - hours(step)) * 10) / 10, " h");
}

// A sentence for the user if the times of steps are not in the files.
std::optional<std::string> about_time(const FieldSeries& train, const FieldSeries& valid, bool time_features) {
  const FieldFile* file = train.file_without_times();
  if (file == nullptr) file = valid.file_without_times();
  if (file == nullptr) return std::nullopt;
  return concat(
      file->path(), " has no 'time', and its name and its ", file->steps(), " steps are not those of a year: ",
      time_features ? "for time_features the steps are spread evenly over the year in the name" : "no hours are known");
}

// "2013-01-01 06:00"; empty if the files have no times of their own.
std::string valid_time(const FieldSeries& dataset, std::int64_t step) {
  if (!dataset.hours_since_1970(step)) return "";
  std::string time = dataset.time_of(step).iso();
  std::replace(time.begin(), time.end(), 'T', ' ');
  return time;
}

void check_same_rows(const FieldSeries& train, const FieldSeries& valid) {
  const bool known = !train.latitudes().empty() && !valid.latitudes().empty();
  ISOBAR_CHECK(!known || train.latitudes() == valid.latitudes(), valid.file_name(0),
               ": its latitudes are not those of ", train.file_name(0));
}

// If there are no statistics, or the run's own must be recomputed, they are computed from the training steps and kept
// in the run's folder, if there is one.
StatisticsPlaces choose_statistics(const SplitOptions& split, const OpenRequest& request) {
  StatisticsPlaces places{split.global_means_path, split.global_stds_path, split.time_means_path};
  const std::array paths{&places.means, &places.stds, &places.time_means};
  const fs::path looked_in = fs::path(places.means).parent_path();
  const std::string none_there = concat("no statistics in ", looked_in.string(), ": ");
  const bool missing = std::ranges::none_of(paths, [](const std::string* path) { return fs::exists(*path); });
  if (request.kept.empty()) {
    places.are_missing = missing;
    if (missing) places.sentence = none_there + "they are made from the training steps";
    return places;
  }
  const fs::path own = fs::absolute(request.kept).lexically_normal();
  const bool anew = !request.resumed && looked_in == own;
  places.are_own = looked_in == own;
  if (!anew && !missing) return places;
  bool taken = request.resumed;
  for (std::string* path : paths) {
    *path = (own / fs::path(*path).filename()).string();
    taken = taken && fs::exists(*path);
  }
  places.are_own = true;
  places.are_missing = !taken;
  places.sentence = none_there +
                    (taken ? "the run's own are taken, " : "they are made from the training steps and kept in ") +
                    own.string();
  return places;
}

// Error if no point of a variable ever has a value: on a part of the grid this may be so where the whole grid has some.
void check_is_somewhere(const FieldsInfo& info, std::int64_t pixels, const std::string& source) {
  for (std::size_t c = 0; c * static_cast<std::size_t>(pixels) < info.never_there.size(); ++c) {
    const auto first = info.never_there.begin() + static_cast<std::ptrdiff_t>(c) * pixels;
    ISOBAR_CHECK(std::find(first, first + pixels, 0) != first + pixels, source, ": channel ", info.channel_names[c],
                 " is missing at every point of the grid in every step");
  }
}

}  // namespace

OpenedForecast::OpenedForecast(ForecastRecipe recipe, const OpenRequest& request, ForecastFindings findings,
                               std::vector<std::string> sentences)
    : recipe_(std::move(recipe)),
      findings_(std::move(findings)),
      process_(request.process),
      statistics_(choose_statistics(recipe_.split, request)),
      train_(files_of(DataSplit::train), recipe_, DataSplit::train, /*is_scored=*/false),
      shorter_views_(make_shorter_views()),
      names_(named_channels()),
      valid_(files_of(DataSplit::valid), recipe_, DataSplit::valid, /*is_scored=*/true),
      leads_(make_leads()),
      test_(open_test()),
      info_(make_info()),
      sentences_(std::move(sentences)) {
  if (!statistics_.sentence.empty()) sentences_.push_back(statistics_.sentence);
  if (const std::string padding =
          about_padding(recipe_.forecast, *recipe_.forecaster_options().network, info_.longitudes);
      !padding.empty())
    sentences_.push_back(padding);
  if (const auto sentence = about_time(train_.steps, valid_.steps, *recipe_.forecast.time_features))
    sentences_.push_back(*sentence);
  if (findings_.of_another_process) return;
  for (const OpenedPairs* set : sets())
    check_first_step(set->steps, set->pairs.step_of(0), info_.channel_names, info_.statistics);
}

FieldSeriesOptions OpenedForecast::files_of(DataSplit split) const {
  const SplitSource source = recipe_.split.source(split);
  FieldSeriesOptions files = recipe_.fields_at({source.path});
  files.range = source.range;
  files.range_key = source.range_key;
  files.catalog = findings_.catalog;
  files.processes_on_host = process_.processes_on_host;
  if (split != DataSplit::train) files.channels = names_;
  return files;
}

// Throws Error for pictures of an unknown variable, before any field is read.
std::vector<std::string> OpenedForecast::named_channels() const {
  std::vector<std::string> names = recipe_.channel_names_of(train_.steps);
  pictured_channels(recipe_.forecast, {names.begin(), names.begin() + *recipe_.forecast.n_out_channels});
  return names;
}

// The samples of each stage are the same; only its own steps of them are read.
std::map<std::int64_t, PairDataset> OpenedForecast::make_shorter_views() const {
  std::map<std::int64_t, PairDataset> views;
  for (const RolloutStage& stage : recipe_.forecast.rollout.stages())
    if (stage.steps < train_.pairs.window_steps()) views.emplace(stage.steps, train_.pairs.shortened(stage.steps));
  return views;
}

std::vector<TrainingStage> OpenedForecast::stages() const {
  std::vector<TrainingStage> stages;
  for (const auto& [from, steps] : recipe_.forecast.rollout.stages()) {
    const auto view = shorter_views_.find(steps);
    stages.push_back({from, view == shorter_views_.end() ? &train_.pairs : &view->second,
                      concat("forecasts of ", steps, steps == 1 ? " step" : " steps")});
  }
  return stages;
}

// Config key valid_leads, in steps of the model.
std::vector<ScoredLead> OpenedForecast::valid_leads() const {
  std::vector<ScoredLead> leads;
  for (const std::string& lead : recipe_.forecast.rollout.valid_leads.value_or(std::vector<std::string>())) {
    const std::int64_t steps = steps_of_lead_time(lead, valid_.steps, "valid_leads"), dt = recipe_.split.dt;
    ISOBAR_CHECK(steps % dt == 0, "config key valid_leads has ", lead, ", which is ", steps, " steps of ",
                 valid_.steps.file_name(0), ", but a step of the model is dt = ", dt, " of them");
    leads.push_back({steps / dt, lead});
  }
  return leads;
}

std::optional<PairDataset> OpenedForecast::make_leads() const {
  constexpr std::int64_t kStarts = 64;
  const std::vector<ScoredLead> leads = valid_leads();
  if (leads.empty()) return std::nullopt;
  PairOptions pairs = recipe_.pairs_of(DataSplit::valid, valid_.steps, /*is_scored=*/true);
  pairs.kind = SamplerKind::all_pairs;
  pairs.steps = leads.back().steps;
  return PairDataset(valid_.steps, pairs).spread(kStarts);
}

std::unique_ptr<const OpenedPairs> OpenedForecast::open_test() const {
  if (!recipe_.split.has_test()) return nullptr;
  return std::make_unique<const OpenedPairs>(files_of(DataSplit::test), recipe_, DataSplit::test, /*is_scored=*/true);
}

std::vector<const OpenedPairs*> OpenedForecast::sets() const {
  std::vector<const OpenedPairs*> sets{&train_, &valid_};
  if (test_) sets.push_back(test_.get());
  return sets;
}

// The test set is compared with the validation set too, which chooses the best weights: a test on its steps would be
// biased.
void OpenedForecast::check_sets() const {
  for (const OpenedPairs* set : sets()) {
    const FieldSeries& steps = set->steps;
    check_same_rows(train_.steps, steps);
    check_labels(steps.labels(), steps.file_name(0), train_.steps.labels(), train_.steps.file_name(0));
  }
  if (recipe_.split.allow_overlap) return;
  const NamedSet train{train_.steps, "train_range", "trained"}, valid{valid_.steps, "valid_range", "validation"};
  refuse_overlap(train, valid);
  if (!test_) return;
  const NamedSet test{test_->steps, "test_range", "the test"};
  refuse_overlap(train, test);
  refuse_overlap({valid_.steps, "valid_range", "validated"}, test);
}

ComputedStatistics OpenedForecast::computed_statistics() const {
  return compute_statistics(train_.steps, /*threads=*/0, kStatisticsWindow,
                            recipe_.needs_changes() ? TimeDifferences::computed : TimeDifferences::left_out);
}

FieldsInfo OpenedForecast::make_info() {
  check_sets();
  std::optional<ComputedStatistics>& made = findings_.statistics;
  if (statistics_.are_missing && !made) made = computed_statistics();
  if (made) check_deviations(made->stds, concat("the training steps of ", recipe_.split.train_data_path));
  FieldsInfo info = recipe_.info_of(train_.pairs.windows(),
                                    made ? static_cast<const Statistics&>(*made)
                                         : recipe_.statistics_at(statistics_.means, statistics_.stds, train_.steps));
  const fs::path folder = fs::path(statistics_.means).parent_path();
  label_from_statistics(info, train_.steps, folder, statistics_.are_own);
  info.change_stds = made ? made->time_diff_stds : recipe_.change_stds_at(folder, train_.steps);
  if (!info.change_stds.empty()) info.change_stds.resize(static_cast<std::size_t>(*recipe_.forecast.n_out_channels));
  if (!recipe_.channels_with_missing_points().empty())
    info.never_there =
        made ? made->never_there
             : load_never_there(folder.string(), train_.steps.channels(), train_.steps.height(), train_.steps.width());
  check_is_somewhere(info, recipe_.forecast.pixels(),
                     made ? train_.steps.file_name(0) : (folder / kMissingFile).string());
  const auto outputs = static_cast<std::size_t>(*recipe_.forecast.n_out_channels * recipe_.forecast.pixels());
  info.never_there.resize(std::min(info.never_there.size(), outputs));
  return info;
}

std::vector<FoundKey> OpenedForecast::found() const {
  std::vector<FoundKey> found{{"channel_names", names_}};
  if (statistics_.are_own)
    found.insert(found.end(), {{"global_means_path", statistics_.means},
                               {"global_stds_path", statistics_.stds},
                               {"time_means_path", statistics_.time_means}});
  return found;
}

void OpenedForecast::keep(const fs::path& kept) const {
  if (findings_.statistics)
    write_statistics(*findings_.statistics, train_.steps.height(), train_.steps.width(), kept.string());
}

std::vector<std::string> OpenedForecast::warnings() const {
  return unit_warnings({.units = info_.units}, info_.channel_names, info_.statistics.means);
}

std::vector<std::string> OpenedForecast::notes() const {
  std::vector<std::string> notes;
  if (!are_carried(info_.constants))
    notes.push_back("the constants are too large for a file of weights: forecasts will need their files");
  for (const auto& [set, opened] :
       {std::pair("training", &train_), std::pair("validation", &valid_), std::pair("test", test_.get())}) {
    if (opened == nullptr) continue;
    if (const std::string left_out =
            describe_left_out(opened->steps, recipe_.split.sampler, opened->pairs.window_steps());
        !left_out.empty())
      notes.push_back(std::string(set) + ": " + left_out);
    if (findings_.of_another_process) continue;
    if (const std::string preliminary = describe(find_preliminary(opened->steps), opened->steps); !preliminary.empty())
      notes.push_back(std::string(set) + ": " + preliminary);
  }
  return notes;
}

void OpenedForecast::check_start(const GivenWeights& weights) const {
  if (const auto trained = fields_info_of(weights, recipe_.forecast, recipe_.split.dt))
    check_units(*trained, weights.file.string(), train_.steps, info_);
}

void OpenedForecast::check_resume(const GivenWeights& weights) const {
  check_start(weights);
  const auto trained = fields_info_of(weights, recipe_.forecast, recipe_.split.dt);
  if (!trained) return;
  check_lead_time(*trained, recipe_.split.dt, weights.file.string(), train_.steps);
  check_carried(info_.constants, recipe_.forecast.constant_channels.value_or(TextMap()),
                carried_by(*trained, weights.file.string()));
}

std::unique_ptr<Task> OpenedForecast::make_task(const ComputeOptions& compute, Device device,
                                                const Parallel& parallel) const {
  return make_task_of(info_, compute, device, parallel);
}

std::unique_ptr<Task> OpenedForecast::make_trained_task(const GivenWeights& weights, const ComputeOptions& compute,
                                                        Device device, const Parallel& parallel) const {
  FieldsInfo info = info_;
  if (const auto trained = fields_info_of(weights, recipe_.forecast, recipe_.split.dt))
    info.statistics = trained->statistics, info.extra_means = trained->extra_means,
    info.extra_stds = trained->extra_stds, info.change_stds = trained->change_stds;
  return make_task_of(info, compute, device, parallel);
}

std::unique_ptr<Task> OpenedForecast::make_task_of(const FieldsInfo& info, const ComputeOptions& compute, Device device,
                                                   const Parallel& parallel) const {
  ForecasterOptions options = recipe_.forecaster_options();
  const std::int64_t drawn = valid_.pairs.step_of(0);
  options.lead_time = lead_time(valid_.steps, drawn);
  options.valid_time = valid_time(valid_.steps, drawn + recipe_.split.dt);
  options.valid_leads = valid_leads();
  return std::make_unique<Forecaster>(options, compute, info, device, parallel);
}

OpenedForecastSplit::OpenedForecastSplit(ForecastRecipe recipe, DataSplit split, const GivenWeights& weights)
    : recipe_(std::move(recipe)),
      weights_(weights.file.string()),
      trained_(fields_info_of(weights, recipe_.forecast, recipe_.split.dt)),
      set_(files_of(split), recipe_, split, /*is_scored=*/true,
           trained_ ? carried_by(*trained_, weights_) : CarriedConstants()),
      info_(make_info()) {
  check_first_step(set_.steps, set_.pairs.step_of(0), info_.channel_names, info_.statistics);
}

FieldSeriesOptions OpenedForecastSplit::files_of(DataSplit split) const {
  const SplitSource source = recipe_.split.source(split);
  FieldSeriesOptions files = recipe_.fields_at({source.path});
  files.range = source.range;
  files.range_key = source.range_key;
  if (trained_) {
    check_planes(recipe_.forecast, *trained_, weights_);
    files.channels = trained_->channel_names;
  }
  return files;
}

// Names, statistics and row weights are those of training, so that a set of the run gives the figures of the run. Only
// rows at other latitudes get their own weights.
FieldsInfo OpenedForecastSplit::make_info() const {
  const FieldSeries& steps = set_.steps;
  const SplitOptions& split = recipe_.split;
  if (!trained_) {
    FieldsInfo info = recipe_.info_of(set_.pairs.windows(),
                                      recipe_.statistics_at(split.global_means_path, split.global_stds_path, steps));
    const fs::path folder = fs::path(split.global_means_path).parent_path();
    label_from_statistics(info, steps, folder);
    info.change_stds = recipe_.change_stds_at(folder, steps);
    return info;
  }
  check_orientation(*trained_, steps);
  check_lead_time(*trained_, split.dt, weights_, steps);
  FieldsInfo info = *trained_;
  const bool are_known = !trained_->latitudes.empty() && !steps.latitudes().empty();
  if (are_known && trained_->latitudes != steps.latitudes()) {
    info.row_weights = latitude_weights(steps, recipe_.forecast.latitude_weights);
    info.latitudes = steps.latitudes();
    info.longitudes = steps.longitudes();
  }
  label_from_weights(info, steps, *trained_, weights_);
  return info;
}

std::unique_ptr<Task> OpenedForecastSplit::make_task(const ComputeOptions& compute, Device device) const {
  return std::make_unique<Forecaster>(recipe_.forecaster_options(), compute, info_, device);
}

}  // namespace isobar
