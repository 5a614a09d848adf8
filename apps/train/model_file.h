// Weights as safetensors files with the names of the PyTorch model's state_dict, and the optimizer's moments beside
// them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/parameters.h"
#include "models/forecast/forecaster.h"

namespace isobar {

// Flat buffers laid out as the parameters (weights, moments), written as one tensor a parameter, named prefix + name.
using FlatBuffers = std::vector<std::pair<std::string, Tensor>>;
void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata);

// Reads them back, converting from whatever floating dtype the file has. A missing, unknown or misshaped tensor, or one
// with a number that is not finite, is an Error that names it and leaves the buffers as they were.
void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers);

// Whether every number of a tensor of fp32 or fp64 is finite.
bool is_finite(const Tensor& values);

// model.safetensors: the weights, with config, channel names, statistics, grid, and, where they are known, the units of
// every channel and the lead time in hours as metadata.
void write_model(const std::filesystem::path& path, const Forecaster& forecaster);
void read_model(const std::filesystem::path& path, Forecaster& forecaster);

// What write_model stored: enough to build the Forecaster that the weights belong to.
struct ModelDescription {
  Config config;
  Grid grid;
};
// False where the file carries no description (weights from elsewhere).
bool has_description(const SafetensorsFile& file);
// Checked as a config file and a data set are: Error naming the file and what is wrong.
ModelDescription description_of(const SafetensorsFile& file);

}  // namespace isobar
