// The folders of a data set: in the tutorial's layout (train/, valid/ and test/ with .h5 files, stats/ with the
// statistics), or flat, with all files in one folder.
#pragma once

#include <filesystem>

namespace isobar {

inline constexpr const char* kMeansFile = "global_means.npy";
inline constexpr const char* kStdsFile = "global_stds.npy";
inline constexpr const char* kTimeMeansFile = "time_means.npy";
inline constexpr const char* kTimeDiffStdsFile = "time_diff_stds.npy";
inline constexpr const char* kMissingFile = "missing.npy";
inline constexpr const char* kLabelsFile = "stats.json";

struct DataLayout {
  // folders; in a flat layout the first three are the same
  std::filesystem::path train, valid, test, statistics;
};

// The layout of a folder to train on. Throws Error if it is not a folder, or holds neither train/ nor .h5 files.
DataLayout layout_of(const std::filesystem::path& folder);

// The fields of `data`, a folder or a file, to forecast from: its test/ or valid/ if they hold fields, else `data`.
std::filesystem::path fields_to_forecast(const std::filesystem::path& data);

// The statistics folder of `data`. For a folder: its stats/, else itself. For a file: its folder, else stats/ of the
// layout around it. The first one that holds means; if none does, the folder itself.
std::filesystem::path statistics_beside(const std::filesystem::path& data);

}  // namespace isobar
