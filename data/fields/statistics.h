// The statistics that normalise fields: computing, writing and loading them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/field_labels.h"
#include "data/fields/field_series.h"

namespace isobar {

struct Statistics {
  std::vector<double> means, stds;         // [V]
  std::optional<FieldLabels> labels = {};  // of the fields that they were computed from; none: there is no stats.json
};

// Reads global_means and global_stds, each (1, V, 1, 1), and stats.json beside the means. Error for NaN, a zero or
// negative standard deviation, and another shape.
Statistics load_statistics(const std::string& means_path, const std::string& stds_path, std::int64_t channels);

// Those of the named channels, chosen by the names in stats.json. Without such names the files must be of exactly these
// channels, in this order.
Statistics load_statistics(const std::string& means_path, const std::string& stds_path,
                           const std::vector<std::string>& channels);

// Error, beginning with `where`, if fields cannot be divided by one of the standard deviations.
void check_deviations(const std::vector<double>& stds, const std::string& where);

// Reads time_means, (1, V, H', W') with H' >= height and W' >= width, cropped to [V, height, width]; in the fields'
// units.
std::vector<double> load_time_means(const std::string& path, std::int64_t channels, std::int64_t height,
                                    std::int64_t width);
// Those of the named channels, chosen as by load_statistics.
std::vector<double> load_time_means(const std::string& path, const std::vector<std::string>& channels,
                                    std::int64_t height, std::int64_t width);

// Reads time_diff_stds, (1, V, 1, 1). Error as load_statistics.
std::vector<double> load_time_diff_stds(const std::string& path, std::int64_t channels);
// Those of the named channels, chosen as by load_statistics.
std::vector<double> load_time_diff_stds(const std::string& path, const std::vector<std::string>& channels);

// stats.json of a folder of statistics; none if the file does not exist.
std::optional<FieldLabels> load_labels(const std::string& folder);

struct ComputedStatistics : Statistics {
  std::vector<double> time_means;  // [V, LAT, LON]; the channel's mean where a point is never there
  // [V, LAT, LON], 1 where a point is missing in every step; empty if every point is there in some step.
  std::vector<std::uint8_t> never_there = {};
  std::int64_t pairs = 0;                   // of steps, whose differences are in time_diff_stds
  std::vector<double> time_diff_stds = {};  // [V] of x(t + dt) - x(t); empty: not computed, or there is no pair
};

// missing.npy of a folder of statistics, cropped as load_time_means does; empty if the file does not exist.
std::vector<std::uint8_t> load_never_there(const std::string& folder, std::int64_t channels, std::int64_t height,
                                           std::int64_t width);

// Whether time_diff_stds are computed. They need dt more steps in memory.
enum class TimeDifferences : bool { left_out, computed };

inline constexpr std::int64_t kStatisticsWindow = std::int64_t{256} << 20;  // bytes

// Over all steps of the dataset's range and its (cropped) grid, unweighted; population standard deviation. Missing
// points (FieldSeries::may_be_missing) are left out; Error for a channel that has no others. One pass in
// fp64: the moments of each step and channel are merged in the order of the steps (Chan et al. 1983), so the result
// does not depend on the number of threads. threads 0: as many as the machine has cores. At most `window_bytes` of
// fields are in memory at a time; the result does not depend on it.
//
// time_diff_stds: the population standard deviation of x(t + dt) - x(t), subtracted in fp64, over grid and pairs of
// steps, dt of the dataset apart, without a hole in time between them (FieldSeries::has_pair); the same pass.
ComputedStatistics compute_statistics(const FieldSeries& dataset, int threads = 0,
                                      std::int64_t window_bytes = kStatisticsWindow,
                                      TimeDifferences differences = TimeDifferences::left_out);

// Writes global_means.npy and global_stds.npy (1, V, 1, 1), time_means.npy (1, V, LAT, LON), all fp64, and stats.json
// with the names, units and time step that the files give, to `folder` (created if needed). missing.npy
// (1, V, LAT, LON), bytes, is written if points are never there, and time_diff_stds.npy (1, V, 1, 1) if there are
// differences; else an older one, of other data, is removed.
void write_statistics(const ComputedStatistics& statistics, std::int64_t height, std::int64_t width,
                      const std::string& folder);

}  // namespace isobar
