// Flat buffers laid out as a network's parameters (weights, moments) as safetensors files: one tensor a parameter.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/parameters.h"

namespace isobar {

// Each buffer's tensors are named prefix + the parameter's name.
using FlatBuffers = std::vector<std::pair<std::string, Tensor>>;
void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata);

// Reads them back, converting from whatever floating dtype the file has. A missing, unknown or misshaped tensor, or one
// with a number that is not finite, is an Error that names it and leaves the buffers as they were.
void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers);

// Whether every number of a tensor of fp32 or fp64 is finite.
bool is_finite(const Tensor& values);

}  // namespace isobar
