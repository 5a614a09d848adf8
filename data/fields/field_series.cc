#include "data/fields/field_series.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "data/fields/catalog.h"
#include "data/fields/channels.h"
#include "data/fields/field_file.h"
#include "data/fields/log_scale.h"
#include "data/files/stored_arrays.h"
#include "data/files/visible_files.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"

namespace isobar {
namespace {

bool have_common_names(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& name) { return std::ranges::find(b, name) != b.end(); });
}

// The number of the channel that `wanted` names; none if the file has no such channel. Error if two fit.
std::optional<std::int64_t> find_channel(const FieldFile& file, const std::string& wanted) {
  const std::vector<std::string>& names = file.channel_names();
  std::optional<std::size_t> found;
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (!same_channel(names[c], wanted)) continue;
    ISOBAR_CHECK(!found, file.path(), ": the name ", wanted, " fits two channels, ", names[*found], " and ", names[c]);
    found = c;
  }
  return found ? std::optional(static_cast<std::int64_t>(*found)) : std::nullopt;
}

// "; msl is in one of them only": the first name that is in one list and not in the other; empty for none.
std::string difference_of(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const std::string& name : *one)
      if (std::ranges::find(*other, name) == other->end()) return concat("; ", name, " is in one of them only");
  return "";
}

std::vector<std::string> joined_names(const std::set<std::string>& names, const std::vector<std::string>& more) {
  std::vector<std::string> all(names.begin(), names.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> field_files_in(const std::string& folder) {
  std::vector<std::string> h5_files, others;
  for (const std::filesystem::path& file : visible_files(folder)) {
    if (file.extension() == ".h5") h5_files.push_back(file.string());
    if (h5_files.empty() && holds_stored_arrays(file.string())) others.push_back(file.string());
  }
  return h5_files.empty() ? others : h5_files;
}

// What a pattern of the shell's names, sorted; Error if it is nothing.
std::vector<std::string> files_matching(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  ISOBAR_CHECK(status == 0, pattern, " matches no file");
  return files;
}

}  // namespace

std::int64_t default_cache_bytes(int processes_on_host) {
  ISOBAR_CHECK(processes_on_host >= 1, processes_on_host, " processes on a host");
  const std::int64_t memory =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(std::int64_t{1} << 30, memory / 8) / processes_on_host;
}

bool has_field_files(const std::string& folder) {
  return !field_files_in(folder).empty();
}

std::string advice_on_files_in(const std::string& folder) {
  for (const std::filesystem::path& file : visible_files(folder))
    if (const std::string advice = advice_on(file.string()); !advice.empty()) return "; " + advice;
  return "";
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !std::filesystem::exists(path);
}

std::vector<std::string> find_field_files(const std::string& path) {
  if (is_pattern(path)) return files_matching(path);
  ISOBAR_CHECK(std::filesystem::exists(path),
               path.find("://") != std::string::npos ? advice_on(path) : path + " does not exist");
  if (!std::filesystem::is_directory(path) || holds_stored_arrays(path)) return {path};
  std::vector<std::string> files = field_files_in(path);
  ISOBAR_CHECK(!files.empty(), path, " holds no .h5 files, no NetCDF files and no Zarr stores",
               advice_on_files_in(path));
  return files;
}

FieldSeries::FieldSeries(const FieldSeriesOptions& options) : dt_(options.dt) {
  ISOBAR_CHECK(dt_ >= 1, "dt must be at least one step, not ", dt_);
  ISOBAR_CHECK(!options.paths.empty(), "no data path is given");
  data_path_ = options.paths.front();
  open_files(options);
  full_height_ = file(0).height();
  full_width_ = file(0).width();
  height_ = options.height > 0 ? options.height : full_height_;
  width_ = options.width > 0 ? options.width : full_width_;
  Tracks tracks = options.choose ? choose_channels(options) : take_all_channels(options);
  for (const auto& file : files_) check_grid(*file, options);
  check_size();
  all_channels_.resize(channel_names_.size());
  std::iota(all_channels_.begin(), all_channels_.end(), 0);
  set_channel_options(options);
  set_labels(options);
  timeline_ = std::make_unique<const Timeline>(files_, std::move(tracks), options.spans_files);
  if (labels_.step_hours == 0) labels_.step_hours = timeline_->step_hours();  // of files of one step each

  const auto cropped = [](std::vector<double> axis, std::int64_t length) {
    axis.resize(std::min(axis.size(), static_cast<std::size_t>(length)));
    return axis;
  };
  latitudes_ = cropped(file(0).latitudes(), height_);
  longitudes_ = cropped(file(0).longitudes(), width_);
  set_range(options);
}

FieldSeries::~FieldSeries() = default;
FieldSeries::FieldSeries(FieldSeries&&) noexcept = default;

void FieldSeries::open_files(const FieldSeriesOptions& options) {
  auto budget = std::make_shared<std::atomic<std::int64_t>>(
      options.cache_bytes < 0 ? default_cache_bytes(options.processes_on_host) : options.cache_bytes);
  FieldCatalog* const catalog = options.catalog.get();
  for (const std::string& path : options.paths)
    for (const std::string& name : catalog != nullptr ? catalog->files_at(path) : find_field_files(path))
      files_.push_back(std::make_unique<FieldFile>(name, budget, catalog));
}

void FieldSeries::set_channel_options(const FieldSeriesOptions& options) {
  const auto names = [](const std::vector<std::string>& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  };
  for (const std::string& name : channel_names_) {
    missing_.push_back(names(options.missing, name)         ? MissingPoints::kept
                       : names(options.filled_chunks, name) ? MissingPoints::refused_but_chunks
                                                            : MissingPoints::refused);
    is_sum_.push_back(names(options.sums, name));
    const auto scale = options.log_scales.find(name);
    log_scales_.push_back(scale == options.log_scales.end() ? 0 : scale->second);
  }
}

void FieldSeries::check_size() const {
  const std::int64_t bytes = checked_product({channels(), height_, width_, sizeof(float)}, file_name(0) + ": a step");
  ISOBAR_CHECK(static_cast<std::size_t>(bytes) <= machine_memory_bytes(), file_name(0), ": a step of ", channels(),
               " x ", height_, " x ", width_, " values is larger than the memory of this machine");
}

// Every channel of every file. Files whose names have nothing in common are tracks of their own if all have times.
FieldSeries::Tracks FieldSeries::take_all_channels(const FieldSeriesOptions& options) {
  Tracks tracks;
  std::vector<std::int64_t> first_channel;  // [tracks], in the series
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const auto belongs = [&](const std::vector<std::size_t>& track) {
      const FieldFile& other = file(track.front());
      return !file(f).time() || !other.time() || file(f).channel_names().empty() ||
             have_common_names(file(f).channel_names(), other.channel_names());
    };
    auto track = std::ranges::find_if(tracks, belongs);
    if (track == tracks.end()) {
      track = tracks.emplace(track);
      first_channel.push_back(channels());
      add_channel_names(file(f), options);
    }
    track->push_back(f);
    const FieldFile& first = file(track->front());
    ISOBAR_CHECK(file(f).channels() == first.channels(), file_name(f), " has ", file(f).channels(), " channels", ", ",
                 first.path(), " has ", first.channels(),
                 difference_of(file(f).channel_names(), first.channel_names()));
    std::vector<HeldChannel>& held = held_.emplace_back();
    for (std::int64_t c = 0; c < file(f).channels(); ++c)
      held.push_back({c, first_channel[static_cast<std::size_t>(track - tracks.begin())] + c});
  }
  if (const auto expected = std::ssize(options.channels); expected > 0) {
    ISOBAR_CHECK(channels() == expected, file_name(0), " has ", channels(), " channels; expected ", expected);
    for (std::size_t f = 0; f < files_.size(); ++f) compare_names(f, options.channels, options.channels_from);
  }
  for (std::size_t f = 0; f < files_.size(); ++f) compare_names(f, channel_names_, file_name(0));
  return tracks;
}

void FieldSeries::add_channel_names(const FieldFile& file, const FieldSeriesOptions& options) {
  const std::vector<std::string> names = !file.channel_names().empty() ? file.channel_names()
                                         : std::ssize(options.channels) == file.channels()
                                             ? options.channels
                                             : default_channel_names(file.channels());
  channel_names_.insert(channel_names_.end(), names.begin(), names.end());
}

// Error if a file that names its channels has another one where `expected` [channels()] has this one.
void FieldSeries::compare_names(std::size_t f, const std::vector<std::string>& expected,
                                const std::string& whose) const {
  if (file(f).channel_names().empty()) return;
  for (const auto [c, in_series] : held_[f]) {
    const std::string &name = file(f).channel_names()[static_cast<std::size_t>(c)],
                      &other = expected[static_cast<std::size_t>(in_series)];
    ISOBAR_CHECK(name == other, file_name(f), ": channel ", c, " is '", name, "', ", whose, " has '", other, "' there");
  }
}

// The wanted channels, by name. Files that hold the same ones of them are a track; files that hold none are left out.
FieldSeries::Tracks FieldSeries::choose_channels(const FieldSeriesOptions& options) {
  channel_names_ = options.channels;
  std::set<std::string> names, left_out;  // of all files, for messages
  std::vector<std::unique_ptr<FieldFile>> kept;
  for (std::unique_ptr<FieldFile>& file : files_) {
    names.insert(file->channel_names().begin(), file->channel_names().end());
    left_out.insert(file->left_out().begin(), file->left_out().end());
    std::vector<HeldChannel> held = held_by(*file);
    if (held.empty()) continue;
    held_.push_back(std::move(held));
    kept.push_back(std::move(file));
  }
  ISOBAR_CHECK(!names.empty(), options.paths.front(),
               " does not name its channels, so that none can be chosen by name");
  std::vector<std::optional<std::size_t>> first_file(channel_names_.size());  // that holds the channel
  Tracks tracks;
  for (std::size_t f = 0; f < kept.size(); ++f) {
    const auto same = std::ranges::find_if(tracks, [&](const auto& track) {
      return std::ranges::equal(held_[track.front()], held_[f], {}, &HeldChannel::in_series, &HeldChannel::in_series);
    });
    if (same == tracks.end()) {
      for (const HeldChannel& channel : held_[f]) {
        std::optional<std::size_t>& first = first_file[static_cast<std::size_t>(channel.in_series)];
        if (first) refuse_part(*kept[f], held_[f], *kept[*first], held_[*first]);
        first = f;
      }
      tracks.push_back({f});
    } else {
      same->push_back(f);
    }
  }
  for (std::size_t c = 0; c < channel_names_.size(); ++c)
    ISOBAR_CHECK(first_file[c], options.paths.front(), " has no channel ", channel_names_[c],
                 did_you_mean(suggestion(channel_names_[c], joined_names(names, options.other_names))), "; it has ",
                 comma_list(names), left_out.empty() ? "" : "; not these: ", comma_list(left_out));
  files_ = std::move(kept);
  return tracks;
}

// Throws the Error of two files that have some of the wanted channels in common and others not.
void FieldSeries::refuse_part(const FieldFile& file, const std::vector<HeldChannel>& held, const FieldFile& other,
                              const std::vector<HeldChannel>& others) const {
  const auto lacks = [](const std::vector<HeldChannel>& list, const HeldChannel& channel) {
    return std::ranges::find(list, channel.in_series, &HeldChannel::in_series) == list.end();
  };
  for (const auto& [without, theirs, with, its] :
       {std::tuple(&file, &held, &other, &others), std::tuple(&other, &others, &file, &held)})
    for (const HeldChannel& channel : *its)
      ISOBAR_CHECK(!lacks(*theirs, channel), without->path(), " has no channel ",
                   channel_names_[static_cast<std::size_t>(channel.in_series)], ", which ", with->path(),
                   " has, and both have others that are asked for");
}

// The wanted channels that a file holds, in the order of the series.
std::vector<FieldSeries::HeldChannel> FieldSeries::held_by(const FieldFile& file) const {
  std::vector<HeldChannel> held;
  for (std::size_t c = 0; c < channel_names_.size(); ++c)
    if (const auto found = find_channel(file, channel_names_[c]))
      held.push_back({*found, static_cast<std::int64_t>(c)});
  return held;
}

void FieldSeries::check_grid(const FieldFile& file, const FieldSeriesOptions& options) const {
  const FieldFile& first = *files_.front();
  ISOBAR_CHECK(file.height() >= height_ && file.width() >= width_, file.path(), ": its grid of ", file.height(), " x ",
               file.width(), " is smaller than the ", height_, " x ", width_, " asked for",
               options.grid_key.empty() ? "" : " by config key " + options.grid_key);
  ISOBAR_CHECK(file.height() == full_height_ && file.width() == full_width_, file.path(), ": its grid of ",
               file.height(), " x ", file.width(), " differs from the ", full_height_, " x ", full_width_, " of ",
               first.path());
  ISOBAR_CHECK(file.latitudes() == first.latitudes() && file.longitudes() == first.longitudes(), file.path(),
               ": its latitudes or longitudes differ from those of ", first.path());
}

// All files that give units or a time step must agree.
void FieldSeries::set_labels(const FieldSeriesOptions& options) {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    FieldLabels of_file{channel_names_, {}, file(f).time() ? file(f).time()->step_hours() : 0};
    if (!file(f).units().empty()) of_file.units.resize(channel_names_.size());
    for (const auto [in_file, in_series] : held_[f])
      if (!file(f).units().empty())
        of_file.units[static_cast<std::size_t>(in_series)] = file(f).units()[static_cast<std::size_t>(in_file)];
    check_labels(of_file, file_name(f), labels_, "the files before it");
    complete_labels(labels_, of_file);
  }
  for (std::size_t c = 0; c < log_scales_.size(); ++c) {
    if (log_scales_[c] == 0) continue;
    labels_.units.resize(channel_names_.size());
    labels_.units[c] = log_scale_unit(labels_.units[c], log_scales_[c]);
  }
  if (dt_ > 1 && std::ranges::find(is_sum_, true) != is_sum_.end())
    for (const bool is_sum : is_sum_) labels_.summed.push_back(is_sum ? dt_ : 1);
  labels_.channel_names = !options.channels.empty()         ? options.channels
                          : file(0).channel_names().empty() ? std::vector<std::string>()
                                                            : channel_names_;
}

void FieldSeries::set_range(const FieldSeriesOptions& options) {
  range_ = options.range ? steps_of(*options.range, options.range_key) : StepRange{0, steps()};
}

StepRange FieldSeries::steps_of(const RangeValue& range, const std::string& key) const {
  if (const auto* const dates = std::get_if<1>(&range)) return steps_between(*dates, key);
  const auto [begin, end] = std::get<0>(range);
  ISOBAR_CHECK(begin >= 0, key, " [", begin, ", ", end, ") begins before the first step");
  ISOBAR_CHECK(begin < end, key, " [", begin, ", ", end, ") is empty or reversed");
  ISOBAR_CHECK(end <= steps(), key, " [", begin, ", ", end, ") goes beyond the ", steps(), " steps of ", data_path_);
  return {begin, end};
}

StepRange FieldSeries::steps_between(const std::array<std::string, 2>& dates, const std::string& key) const {
  constexpr double kSecond = 1.0 / 3600;
  const DateText first = parse_date(dates[0], key), last = parse_date(dates[1], key);
  const std::string text = concat(key, " [", dates[0], ", ", dates[1], "]");
  ISOBAR_CHECK(first.begin < last.begin + last.length || first.begin == last.begin, text, " is reversed");
  ISOBAR_CHECK(file_without_times() == nullptr, text, " are dates, but ", data_path_, " has files without 'time'");
  check_order_of_years(text);
  const double begin = timeline_->known_hours(0), end = timeline_->known_hours(steps() - 1);
  for (const DateText& date : {first, last})
    ISOBAR_CHECK(date.begin <= end && date.begin + std::max(date.length - kSecond, 0.0) >= begin, text,
                 " goes beyond the data of ", data_path_, ", which are from ", time_of(0).iso(), " to ",
                 time_of(steps() - 1).iso());
  const StepRange range{timeline_->first_step_from(first.begin),
                        timeline_->first_step_from(last.begin + (last.length > 0 ? last.length : kSecond))};
  ISOBAR_CHECK(range[0] < range[1], text, " holds no step of ", data_path_);
  return range;
}

// Files whose names give their years are sorted by name, and `text`, a range of dates, needs them sorted by time.
void FieldSeries::check_order_of_years(const std::string& text) const {
  for (std::size_t f = 1; f < files_.size(); ++f) {
    const FieldFile &before = file(f - 1), &after = file(f);
    ISOBAR_CHECK(
        after.time() || before.time_of(before.steps() - 1).hours_since_1970() < after.time_of(0).hours_since_1970(),
        text, " are dates, but ", before.path(), " comes before ", after.path(),
        " by name, and not by the years in their names");
  }
}

Place FieldSeries::place(std::int64_t step) const {
  ISOBAR_CHECK(step >= 0 && step < steps(), "step ", step, " is beyond the ", steps(),
               " steps of the data, whose first file is ", file_name(0));
  return timeline_->place(step);
}

std::vector<Segment> FieldSeries::segments() const {
  std::vector<Segment> result;
  for (std::int64_t step = range_[0]; step < range_[1];) {
    const Segment rest = timeline_->rest_of_file(step);
    const std::int64_t count = std::min(rest.count, range_[1] - step);
    result.push_back({step, count});
    step += count;
  }
  return result;
}

bool FieldSeries::has_pair(std::int64_t first) const {
  return first >= range_[0] && first + dt_ < range_[1] && timeline_->regular(first, first + dt_);
}

void FieldSeries::check_band(RowBand rows) const {
  ISOBAR_CHECK(rows.first >= 0 && rows.count >= 1 && rows.first <= height_ - rows.count, file_name(0), ": rows [",
               rows.first, ", ", rows.first + rows.count, ") are no band of the ", height_, " rows of the grid");
}

void FieldSeries::read_step(std::int64_t step, RowBand rows, float* out) const {
  read_channels(step, all_channels_, rows, out);
}

void FieldSeries::read_channels(std::int64_t step, std::span<const std::int64_t> channels, RowBand rows,
                                float* out) const {
  check_band(rows);
  read_stored(step, channels, rows, out);
  add_earlier_steps(step, channels, rows, out);
  const auto pixels = static_cast<std::size_t>(rows.count * width_);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const double scale = log_scales_[static_cast<std::size_t>(channels[i])];
    if (scale == 0) continue;
    const std::span<float> field(out + i * pixels, pixels);
    const auto low = std::ranges::find_if(field, [&](float value) { return static_cast<double>(value) <= -scale; });
    ISOBAR_CHECK(low == field.end(), file_name_of(step), ": step ", place(step).step, ", channel ",
                 channel_names_[static_cast<std::size_t>(channels[i])], " holds ", *low,
                 ", which has no logarithm: config key transforms gives it the scale ", scale);
    to_log_scale(field, scale);
  }
}

// Sums of `dt` steps: those of the steps before are added, in fp64, from the earliest on.
void FieldSeries::add_earlier_steps(std::int64_t step, std::span<const std::int64_t> channels, RowBand rows,
                                    float* out) const {
  std::vector<std::int64_t> summed;
  std::vector<std::size_t> places;  // among `channels`
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (!is_sum_[static_cast<std::size_t>(channels[i])]) continue;
    summed.push_back(channels[i]);
    places.push_back(i);
  }
  if (summed.empty() || dt_ == 1) return;
  ISOBAR_CHECK(has_sums(step), file_name_of(step), ": step ", place(step).step, " has not the ", dt_ - 1,
               " steps before it that its sums need");
  const auto pixels = static_cast<std::size_t>(rows.count * width_);
  std::vector<float> fields(summed.size() * pixels);
  std::vector<double> sums(fields.size(), 0.0);
  for (std::int64_t earlier = step - dt_ + 1; earlier < step; ++earlier) {
    read_stored(earlier, summed, rows, fields.data());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(fields[i]);
  }
  for (std::size_t s = 0; s < places.size(); ++s)
    for (std::size_t i = 0; i < pixels; ++i) {
      float& value = out[places[s] * pixels + i];
      value = static_cast<float>(sums[s * pixels + i] + static_cast<double>(value));
    }
}

bool FieldSeries::has_sums(std::int64_t step) const {
  if (dt_ == 1 || std::ranges::find(is_sum_, true) == is_sum_.end()) return true;
  const std::int64_t first = step - dt_ + 1;
  return first >= range_[0] && timeline_->regular(first, step);
}

void FieldSeries::read_stored(std::int64_t step, std::span<const std::int64_t> channels, RowBand rows,
                              float* out) const {
  static_cast<void>(place(step));
  const std::int64_t pixels = rows.count * width_;
  thread_local std::vector<Plane> planes;
  for (std::size_t track = 0; track < timeline_->tracks(); ++track) {
    const Place at = timeline_->place(step, track);
    planes.clear();
    for (std::size_t i = 0; i < channels.size(); ++i) {
      const auto held = std::ranges::lower_bound(held_[at.file], channels[i], {}, &HeldChannel::in_series);
      if (held != held_[at.file].end() && held->in_series == channels[i])
        planes.push_back({held->in_file, out + static_cast<std::int64_t>(i) * pixels,
                          missing_[static_cast<std::size_t>(channels[i])]});
    }
    if (!planes.empty()) file(at.file).read_step(at.step, planes, {rows.first, rows.count, width_});
  }
}

std::vector<std::string> FieldSeries::channels_without(double hours) const {
  constexpr double kSecond = 1.0 / 3600;
  std::vector<std::string> missing;
  for (std::size_t track = 0; track < timeline_->tracks(); ++track) {
    const auto has_time = [&](std::size_t f) {
      const std::optional<TimeAxis>& time = file(f).time();
      for (std::int64_t step = 0; time && step < time->steps(); ++step)
        if (std::abs(time->hours_since_1970(step) - hours) < kSecond) return true;
      return false;
    };
    const std::vector<std::size_t>& files = timeline_->files_of(track);
    if (std::ranges::any_of(files, has_time)) continue;
    for (const HeldChannel& held : held_[files.front()])
      missing.push_back(channel_names_[static_cast<std::size_t>(held.in_series)]);
  }
  return missing.empty() ? channel_names_ : missing;
}

const FieldFile* FieldSeries::file_without_times() const {
  const auto found = std::ranges::find_if_not(files_, [](const auto& file) { return file->has_times(); });
  return found == files_.end() ? nullptr : found->get();
}

}  // namespace isobar
