#include "apps/train/fit.h"

#include <cmath>
#include <optional>

#include "data/era5/field_labels.h"
#include "engine/files/safetensors.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr double kSameLead = 1e-3;

void set_labels(Grid& grid, const Era5Dataset& dataset, const FieldLabels& others, const std::string& whose) {
  FieldLabels labels = dataset.labels();
  check_labels(labels, dataset.file_name(0), others, whose);
  complete_labels(labels, others);
  grid.units = labels.units;
  grid.step_hours = labels.step_hours;
}

std::optional<ModelDescription> describe(const fs::path& weights) {
  const SafetensorsFile file(weights);
  return has_description(file) ? std::optional(description_of(file)) : std::nullopt;
}

void check_units(const fs::path& weights, const ModelDescription& description, const Era5Dataset& dataset,
                 const Grid& grid) {
  check_labels({grid.channel_names, grid.units, 0}, dataset.file_name(0),
               {description.grid.channel_names, description.grid.units, 0}, weights.string());
}

}  // namespace

void label_from_statistics(Grid& grid, const Era5Dataset& dataset, const fs::path& folder) {
  const std::string file = (folder / "stats.json").string();
  if (grid.statistics.labels)
    set_labels(grid, dataset, *grid.statistics.labels, file);
  else
    set_labels(grid, dataset, labels_of_known_names(grid.channel_names),
               "the table of known names, which stands for " + file);
}

void label_from_weights(Grid& grid, const Era5Dataset& dataset, const Grid& trained, const std::string& weights) {
  set_labels(grid, dataset, {trained.channel_names, trained.units, 0}, weights);
}

void check_weights_fit(const fs::path& weights, const Era5Dataset& dataset, const Grid& grid) {
  if (const auto description = describe(weights)) check_units(weights, *description, dataset, grid);
}

void check_lead_time(const fs::path& weights, const ModelDescription& description, const Era5Dataset& dataset) {
  const double step = dataset.labels().step_hours, lead = step * static_cast<double>(dataset.dt());
  const double trained = description.grid.step_hours * static_cast<double>(description.config.dt);
  ISOBAR_CHECK(lead == 0 || trained == 0 || std::abs(lead - trained) <= kSameLead * trained, dataset.file_name(0),
               ": its steps are ", hours_text(step), " apart, so that dt = ", dataset.dt(), " is ", hours_text(lead),
               ", but ", weights.string(), " forecasts ", hours_text(trained), " ahead");
}

void check_same_data(const fs::path& weights, const Era5Dataset& dataset, const Grid& grid) {
  const auto description = describe(weights);
  if (!description) return;
  check_units(weights, *description, dataset, grid);
  check_lead_time(weights, *description, dataset);
}

}  // namespace isobar
