#include "models/forecast/fit.h"

#include <cmath>

#include "data/fields/field_labels.h"
#include "data/fields/layout.h"
#include "kernels/common/check.h"

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

}  // namespace

void label_from_statistics(FieldsInfo& info, const FieldSeries& dataset, const std::filesystem::path& folder) {
  const std::string file = (folder / kLabelsFile).string();
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

void check_orientation(const FieldsInfo& trained, const FieldSeries& dataset) {
  const auto falls = [](const std::vector<double>& rows) { return rows.back() < rows.front(); };
  const bool known = trained.latitudes.size() > 1 && dataset.latitudes().size() > 1;
  ISOBAR_CHECK(!known || falls(trained.latitudes) == falls(dataset.latitudes()), dataset.file_name(0),
               ": its rows run ", falls(trained.latitudes) ? "from south to north" : "from north to south",
               ", and those of the weights' data the other way");
}

}  // namespace isobar
