#include "apps/outputs.h"

#include <algorithm>
#include <array>

#include "apps/train/run_folder.h"
#include "data/files/zarr.h"
#include "data/forecasts/writer.h"
#include "data/text/token_file.h"
#include "data/text/token_tools.h"
#include "engine/files/atomic_file.h"
#include "engine/files/folders.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

bool are_same(const fs::path& a, const fs::path& b) {
  return resolved_path(a) == resolved_path(b);
}

bool holds(const fs::path& folder, const fs::path& file) {
  const fs::path below = resolved_path(file).lexically_relative(resolved_path(folder));
  return !below.empty() && *below.begin() != "..";
}

// A token file's name lacks the endings of its files.
bool is_of_token_file(const fs::path& file, const fs::path& data) {
  if (!is_token_file(data.string())) return false;
  const std::string prefix = token_prefix(data.string());
  return std::ranges::any_of(std::array{".idx", ".bin", ".json"},
                             [&](const char* ending) { return are_same(file, prefix + ending); });
}

bool is_file_of_data(const fs::path& file, const fs::path& data) {
  static constexpr std::array kData{".h5", ".hdf5", ".nc", ".zarr", ".npy", ".gz", ""};  // IDX files have none
  if (are_same(file, data) || (zarr::is_store(data) && holds(data, file)) || is_of_token_file(file, data)) return true;
  return std::ranges::find(kData, file.extension().string()) != kData.end() && fs::exists(file) && holds(data, file);
}

}  // namespace

void check_output(const std::string& flag, const std::string& path, const CommandInputs& inputs) {
  const bool is_store = holds_variables(path) && fs::is_directory(path);
  const fs::path target = is_store ? fs::path(path) : replaced_by_writing(path);
  const bool has_weights = !inputs.weights.empty();
  ISOBAR_CHECK(!has_weights || !are_same(target, inputs.weights), flag, " ", path, " would replace the weights");
  for (const fs::path& data : inputs.data)
    ISOBAR_CHECK(!is_file_of_data(target, data), flag, " ", path, " would replace the data");
  for (const fs::path& statistics : inputs.statistics)
    ISOBAR_CHECK(!are_same(target, statistics), flag, " ", path, " would replace the statistics");
  ISOBAR_CHECK(!has_weights || !is_file_of_run(target, run_of(inputs.weights)), flag, " ", path,
               " would replace a file of the run");
}

void check_format(const std::string& flag, const std::string& path) {
  static constexpr std::array kOthers{".nc", ".nc4", ".cdf", ".zarr", ".grib", ".grib2", ".grb"};
  const std::string extension = fs::path(path).extension().string();
  ISOBAR_CHECK(std::ranges::find(kOthers, extension) == kOthers.end(), flag, " ", path, ": isobar writes no ",
               extension.substr(1), " yet: name it .h5; netCDF and xarray read that too");
}

void check_differ(const std::string& flag, const std::string& path, const std::string& other_flag,
                  const std::string& other_path) {
  ISOBAR_CHECK(path.empty() || other_path.empty() || !are_same(path, other_path), flag, " and ", other_flag,
               " are both ", path);
}

void check_disk(const std::string& flag, const std::string& path, std::uintmax_t bytes) {
  const std::uintmax_t free = fs::space(fs::absolute(replaced_by_writing(path)).parent_path()).available;
  ISOBAR_CHECK(bytes <= free, flag, " ", path, " needs ", bytes, " bytes, and the disk has ", free);
}

}  // namespace isobar
