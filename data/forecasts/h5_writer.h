// The file of isobar's own layout: `fields` [K, V, LAT, LON] fp32 of the first start.
#pragma once

#include <filesystem>
#include <memory>

#include "data/forecasts/writer.h"

namespace isobar {

// FILE.h5: fields, `lead` [K] in steps, `channel` [V]; if known, `units` [V] and the valid times as `time` [K]; the
// data's `lat` [LAT] and `lon` [LON], else `row` and `column`. The dimensions have these names for netCDF and xarray.
std::unique_ptr<ForecastWriter> make_h5_writer(const std::filesystem::path& path, const ForecastContents& contents);

}  // namespace isobar
