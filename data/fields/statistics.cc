#include "data/fields/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "data/fields/channels.h"
#include "data/fields/layout.h"
#include "data/files/npy.h"
#include "data/moments.h"
#include "data/parallel_tasks.h"
#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

void check_finite(const std::string& path, std::span<const double> values) {
  for (double value : values)
    ISOBAR_CHECK(std::isfinite(value), path, " holds ", std::isnan(value) ? "NaN" : "an infinity");
}

std::vector<double> load_one_a_channel(const std::string& path, std::int64_t channels) {
  NpyArray array = read_npy(path);
  const std::array<std::int64_t, 4> expected = {1, channels, 1, 1};
  ISOBAR_CHECK(std::ranges::equal(array.shape, expected), path, " has shape ", shape_text(array.shape), "; expected ",
               shape_text(expected));
  check_finite(path, array.values);
  return std::move(array.values);
}

// The moments of the points that are not missing.
template <class T>
Moments moments_of_present(std::span<const T> values) {
  thread_local std::vector<T> present;
  present.clear();
  std::ranges::copy_if(values, std::back_inserter(present), [](T value) { return !std::isnan(value); });
  return present.empty() ? Moments() : Moments::of(std::span<const T>(present));
}

// Values [V, H', W'] cropped to [V, height, width].
template <class T>
std::vector<T> cropped_to(const NpyArray& array, std::int64_t channels, std::int64_t height, std::int64_t width) {
  std::vector<T> cropped;
  for (std::int64_t row = 0; row < channels * array.shape[2]; ++row) {
    if (row % array.shape[2] >= height) continue;
    const auto begin = array.values.begin() + static_cast<std::ptrdiff_t>(row * array.shape[3]);
    std::transform(begin, begin + static_cast<std::ptrdiff_t>(width), std::back_inserter(cropped),
                   [](double value) { return static_cast<T>(value); });
  }
  return cropped;
}

void check_grid_shape(const std::string& path, const std::vector<std::int64_t>& shape, std::int64_t channels,
                      std::int64_t height, std::int64_t width) {
  ISOBAR_CHECK(shape.size() == 4 && shape[0] == 1 && shape[1] == channels && shape[2] >= height && shape[3] >= width,
               path, " has shape ", shape_text(shape), "; expected (1, ", channels, ", ", height, ", ", width,
               ") or a larger grid");
}

std::vector<std::int64_t> all_steps(const FieldSeries& dataset) {
  std::vector<std::int64_t> steps;
  for (const Segment& segment : dataset.segments())
    for (std::int64_t i = 0; i < segment.count; ++i)
      if (dataset.has_sums(segment.first + i)) steps.push_back(segment.first + i);
  return steps;
}

}  // namespace

Statistics load_statistics(const std::string& means_path, const std::string& stds_path, std::int64_t channels) {
  Statistics statistics{load_one_a_channel(means_path, channels), load_one_a_channel(stds_path, channels),
                        load_labels(std::filesystem::path(means_path).parent_path().string())};
  check_deviations(statistics.stds, stds_path);
  return statistics;
}

namespace {

// The places of the channels among those of a folder of statistics; none if it does not name its channels.
std::optional<std::vector<std::size_t>> places_of(const std::vector<std::string>& channels,
                                                  const std::optional<FieldLabels>& labels, const std::string& folder) {
  if (!labels || labels->channel_names.empty()) return std::nullopt;
  std::vector<std::size_t> places;
  for (const std::string& channel : channels) {
    const auto found = std::ranges::find_if(labels->channel_names,
                                            [&](const std::string& name) { return same_channel(name, channel); });
    ISOBAR_CHECK(found != labels->channel_names.end(), folder, "/", kLabelsFile, " has no channel ", channel);
    places.push_back(static_cast<std::size_t>(found - labels->channel_names.begin()));
  }
  return places;
}

template <class T>
std::vector<T> chosen(const std::vector<T>& values, const std::vector<std::size_t>& places) {
  std::vector<T> result;
  for (const std::size_t place : places) result.push_back(values.empty() ? T() : values[place]);
  return result;
}

}  // namespace

Statistics load_statistics(const std::string& means_path, const std::string& stds_path,
                           const std::vector<std::string>& channels) {
  const std::string folder = std::filesystem::path(means_path).parent_path().string();
  const std::optional<FieldLabels> labels = load_labels(folder);
  const auto places = places_of(channels, labels, folder);
  if (!places) return load_statistics(means_path, stds_path, std::ssize(channels));
  const Statistics all = load_statistics(means_path, stds_path, std::ssize(labels->channel_names));
  return {chosen(all.means, *places), chosen(all.stds, *places),
          FieldLabels{channels, chosen(labels->units, *places), labels->step_hours,
                      labels->summed.empty() ? labels->summed : chosen(labels->summed, *places)}};
}

std::vector<double> load_time_means(const std::string& path, const std::vector<std::string>& channels,
                                    std::int64_t height, std::int64_t width) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::optional<FieldLabels> labels = load_labels(folder);
  const auto places = places_of(channels, labels, folder);
  if (!places) return load_time_means(path, std::ssize(channels), height, width);
  const std::vector<double> all = load_time_means(path, std::ssize(labels->channel_names), height, width);
  std::vector<double> result;
  for (const std::size_t place : *places) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(place) * height * width;
    result.insert(result.end(), begin, begin + height * width);
  }
  return result;
}

std::vector<double> load_time_diff_stds(const std::string& path, std::int64_t channels) {
  std::vector<double> stds = load_one_a_channel(path, channels);
  check_deviations(stds, path);
  return stds;
}

std::vector<double> load_time_diff_stds(const std::string& path, const std::vector<std::string>& channels) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::optional<FieldLabels> labels = load_labels(folder);
  const auto places = places_of(channels, labels, folder);
  if (!places) return load_time_diff_stds(path, std::ssize(channels));
  return chosen(load_time_diff_stds(path, std::ssize(labels->channel_names)), *places);
}

void check_deviations(const std::vector<double>& stds, const std::string& where) {
  constexpr double kMinDeviation = std::numeric_limits<float>::min();  // fp32 has no reciprocal of smaller ones
  for (std::size_t c = 0; c < stds.size(); ++c) {
    ISOBAR_CHECK(stds[c] > 0, where, ": the standard deviation of channel ", c, " is ", stds[c],
                 "; it must be positive");
    ISOBAR_CHECK(stds[c] >= kMinDeviation, where, ": the standard deviation of channel ", c, " is ", stds[c],
                 "; nothing can be divided by that in fp32");
  }
}

std::optional<FieldLabels> load_labels(const std::string& folder) {
  const std::filesystem::path file = std::filesystem::path(folder) / kLabelsFile;
  if (!std::filesystem::exists(file)) return std::nullopt;
  return labels_from_json(read_json<nlohmann::json>(file), file.string());
}

std::vector<double> load_time_means(const std::string& path, std::int64_t channels, std::int64_t height,
                                    std::int64_t width) {
  const NpyArray array = read_npy(path);
  check_grid_shape(path, array.shape, channels, height, width);
  std::vector<double> cropped = cropped_to<double>(array, channels, height, width);
  check_finite(path, cropped);
  return cropped;
}

std::vector<std::uint8_t> load_never_there(const std::string& folder, std::int64_t channels, std::int64_t height,
                                           std::int64_t width) {
  const std::filesystem::path path = std::filesystem::path(folder) / kMissingFile;
  if (!std::filesystem::exists(path)) return {};
  const NpyArray array = read_npy(path.string());
  check_grid_shape(path.string(), array.shape, channels, height, width);
  return cropped_to<std::uint8_t>(array, channels, height, width);
}

namespace {

// One pass over the steps, a window of them at a time. Step number k of the pass lies in slot k modulo the number of
// slots, so that the dt steps before a window stay in memory for the differences.
class StatisticsPass {
 public:
  StatisticsPass(const FieldSeries& dataset, int threads, std::int64_t window_bytes, TimeDifferences differences)
      : dataset_(dataset),
        threads_(threads),
        steps_(all_steps(dataset)),
        total_(std::ssize(steps_)),
        distance_(differences == TimeDifferences::computed && dataset.dt() < total_ ? dataset.dt() : 0),
        window_(
            std::clamp<std::int64_t>(window_bytes / (values_ * static_cast<std::int64_t>(sizeof(float))), 1, total_)),
        fields_(static_cast<std::size_t>((window_ + distance_) * values_)),
        sums_(static_cast<std::size_t>(values_)),
        missing_(static_cast<std::size_t>(values_)),
        merged_(static_cast<std::size_t>(channels_)),
        merged_differences_(static_cast<std::size_t>(channels_)) {}

  ComputedStatistics run() {
    for (std::int64_t first = 0; first < total_; first += window_) {
      const std::int64_t count = std::min(window_, total_ - first);
      add_moments(first, count);
      add_sums(first, count);
      if (distance_ > 0) add_differences(first, count);
    }
    return result();
  }

 private:
  float* slot(std::int64_t k) { return fields_.data() + k % (window_ + distance_) * values_; }
  std::span<const float> field(std::int64_t k, std::int64_t channel) {
    return {slot(k) + channel * pixels_, static_cast<std::size_t>(pixels_)};
  }

  // Reads the window.
  void add_moments(std::int64_t first, std::int64_t count) {
    std::vector<Moments> moments(static_cast<std::size_t>(count * channels_));
    parallel_tasks(count, threads_, [&](std::int64_t i) {
      dataset_.read_step(steps_[static_cast<std::size_t>(first + i)], slot(first + i));
      for (std::int64_t c = 0; c < channels_; ++c)
        moments[static_cast<std::size_t>(i * channels_ + c)] = moments_of(field(first + i, c), c);
    });
    merge(moments, merged_);
  }

  template <class T>
  Moments moments_of(std::span<const T> values, std::int64_t channel) const {
    return dataset_.may_be_missing(channel) ? moments_of_present(values) : Moments::of(values);
  }

  // moments: [count, V], in the order of the steps; one without values is of a plane without points, or of no pair.
  void merge(const std::vector<Moments>& moments, std::vector<Moments>& merged) const {
    for (std::size_t i = 0; i < moments.size(); ++i)
      if (moments[i].count > 0) merged[i % merged.size()].merge(moments[i]);
  }

  void add_sums(std::int64_t first, std::int64_t count) {
    parallel_tasks(channels_, threads_, [&](std::int64_t c) {
      double* const sums = sums_.data() + c * pixels_;
      std::uint32_t* const missing = missing_.data() + c * pixels_;
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t p = 0; const float value : field(first + i, c)) {
          if (std::isnan(value))
            ++missing[p];
          else
            sums[p] += static_cast<double>(value);
          ++p;
        }
    });
  }

  // Of the pairs whose second step lies in the window.
  void add_differences(std::int64_t first, std::int64_t count) {
    std::vector<Moments> moments(static_cast<std::size_t>(count * channels_));
    std::vector<char> is_pair(static_cast<std::size_t>(count));
    parallel_tasks(count, threads_, [&](std::int64_t i) {
      const std::int64_t k = first + i;
      if (k < distance_ || !dataset_.has_pair(steps_[static_cast<std::size_t>(k - distance_)])) return;
      is_pair[static_cast<std::size_t>(i)] = 1;
      std::vector<double> difference(static_cast<std::size_t>(pixels_));
      for (std::int64_t c = 0; c < channels_; ++c) {
        std::ranges::transform(field(k, c), field(k - distance_, c), difference.begin(), [](float after, float before) {
          return static_cast<double>(after) - static_cast<double>(before);
        });
        moments[static_cast<std::size_t>(i * channels_ + c)] = moments_of(std::span<const double>(difference), c);
      }
    });
    merge(moments, merged_differences_);
    pairs_ += std::ranges::count(is_pair, 1);
  }

  ComputedStatistics result() {
    ComputedStatistics result;
    result.labels = dataset_.labels();
    for (std::size_t c = 0; c < merged_.size(); ++c) {
      ISOBAR_CHECK(merged_[c].count > 0, dataset_.file_name(0), ": channel ", dataset_.channel_names()[c],
                   " is missing at every point of every step");
      result.means.push_back(merged_[c].mean);
      result.stds.push_back(merged_[c].deviation());
    }
    for (std::size_t p = 0; p < sums_.size(); ++p) {
      const std::int64_t present = total_ - static_cast<std::int64_t>(missing_[p]);
      if (present == 0 && result.never_there.empty()) result.never_there.resize(sums_.size());
      if (present == 0) result.never_there[p] = 1;
      sums_[p] =
          present > 0 ? sums_[p] / static_cast<double>(present) : result.means[p / static_cast<std::size_t>(pixels_)];
    }
    result.time_means = std::move(sums_);
    result.pairs = pairs_;
    for (std::size_t c = 0; pairs_ > 0 && c < merged_differences_.size(); ++c) {
      ISOBAR_CHECK(merged_differences_[c].count > 0, dataset_.file_name(0), ": channel ", dataset_.channel_names()[c],
                   " has no point that is there in both steps of a pair");
      result.time_diff_stds.push_back(merged_differences_[c].deviation());
    }
    return result;
  }

  const FieldSeries& dataset_;
  const int threads_;
  const std::int64_t channels_ = dataset_.channels(), values_ = dataset_.values(), pixels_ = values_ / channels_;
  const std::vector<std::int64_t> steps_;
  const std::int64_t total_;
  const std::int64_t distance_;  // steps of a pair; 0: no differences
  const std::int64_t window_;
  std::vector<float> fields_;                         // [window + distance, V, LAT, LON]
  std::vector<double> sums_;                          // [V, LAT, LON]
  std::vector<std::uint32_t> missing_;                // [V, LAT, LON], the steps without a value
  std::vector<Moments> merged_, merged_differences_;  // [V]
  std::int64_t pairs_ = 0;
};

}  // namespace

ComputedStatistics compute_statistics(const FieldSeries& dataset, int threads, std::int64_t window_bytes,
                                      TimeDifferences differences) {
  return StatisticsPass(dataset, threads, window_bytes, differences).run();
}

void write_statistics(const ComputedStatistics& statistics, std::int64_t height, std::int64_t width,
                      const std::string& folder) {
  const std::filesystem::path base(folder);
  std::filesystem::create_directories(base);
  const auto channels = static_cast<std::int64_t>(statistics.means.size());
  const std::array<std::int64_t, 4> one_a_channel = {1, channels, 1, 1}, grid = {1, channels, height, width};
  write_npy(base / kMeansFile, one_a_channel, std::span<const double>(statistics.means));
  write_npy(base / kStdsFile, one_a_channel, std::span<const double>(statistics.stds));
  write_npy(base / kTimeMeansFile, grid, std::span<const double>(statistics.time_means));
  if (statistics.never_there.empty())
    std::filesystem::remove(base / kMissingFile);
  else
    write_npy(base / kMissingFile, grid, std::span<const std::uint8_t>(statistics.never_there));
  if (statistics.time_diff_stds.empty())
    std::filesystem::remove(base / kTimeDiffStdsFile);
  else
    write_npy(base / kTimeDiffStdsFile, one_a_channel, std::span<const double>(statistics.time_diff_stds));
  write_file_atomically(base / kLabelsFile, to_json(statistics.labels.value_or(FieldLabels())).dump(2) + "\n");
}

}  // namespace isobar
