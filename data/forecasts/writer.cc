#include "data/forecasts/writer.h"

#include <algorithm>

#include "data/files/zarr.h"
#include "data/forecasts/cf_layout.h"
#include "data/forecasts/h5_writer.h"
#include "data/forecasts/netcdf_writer.h"
#include "data/forecasts/zarr_writer.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// "X.zarr/" is X.zarr.
std::string suffix_of(const fs::path& path) {
  return (path.has_filename() ? path : path.parent_path()).extension().string();
}

bool is_zarr(const fs::path& path) {
  return suffix_of(path) == ".zarr";
}

bool is_own_store(const fs::path& path) {
  if (!fs::is_directory(path) || !zarr::is_store(path)) return false;
  const Attributes attributes = zarr::Store::open(path).attributes();
  const auto source = attributes.find("source");
  return source != attributes.end() && source->second.texts.size() == 1 &&
         source->second.texts.front().starts_with("isobar");
}

fs::path folder_around(const fs::path& path) {
  return fs::absolute(path.has_filename() ? path : path.parent_path()).parent_path();
}

void check_room(const fs::path& path, const ForecastContents& contents, bool compress) {
  if (compress) return;  // how much it will need is not known
  const std::int64_t starts = holds_variables(path) ? contents.starts : 1;
  const std::int64_t bytes = checked_product({starts, std::ssize(contents.leads), std::ssize(contents.channels),
                                              contents.height, contents.width, sizeof(float)},
                                             path.string());
  const std::uintmax_t free = fs::space(folder_around(path)).available;
  ISOBAR_CHECK(static_cast<std::uintmax_t>(bytes) <= free, path.string(), " needs ", bytes, " bytes, and the disk has ",
               free);
}

}  // namespace

bool holds_variables(const fs::path& path) {
  return is_zarr(path) || suffix_of(path) == ".nc";
}

void check_replaceable(const fs::path& path) {
  if (!is_zarr(path)) {
    static_cast<void>(replaced_by_writing(path));
    return;
  }
  ISOBAR_CHECK(fs::is_directory(folder_around(path)), path.string(), ": there is no folder ",
               folder_around(path).string());
  ISOBAR_CHECK(!fs::exists(path) || is_own_store(path), path.string(),
               " exists and is no forecast that isobar wrote: it is not replaced");
}

std::unique_ptr<ForecastWriter> make_forecast_writer(const fs::path& path, const ForecastContents& contents,
                                                     const ForecastFormat& format) {
  check_replaceable(path);
  if (!holds_variables(path)) {
    ISOBAR_CHECK(!format.compress && !format.long_names, path.string(), ": ",
                 format.compress ? "compression is" : "the names of WeatherBench 2 are", " for .nc and .zarr");
    check_room(path, contents, /*compress=*/false);
    return make_h5_writer(path, contents);
  }
  CfLayout layout = cf_layout(path.string(), contents, format.long_names);
  check_room(path, contents, format.compress);
  return is_zarr(path) ? make_zarr_writer(path, std::move(layout), format.compress)
                       : make_netcdf_writer(path, std::move(layout), format.compress);
}

}  // namespace isobar
