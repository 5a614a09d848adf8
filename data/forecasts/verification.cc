#include "data/forecasts/verification.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "data/fields/catalog.h"
#include "data/fields/channels.h"
#include "data/fields/field_labels.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"

namespace isobar {
namespace {

// The place of a channel among names, in any spelling.
std::optional<std::size_t> place_of(const std::string& channel, const std::vector<std::string>& names) {
  const auto found = std::ranges::find_if(names, [&](const std::string& name) { return same_channel(name, channel); });
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

FieldGrid grid_of(const FieldSeries& series) {
  return {.height = series.height(),
          .width = series.width(),
          .latitudes = series.latitudes(),
          .longitudes = series.longitudes(),
          .source = series.file_name(0)};
}

// Finds the channels among `names`, and compares their units.
std::vector<std::size_t> matched_channels(const ScoredChannels& channels, const std::vector<std::string>& names,
                                          const std::vector<std::string>& units, const std::string& whose) {
  std::vector<std::size_t> places;
  FieldLabels others{.channel_names = channels.names};
  for (const std::string& name : channels.names) {
    const std::optional<std::size_t> place = place_of(name, names);
    ISOBAR_CHECK(place, whose, " has no channel ", name, ", which ", channels.source, " has; it has ",
                 comma_list(names), "; --channels chooses what is scored");
    places.push_back(*place);
    others.units.push_back(*place < units.size() ? units[*place] : "");
  }
  check_labels({.channel_names = channels.names, .units = channels.units}, channels.source, others, whose);
  return places;
}

std::vector<float> all_planes(std::size_t channels, std::int64_t points) {
  return std::vector<float>(channels * static_cast<std::size_t>(points));
}

}  // namespace

TruthFields::TruthFields(const std::vector<std::string>& paths, const std::vector<std::string>& channels) {
  FieldSeriesOptions options{.paths = paths,
                             .channels = channels,
                             .channels_from = "--truth-channels",
                             .catalog = std::make_shared<FieldCatalog>()};
  options.missing = FieldSeries(options).channel_names();
  series_ = std::make_unique<FieldSeries>(options);
  times_ = std::make_unique<StepTimes>(*series_);
}

bool TruthFields::has(const std::string& channel) const {
  return place_of(channel, series_->channel_names()).has_value();
}

void TruthFields::choose(const ScoredChannels& channels, const FieldGrid& grid) {
  if (const FieldFile* file = series_->file_without_times())
    throw_error(file->path(), " has no dates: forecasts are compared with the truth of the same time, 'time' in units ",
                "like \"hours since 1970-01-01\", or a year as the file's name");
  numbers_.clear();
  for (const std::size_t place :
       matched_channels(channels, series_->channel_names(), series_->labels().units, series_->file_name(0)))
    numbers_.push_back(static_cast<std::int64_t>(place));
  match_.emplace(grid, grid_of(*series_));
  points_ = grid.points();
}

std::optional<std::int64_t> TruthFields::step_at(double hours_since_1970) const {
  constexpr double kMinute = 1.0 / 60;
  return times_->at(hours_since_1970, kMinute);
}

std::vector<float> TruthFields::read(std::int64_t step) const {
  const RowBand rows = match_->rows();
  const std::int64_t held = rows.count * series_->width();
  std::vector<float> band = all_planes(numbers_.size(), held), fields = all_planes(numbers_.size(), points_);
  series_->read_channels(step, numbers_, rows, band.data());
  for (std::int64_t c = 0; c < std::ssize(numbers_); ++c)
    match_->take(band.data() + c * held, fields.data() + c * points_);
  return fields;
}

ClimatologyFields::ClimatologyFields(const std::string& path, const ScoredChannels& channels, const FieldGrid& grid)
    : reader_(path),
      numbers_(matched_channels(channels, reader_.channels(), reader_.units(), path)),
      match_(grid, reader_.grid()),
      points_(grid.points()) {}

bool ClimatologyFields::holds(double hours_since_1970) const {
  const auto& times = reader_.times();
  return times && hours_since_1970 >= times->front() && hours_since_1970 <= times->back();
}

std::vector<float> ClimatologyFields::read(const StepTime& time) const {
  const FieldGrid& held = reader_.grid();
  std::vector<float> plane = all_planes(1, held.points()), fields = all_planes(numbers_.size(), points_);
  for (std::size_t c = 0; c < numbers_.size(); ++c) {
    reader_.read(time, numbers_[c], plane.data());
    match_.take(plane.data() + match_.rows().first * held.width,
                fields.data() + static_cast<std::int64_t>(c) * points_);
  }
  return fields;
}

}  // namespace isobar
