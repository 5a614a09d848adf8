// Forecasts as a Zarr store, version 2, with consolidated metadata.
#pragma once

#include <filesystem>
#include <memory>

#include "data/forecasts/cf_layout.h"
#include "data/forecasts/writer.h"

namespace isobar {

// The store is made in a hidden folder beside `path`, which gets this name when all files are on the disk. A store of a
// forecast that isobar wrote is replaced.
std::unique_ptr<ForecastWriter> make_zarr_writer(const std::filesystem::path& path, CfLayout layout, bool compress);

}  // namespace isobar
