// How many forecasts go through a network together: as many as fit into memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/device.h"
#include "models/compute_options.h"
#include "models/forecast/forecaster.h"

namespace isobar {

// Most forecasts that are made at once without being asked for: more make each no faster.
inline constexpr std::int64_t kMaxStartsAtOnce = 16;

// Bytes that a step of `batch` forecasts takes beside the weights, found by running it on shapes. like: the kind of
// device that it will run on.
std::size_t bytes_of_forecasts(const ForecasterOptions& options, const ComputeOptions& compute, const FieldsInfo& info,
                               DeviceKind like, std::int64_t batch);

// As many starts as fit into `bytes`, from 1 to kMaxStartsAtOnce.
std::int64_t starts_that_fit(const ForecasterOptions& options, const ComputeOptions& compute, const FieldsInfo& info,
                             DeviceKind like, std::size_t bytes);

}  // namespace isobar
