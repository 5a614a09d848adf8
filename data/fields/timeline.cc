#include "data/fields/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// Times of different files are the same if they are within a second: they may be stored in different units.
constexpr double kSecondsPerHour = 3600;

std::int64_t in_seconds(double hours) {
  return std::llround(hours * kSecondsPerHour);
}

double first_hours(const FieldFile& file) {
  return file.time()->hours_since_1970(0);
}

double last_hours(const FieldFile& file) {
  return file.time()->hours_since_1970(file.steps() - 1);
}

}  // namespace

Timeline::Timeline(std::span<const std::unique_ptr<FieldFile>> files, std::vector<std::vector<std::size_t>> tracks,
                   bool spans_files)
    : files_(files), spans_files_(spans_files) {
  for (std::vector<std::size_t>& numbers : tracks) {
    Track& track = tracks_.emplace_back();
    track.files = std::move(numbers);
    const bool has_times = std::ranges::all_of(track.files, [&](std::size_t f) { return file(f).time().has_value(); });
    ISOBAR_CHECK(has_times || tracks.size() == 1, file(track.files.front()).path(), " has other variables than ",
                 file(tracks_.front().files.front()).path(),
                 ", and not all of these files have a 'time' by which they ", "could be joined");
    if (has_times && (spans_files_ || tracks.size() > 1)) sort_by_time(track);
    track.first_step.push_back(0);
    for (const std::size_t f : track.files) track.first_step.push_back(track.first_step.back() + file(f).steps());
  }
  steps_ = tracks_.front().first_step.back();
  if (tracks_.size() > 1) join_tracks();
  make_axis();
}

// Error if a file begins before the one before it ends.
void Timeline::sort_by_time(Track& track) const {
  std::ranges::stable_sort(track.files, {}, [&](std::size_t f) { return first_hours(file(f)); });
  for (std::size_t i = 1; i < track.files.size(); ++i) {
    const FieldFile &before = file(track.files[i - 1]), &after = file(track.files[i]);
    ISOBAR_CHECK(in_seconds(last_hours(before)) < in_seconds(first_hours(after)), after.path(), " begins at ",
                 after.time_of(0).iso(), ", when ", before.path(),
                 ", with the same variables, has not ended: it ends at ", before.time_of(before.steps() - 1).iso());
  }
}

std::vector<double> Timeline::hours_of(const Track& track) const {
  std::vector<double> hours;
  for (const std::size_t f : track.files)
    for (std::int64_t step = 0; step < file(f).steps(); ++step) hours.push_back(file(f).time()->hours_since_1970(step));
  return hours;
}

// The steps of the series are the times that every track has.
void Timeline::join_tracks() {
  std::map<std::int64_t, std::vector<std::int64_t>> places;  // by time in seconds: the step of each track, or -1
  for (std::size_t t = 0; t < tracks_.size(); ++t) {
    const std::vector<double> hours = hours_of(tracks_[t]);
    for (std::size_t step = 0; step < hours.size(); ++step) {
      std::vector<std::int64_t>& steps = places[in_seconds(hours[step])];
      steps.resize(tracks_.size(), -1);
      steps[t] = static_cast<std::int64_t>(step);
    }
  }
  std::int64_t missing = 0;
  std::optional<std::int64_t> first_missing;
  for (const auto& [seconds, steps] : places) {
    if (std::ranges::find(steps, -1) != steps.end()) {
      if (!first_missing) first_missing = seconds;
      ++missing;
      continue;
    }
    for (std::size_t t = 0; t < tracks_.size(); ++t) tracks_[t].joined.push_back(steps[t]);
  }
  steps_ = std::ssize(tracks_.front().joined);
  const std::string& first_path = file(tracks_.front().files.front()).path();
  const auto begin_and_end = [&](const Track& track) {
    const FieldFile &first = file(track.files.front()), &last = file(track.files.back());
    return concat(first.path(), " (", first.time_of(0).iso(), " to ", last.time_of(last.steps() - 1).iso(), ")");
  };
  ISOBAR_CHECK(steps_ > 0, begin_and_end(tracks_[0]), " and ", begin_and_end(tracks_[1]),
               ", with other variables, have no time in common",
               tracks_.size() > 2 ? ", or other files beside them" : "");
  if (missing == 0) return;
  const TimeUnits seconds("seconds since 1970-01-01", "proleptic_gregorian", first_path);
  left_out_ = concat(missing, missing == 1 ? " step that" : " steps that", " not all files have, the first at ",
                     seconds.at(static_cast<double>(*first_missing)).iso());
}

void Timeline::make_axis() {
  std::vector<double> hours;
  double rounding = 0, file_step = 0;
  for (const std::size_t f : tracks_.front().files) {
    if (!file(f).time()) return;
    rounding = std::max(rounding, file(f).time()->rounding_hours());
    if (file_step == 0) file_step = file(f).time()->step_hours();
  }
  step_hours_ = file_step;
  if (!spans_files_ && tracks_.size() == 1) return;
  for (std::int64_t step = 0; step < steps_; ++step) hours.push_back(*hours_since_1970(step));
  axis_.emplace(std::move(hours), rounding, file(tracks_.front().files.front()).path() + ": 'time'");
  if (step_hours_ == 0) step_hours_ = axis_->step_hours();  // files of one step each
}

Place Timeline::place(std::int64_t step, std::size_t track) const {
  const Track& from = tracks_[track];
  const std::int64_t own = from.joined.empty() ? step : from.joined[static_cast<std::size_t>(step)];
  const auto f = static_cast<std::size_t>(std::ranges::upper_bound(from.first_step, own) - from.first_step.begin() - 1);
  return {from.files[f], own - from.first_step[f]};
}

bool Timeline::are_in_same_files(std::int64_t a, std::int64_t b) const {
  for (std::size_t track = 0; track < tracks_.size(); ++track)
    if (place(a, track).file != place(b, track).file) return false;
  return true;
}

Segment Timeline::rest_of_file(std::int64_t step) const {
  std::int64_t inside = step, outside = steps_;
  while (outside - inside > 1) {
    const std::int64_t middle = inside + (outside - inside) / 2;
    (are_in_same_files(step, middle) ? inside : outside) = middle;
  }
  return {step, outside - step};
}

bool Timeline::regular(std::int64_t first, std::int64_t last) const {
  if (axis_) return (spans_files_ || are_in_same_files(first, last)) && axis_->regular(first, last);
  const Place from = place(first), to = place(last);
  const auto& time = file(from.file).time();
  return from.file == to.file && (!time || time->regular(from.step, to.step));
}

std::vector<std::int64_t> Timeline::holes(std::int64_t first, std::int64_t end) const {
  std::vector<std::int64_t> found;
  for (std::int64_t step = first; step + 1 < end; ++step)
    if (are_in_same_files(step, step + 1) && !regular(step, step + 1)) found.push_back(step);
  return found;
}

std::optional<double> Timeline::hours_since_1970(std::int64_t step) const {
  const Place at = place(step);
  const auto& time = file(at.file).time();
  return time ? std::optional(time->hours_since_1970(at.step)) : std::nullopt;
}

StepTime Timeline::time_of(std::int64_t step) const {
  const Place at = place(step);
  return file(at.file).time_of(at.step);
}

double Timeline::known_hours(std::int64_t step) const {
  const std::optional<double> stored = hours_since_1970(step);
  return stored ? *stored : time_of(step).hours_since_1970();
}

std::int64_t Timeline::first_step_from(double hours) const {
  const std::int64_t wanted = in_seconds(hours);
  std::int64_t first = 0, end = steps_;
  while (first < end) {
    const std::int64_t middle = first + (end - first) / 2;
    if (in_seconds(known_hours(middle)) < wanted)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

}  // namespace isobar
