#include "models/forecast/fit.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "data/fields/channels.h"
#include "data/fields/field_labels.h"
#include "data/fields/layout.h"
#include "data/fields/log_scale.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {

namespace {

constexpr double kSameLead = 1e-3;

// Adds the likely units of the table of known names if `others` give no units. For comparison only, not for output.
FieldLabels with_likely_units(FieldLabels others, const FieldsInfo& info) {
  complete_labels(others, {{}, likely_labels(info.channel_names, info.statistics.means).units, 0});
  return others;
}

void set_labels(FieldsInfo& info, const FieldSeries& dataset, const FieldLabels& others, const FieldLabels& compared,
                const std::string& whose) {
  FieldLabels labels = dataset.labels();
  check_labels(labels, dataset.file_name(0), compared, whose);
  complete_labels(labels, others);
  info.units = labels.units;
  info.step_hours = labels.step_hours;
}

// Throws Error for statistics of other values than the data set reads: of x, or of single steps. said: by stats.json.
void check_transforms(const FieldSeries& dataset, const FieldLabels& said, bool are_own, const std::string& file) {
  const FieldLabels& read = dataset.labels();
  const auto steps = [](const FieldLabels& labels, std::size_t c) {
    return c < labels.summed.size() ? labels.summed[c] : 1;
  };
  const auto is_log = [](const FieldLabels& labels, std::size_t c) {
    return c < labels.units.size() && unit_of_log_scale(labels.units[c]) != labels.units[c];
  };
  constexpr const char* kOthers = ": these are statistics of other values; leave statistics to the run";
  for (std::size_t c = 0; c < dataset.channel_names().size(); ++c) {
    const std::string& name = dataset.channel_names()[c];
    ISOBAR_CHECK(!is_log(read, c) || is_log(said, c), file, " does not say that channel ", name, " is in ",
                 read.units[c], ", as config key transforms reads it", kOthers);
    ISOBAR_CHECK(are_own || steps(read, c) == steps(said, c), file, " says that channel ", name, " is a sum of ",
                 steps(said, c), steps(said, c) == 1 ? " step" : " steps", ", but config key accumulate reads sums of ",
                 steps(read, c), kOthers);
  }
}

// role: the channels that config key `key` names; theirs: those that the weights have in this role.
void check_role(const char* key, const std::vector<std::string>& role, std::span<const std::string> theirs,
                const std::string& weights) {
  const bool are_same =
      role.size() == theirs.size() && std::ranges::all_of(role, [&](const std::string& name) {
        return std::ranges::any_of(theirs, [&](const std::string& other) { return same_channel(name, other); });
      });
  ISOBAR_CHECK(are_same, "config key ", key, " names ", role.empty() ? "none" : comma_list(role), ", but ", weights,
               " was trained with ", theirs.empty() ? "none" : comma_list(theirs), " in this role");
}

}  // namespace

void label_from_statistics(FieldsInfo& info, const FieldSeries& dataset, const std::filesystem::path& folder,
                           bool are_own) {
  const std::string file = (folder / kLabelsFile).string();
  check_transforms(dataset, info.statistics.labels.value_or(FieldLabels()), are_own, file);
  if (info.statistics.labels)
    set_labels(info, dataset, *info.statistics.labels, *info.statistics.labels, file);
  else
    set_labels(info, dataset, {}, likely_labels(info.channel_names, info.statistics.means),
               "the table of known names, which stands for " + file);
}

void label_from_weights(FieldsInfo& info, const FieldSeries& dataset, const FieldsInfo& trained,
                        const std::string& weights) {
  const FieldLabels said{trained.channel_names, trained.units, 0};
  set_labels(info, dataset, said, with_likely_units(said, trained), weights);
}

void check_units(const FieldsInfo& trained, const std::string& weights, const FieldSeries& dataset,
                 const FieldsInfo& info) {
  check_labels({info.channel_names, info.units, 0}, dataset.file_name(0),
               with_likely_units({trained.channel_names, trained.units, 0}, trained), weights);
}

void check_lead_time(const FieldsInfo& trained, std::int64_t trained_dt, const std::string& weights,
                     const FieldSeries& dataset) {
  const double step = dataset.labels().step_hours, lead = step * static_cast<double>(dataset.dt());
  const double trained_lead = trained.step_hours * static_cast<double>(trained_dt);
  ISOBAR_CHECK(lead == 0 || trained_lead == 0 || std::abs(lead - trained_lead) <= kSameLead * trained_lead,
               dataset.file_name(0), ": its steps are ", hours_text(step), " apart, so that dt = ", dataset.dt(),
               " is ", hours_text(lead), ", but ", weights, " forecasts ", hours_text(trained_lead), " ahead");
}

void check_planes(const ForecastOptions& options, const FieldsInfo& trained, const std::string& weights) {
  const std::span<const std::string> names(trained.channel_names);
  ISOBAR_CHECK(std::ssize(names) == options.variables(), weights, " was trained with ", names.size(),
               " channels, but the config has ", options.variables());
  if (options.channels) {
    const std::vector<std::string> none;
    const auto outputs = static_cast<std::size_t>(*options.n_out_channels);
    const auto channels = static_cast<std::size_t>(options.prognostics());
    check_role("channels", *options.channels, names.first(channels), weights);
    check_role("diagnostic_channels", options.diagnostic_channels.value_or(none),
               names.subspan(channels, outputs - channels), weights);
    check_role("forcing_channels", options.forcing_channels.value_or(none), names.subspan(outputs), weights);
  }
  const std::vector<std::string> extras = options.extra_names();
  ISOBAR_CHECK(trained.extra_names.empty() || trained.extra_names == extras, weights, " was trained with the planes ",
               comma_list(trained.extra_names), ", but config keys computed_channels and constant_channels name ",
               extras.empty() ? "none" : comma_list(extras));
}

void check_orientation(const FieldsInfo& trained, const FieldSeries& dataset) {
  const auto falls = [](const std::vector<double>& rows) { return rows.back() < rows.front(); };
  const bool known = trained.latitudes.size() > 1 && dataset.latitudes().size() > 1;
  ISOBAR_CHECK(!known || falls(trained.latitudes) == falls(dataset.latitudes()), dataset.file_name(0),
               ": its rows run ", falls(trained.latitudes) ? "from south to north" : "from north to south",
               ", and those of the weights' data the other way");
}

}  // namespace isobar
