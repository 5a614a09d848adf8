#include "data/fields/field_series.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "data/fields/catalog.h"
#include "data/fields/channels.h"
#include "data/fields/field_file.h"
#include "data/files/visible_files.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

// Compares names in files that have the same number of channels.
void check_names(const std::string& path, const std::vector<std::string>& held,
                 const std::vector<std::string>& expected, const char* whose) {
  for (std::size_t c = 0; c < expected.size(); ++c)
    ISOBAR_CHECK(held[c] == expected[c], path, ": channel ", c, " is '", held[c], "', ", whose, " has '", expected[c],
                 "' there");
}

void check_channel_count(const FieldFile& file, std::int64_t expected) {
  ISOBAR_CHECK(file.channels() == expected, file.path(), " has ", file.channels(), " channels; expected ", expected);
}

std::vector<std::string> h5_files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::filesystem::path& file : visible_files(folder))
    if (file.extension() == ".h5") files.push_back(file.string());
  return files;
}

}  // namespace

std::int64_t default_cache_bytes(int processes_on_host) {
  ISOBAR_CHECK(processes_on_host >= 1, processes_on_host, " processes on a host");
  const std::int64_t memory =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(std::int64_t{1} << 30, memory / 8) / processes_on_host;
}

bool has_h5_files(const std::string& path) {
  return !h5_files_in(path).empty();
}

std::vector<std::string> find_h5_files(const std::string& path) {
  ISOBAR_CHECK(std::filesystem::exists(path), path, " does not exist");
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files = h5_files_in(path);
  ISOBAR_CHECK(!files.empty(), path, " holds no .h5 files");
  return files;
}

FieldSeries::FieldSeries(const FieldSeriesOptions& options) : dt_(options.dt) {
  ISOBAR_CHECK(dt_ >= 1, "dt must be at least one step, not ", dt_);
  ISOBAR_CHECK(!options.paths.empty(), "no data path is given");
  auto budget = std::make_shared<std::atomic<std::int64_t>>(
      options.cache_bytes < 0 ? default_cache_bytes(options.processes_on_host) : options.cache_bytes);
  first_step_.push_back(0);
  FieldCatalog* const catalog = options.catalog.get();
  for (const std::string& path : options.paths)
    for (const std::string& name : catalog != nullptr ? catalog->files_at(path) : find_h5_files(path)) {
      files_.push_back(std::make_unique<FieldFile>(name, budget, catalog));
      first_step_.push_back(first_step_.back() + files_.back()->steps());
    }

  const FieldFile& first = *files_.front();
  full_height_ = first.height();
  full_width_ = first.width();
  height_ = options.height > 0 ? options.height : full_height_;
  width_ = options.width > 0 ? options.width : full_width_;
  channel_names_ = !first.channel_names().empty() ? first.channel_names()
                   : !options.channels.empty()    ? options.channels
                                                  : default_channel_names(first.channels());
  for (const auto& file : files_) check(*file, options);
  const std::int64_t bytes = checked_product({channels(), height_, width_, sizeof(float)}, first.path() + ": a step");
  ISOBAR_CHECK(static_cast<std::size_t>(bytes) <= machine_memory_bytes(), first.path(), ": a step of ", channels(),
               " x ", height_, " x ", width_, " values is larger than the memory of this machine");
  set_labels(options);

  const auto cropped = [](std::vector<double> axis, std::int64_t length) {
    axis.resize(std::min(axis.size(), static_cast<std::size_t>(length)));
    return axis;
  };
  latitudes_ = cropped(first.latitudes(), height_);
  longitudes_ = cropped(first.longitudes(), width_);
  set_range(options);
}

FieldSeries::~FieldSeries() = default;
FieldSeries::FieldSeries(FieldSeries&&) noexcept = default;

void FieldSeries::check(const FieldFile& file, const FieldSeriesOptions& options) const {
  const FieldFile& first = *files_.front();
  if (!options.channels.empty()) {
    check_channel_count(file, static_cast<std::int64_t>(options.channels.size()));
    if (!file.channel_names().empty()) check_names(file.path(), file.channel_names(), options.channels, "the config");
  }
  ISOBAR_CHECK(file.channels() == first.channels(), file.path(), " has ", file.channels(), " channels, ", first.path(),
               " has ", first.channels());
  if (!file.channel_names().empty())
    check_names(file.path(), file.channel_names(), channel_names_, first.path().c_str());
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
  for (const auto& file : files_) {
    const FieldLabels file_labels{channel_names_, file->units(), file->time() ? file->time()->step_hours() : 0};
    check_labels(file_labels, file->path(), labels_, "the files before it");
    complete_labels(labels_, file_labels);
  }
  labels_.channel_names = !options.channels.empty() ? options.channels : files_.front()->channel_names();
}

void FieldSeries::set_range(const FieldSeriesOptions& options) {
  range_ = options.range.value_or(StepRange{0, steps()});
  const auto [begin, end] = range_;
  ISOBAR_CHECK(begin >= 0, options.range_key, " [", begin, ", ", end, ") begins before the first step");
  ISOBAR_CHECK(begin < end, options.range_key, " [", begin, ", ", end, ") is empty or reversed");
  ISOBAR_CHECK(end <= steps(), options.range_key, " [", begin, ", ", end, ") goes beyond the ", steps(), " steps of ",
               options.paths.front());
}

const std::string& FieldSeries::file_name(std::size_t file) const {
  return files_[file]->path();
}

const FieldFile& FieldSeries::file(std::size_t file) const {
  return *files_[file];
}

std::size_t FieldSeries::file_of(std::int64_t step) const {
  ISOBAR_CHECK(step >= 0 && step < steps(), "step ", step, " is beyond the ", steps(),
               " steps of the data, whose first file is ", files_.front()->path());
  return static_cast<std::size_t>(std::ranges::upper_bound(first_step_, step) - first_step_.begin() - 1);
}

std::vector<Segment> FieldSeries::segments() const {
  std::vector<Segment> result;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::int64_t begin = std::max(first_step_[f], range_[0]), end = std::min(first_step_[f + 1], range_[1]);
    if (begin < end) result.push_back({begin, end - begin});
  }
  return result;
}

void FieldSeries::check_band(RowBand rows) const {
  ISOBAR_CHECK(rows.first >= 0 && rows.count >= 1 && rows.first <= height_ - rows.count, file_name(0), ": rows [",
               rows.first, ", ", rows.first + rows.count, ") are no band of the ", height_, " rows of the grid");
}

void FieldSeries::read_step(std::int64_t step, RowBand rows, float* out) const {
  check_band(rows);
  const std::size_t f = file_of(step);
  files_[f]->read_step(step - first_step_[f], {rows.first, rows.count, width_}, out);
}

void FieldSeries::read_pair(std::int64_t step, RowBand rows, float* input, float* target) const {
  ISOBAR_CHECK(file_of(step) == file_of(step + dt_), "steps ", step, " and ", step + dt_, " are not of one file (",
               file_name(file_of(step)), ")");
  read_step(step, rows, input);
  read_step(step + dt_, rows, target);
}

bool FieldSeries::regular(std::int64_t first, std::int64_t last) const {
  const std::size_t f = file_of(first);
  const auto& time = files_[f]->time();
  return !time || time->regular(first - first_step_[f], last - first_step_[f]);
}

std::vector<std::int64_t> FieldSeries::holes(const Segment& segment) const {
  const std::size_t f = file_of(segment.first);
  std::vector<std::int64_t> result;
  if (!files_[f]->time()) return result;
  for (std::int64_t step : files_[f]->time()->holes()) {
    const std::int64_t before = first_step_[f] + step;
    if (before >= segment.first && before + 1 < segment.first + segment.count) result.push_back(before);
  }
  return result;
}

std::optional<double> FieldSeries::hours_since_1970(std::int64_t step) const {
  const std::size_t f = file_of(step);
  const auto& time = files_[f]->time();
  return time ? std::optional(time->hours_since_1970(step - first_step_[f])) : std::nullopt;
}

const FieldFile* FieldSeries::file_without_times() const {
  const auto found = std::ranges::find_if_not(files_, [](const auto& file) { return file->has_times(); });
  return found == files_.end() ? nullptr : found->get();
}

StepTime FieldSeries::time_of(std::int64_t step) const {
  const std::size_t f = file_of(step);
  return files_[f]->time_of(step - first_step_[f]);
}

}  // namespace isobar
