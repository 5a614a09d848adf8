// The statistics that fields are normalised with: loading them with every check, and computing them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/era5/era5.h"
#include "data/era5/field_labels.h"

namespace isobar {

struct Statistics {
  std::vector<double> means, stds;         // [C]
  std::optional<FieldLabels> labels = {};  // of the fields that they were made from; none: there is no stats.json
};

// global_means and global_stds, (1, C, 1, 1) each, and stats.json beside the means. NaN, a zero or negative deviation
// and another shape are errors.
Statistics load_statistics(const std::string& means_path, const std::string& stds_path, std::int64_t channels);

// Error where a standard deviation is none that fields can be divided by. `where` begins the sentence.
void check_deviations(const std::vector<double>& stds, const std::string& where);

// time_means, (1, C, H', W') with H' >= height and W' >= width, cropped to [C, height, width]; in the fields' units.
std::vector<double> load_time_means(const std::string& path, std::int64_t channels, std::int64_t height,
                                    std::int64_t width);

// stats.json of a folder of statistics; none where there is no such file.
std::optional<FieldLabels> load_labels(const std::string& folder);

struct ComputedStatistics : Statistics {
  std::vector<double> time_means;  // [C, H, W]
};

// Over all steps of the dataset's range and its (cropped) grid, unweighted; population standard deviation. One pass in
// fp64: the moments of each step and channel are merged in the order of the steps (Chan et al. 1983), so the result
// does not depend on the number of threads. threads 0: as many as the machine has.
// `window_bytes` of fields are in memory at a time; the result does not depend on it either.
ComputedStatistics compute_statistics(const Era5Dataset& dataset, int threads = 0,
                                      std::int64_t window_bytes = std::int64_t{256} << 20);

// global_means.npy and global_stds.npy (1, C, 1, 1), time_means.npy (1, C, H, W), fp64, and stats.json with the
// channels' names, units and the time step as far as the files say them, into `folder` (made if needed).
void write_statistics(const ComputedStatistics& statistics, std::int64_t height, std::int64_t width,
                      const std::string& folder);

}  // namespace isobar
