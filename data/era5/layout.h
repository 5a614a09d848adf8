// Where a data set's files lie: in the tutorial's layout (train/, valid/ and test/ with .h5 files, stats/ with the
// statistics), or flat, all in one folder.
#pragma once

#include <filesystem>

namespace isobar {

inline constexpr const char* kMeansFile = "global_means.npy";
inline constexpr const char* kStdsFile = "global_stds.npy";
inline constexpr const char* kTimeMeansFile = "time_means.npy";
inline constexpr const char* kLabelsFile = "stats.json";

struct DataLayout {
  std::filesystem::path train, valid, test, statistics;  // folders; in a flat one the first three are the same
};

// Of a folder to train on. Throws Error where it is none, or holds neither train/ nor .h5 files.
DataLayout layout_of(const std::filesystem::path& folder);

// What to forecast from `data`, a folder or a file: its test/ or valid/ where there are fields in it, else itself.
std::filesystem::path fields_to_forecast(const std::filesystem::path& data);

// The folder of the statistics of `data`, a folder or a file: its stats/, else itself; of a file, its folder's or those
// of the layout around it. The first that holds means; where none does, the folder itself.
std::filesystem::path statistics_beside(const std::filesystem::path& data);

}  // namespace isobar
