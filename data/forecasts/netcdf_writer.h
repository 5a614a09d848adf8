// Forecasts as NetCDF-4: an HDF5 file as netCDF-C writes them, so that it can also append to it.
#pragma once

#include <filesystem>
#include <memory>

#include "data/forecasts/cf_layout.h"
#include "data/forecasts/writer.h"

namespace isobar {

std::unique_ptr<ForecastWriter> make_netcdf_writer(const std::filesystem::path& path, CfLayout layout, bool compress);

}  // namespace isobar
