#include "data/fields/layout.h"

#include "data/fields/field_series.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

DataLayout layout_of(const fs::path& folder) {
  if (is_pattern(folder.string())) return {folder, folder, folder, statistics_beside(folder.parent_path())};
  if (holds_stored_arrays(folder.string())) return {folder, folder, folder, statistics_beside(folder)};
  if (const std::string advice = advice_on(folder.string()); !advice.empty()) throw_error("--data ", advice);
  ISOBAR_CHECK(fs::is_directory(folder), "--data ", folder.string(), " is not a folder");
  const bool flat = !fs::is_directory(folder / "train");
  ISOBAR_CHECK(!flat || has_field_files(folder.string()), "--data ", folder.string(),
               " holds neither train/ and valid/, as the tutorial's data, nor .h5 files, NetCDF files or Zarr stores",
               advice_on_files_in(folder.string()));
  const fs::path statistics = fs::is_directory(folder / "stats") ? folder / "stats" : folder;
  if (flat) return {folder, folder, folder, statistics};
  return {folder / "train", folder / "valid", folder / "test", statistics};
}

fs::path fields_to_forecast(const fs::path& data) {
  for (const char* part : {"test", "valid"}) {
    const fs::path folder = data / part;
    if (fs::is_directory(folder) && has_field_files(folder.string())) return folder;
  }
  return data;
}

fs::path statistics_beside(const fs::path& data) {
  const fs::path absolute = fs::absolute(data).lexically_normal();
  const fs::path folder = fs::is_directory(absolute) ? absolute : absolute.parent_path();
  for (const fs::path& candidate : {folder / "stats", folder, folder.parent_path() / "stats"}) {
    if (fs::exists(candidate / kMeansFile)) return candidate;
  }
  return folder;
}

}  // namespace isobar
